"""The names of the styles that pictures use. Their looks are in `localspec.tui.palette`."""

from __future__ import annotations

ACCEPTED = "spec.accepted"
BONUS = "spec.bonus"
FORGIVEN = "spec.forgiven"
REFUSED = "spec.refused"
ROOT = "spec.root"
#: stand-ins for whitespace
SPACE = "spec.space"
#: lines of trees, scales and empty parts of bars
LINE = "spec.line"
LABEL = "spec.label"
VALUE = "spec.value"
#: the figures that people look for first
STRONG = "spec.strong"
WARNING = "spec.warning"
BAR = "spec.bar"
#: the bar of what is in use now
BAR_NOW = "spec.bar_now"
#: tokens within an answer
TINT_ACCEPTED = "spec.tint.accepted"
TINT_BONUS = "spec.tint.bonus"
TINT_FORGIVEN = "spec.tint.forgiven"

NAMES = (
    ACCEPTED, BONUS, FORGIVEN, REFUSED, ROOT, SPACE, LINE, LABEL, VALUE, STRONG, WARNING, BAR, BAR_NOW,
    TINT_ACCEPTED, TINT_BONUS, TINT_FORGIVEN,
)  # fmt: skip
