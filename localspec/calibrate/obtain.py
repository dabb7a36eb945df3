"""Gets the cost curve of a set-up: from disk, or measured now and then stored.

A curve measured on a busy machine is stored as well, marked, so that a machine that is always busy is not measured at
every start; it gives way to a better one, and never replaces one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from localspec.calibrate.curve import CostCurve
from localspec.calibrate.measure import Progress, measure
from localspec.calibrate.store import CurveKey, load_curve, save_curve
from localspec.engine.base import TreeContext
from localspec.errors import LocalspecError

log = logging.getLogger(__name__)

#: found on disk; measured and stored; measured while busy, and stored as such; measured while busy, and a better one
#: stays on disk; measured, but the disk refused it; nothing to measure
Status = Literal["found", "stored", "busy", "kept", "unwritten", "none"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The curve to use, None when the context cannot hold trees, and what happened. `detail` is a sentence."""

    curve: CostCurve | None
    status: Status
    detail: str


def find(key: CurveKey) -> Outcome | None:
    """The stored curve of `key`, unless there is none or it is time to measure again."""
    stored = load_curve(key)
    if stored is None or stored.is_due():
        return None
    when = stored.created[:16].replace("T", " ")
    busy = "" if stored.reliable else ", while the machine was busy; `localspec calibrate --force` measures again"
    return Outcome(stored.curve, "found", f"measured at {when} UTC{busy}")


def measure_and_store(
    ctx: TreeContext, key: CurveKey, model_name: str, tokens: Sequence[int], progress: Progress | None = None
) -> Outcome:
    """Measure now (see `measure`) and store the curve. A disk that refuses it is told, not raised."""
    measured = measure(ctx, tokens=tokens, progress=progress)
    if measured is None:
        return Outcome(None, "none", f"nothing to measure: {ctx.tree_limit_reason}")
    curve = measured.curve
    before = None if measured.reliable else load_curve(key)
    if before is not None and before.reliable:
        return Outcome(curve, "kept", f"the machine was busy, so the curve of {before.created[:10]} stays stored")
    try:
        path = save_curve(key, curve, model_name, reliable=measured.reliable)
    except LocalspecError as error:
        # a home directory that cannot be written must not keep anybody from an answer
        log.warning("%s; it is measured again next time", error)
        return Outcome(curve, "unwritten", f"not stored: {error.message}")
    if not measured.reliable:
        log.info("the machine was busy while it was measured, so it is measured again in a day")
        return Outcome(curve, "busy", f"stored in {path}, to be measured again in a day: the machine was busy")
    return Outcome(curve, "stored", f"stored in {path}")
