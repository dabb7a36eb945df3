"""The looks of styles: those of `localspec.tui.render.styles`, and a few more for messages.

Text is marked with names (`Text("..", style=palette.WARN)`). A console looks them up in its Rich theme:
`Console(theme=rich_theme("dark"))`, and a Textual app in that of `app.console`, which `localspec.tui.themes.install`
keeps in step with the theme of the app.

Kinds of tokens differ by bold, dim, italic and underline as well as by colour, so that nothing is lost with NO_COLOR
or to eyes that do not tell red from green. No Textual here.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from rich.style import Style
from rich.theme import Theme

from localspec.tui.render import styles

#: "ansi" leaves colours to the palette of the terminal, "none" has none at all
Tone = Literal["dark", "light", "ansi", "none"]

LABEL, VALUE, BAR, TRACK = styles.LABEL, styles.VALUE, styles.BAR, styles.LINE
TITLE = "localspec.title"
MUTED = "localspec.muted"
GOOD = "localspec.good"
WARN = "localspec.warn"
BAD = "localspec.bad"

# one hue on dark, on light, and in the palette of the terminal
_GREEN = ("#7fd88f", "#166c2f", "green")
_BLUE = ("#7ab8ff", "#0a58ca", "blue")
_PINK = ("#f0a6ff", "#9a1fb0", "magenta")
_AMBER = ("#f2c078", "#8a5a00", "yellow")
_RED = ("#ff8080", "#b3261e", "red")
_GREY = ("#9aa4b2", "#57606a", "")  # a terminal's own grey may be hard to read: dim does it there
_FAINT = ("#6b7686", "#737c87", "")
_OWN = ("", "", "")  # the colour of the text around

_LOOKS: dict[str, tuple[str, tuple[str, str, str]]] = {
    styles.ACCEPTED: ("bold", _GREEN),
    styles.BONUS: ("underline", _BLUE),
    styles.FORGIVEN: ("bold italic underline", _PINK),
    styles.REFUSED: ("dim", _GREY),
    styles.ROOT: ("", _OWN),
    styles.SPACE: ("dim", _FAINT),
    styles.LINE: ("dim", _FAINT),
    styles.LABEL: ("", _GREY),
    styles.VALUE: ("", _OWN),
    styles.STRONG: ("bold", _OWN),
    styles.WARNING: ("bold", _AMBER),
    styles.BAR: ("", _BLUE),
    styles.BAR_NOW: ("bold", _AMBER),
    styles.TINT_ACCEPTED: ("bold", _GREEN),
    styles.TINT_BONUS: ("underline", _BLUE),
    styles.TINT_FORGIVEN: ("bold italic underline", _PINK),
    TITLE: ("bold", _AMBER),
    MUTED: ("dim", _OWN),
    GOOD: ("bold", _GREEN),
    WARN: ("bold", _AMBER),
    BAD: ("bold", _RED),
}

#: all style names
NAMES = tuple(_LOOKS)


def style(name: str, tone: Tone = "dark") -> Style:
    """The style called `name`. Raises `KeyError` for a name that is not in `NAMES`."""
    attributes, (dark, light, ansi) = _LOOKS[name]
    colour = {"dark": dark, "light": light, "ansi": ansi, "none": ""}[tone]
    if tone in ("dark", "light") and colour:
        attributes = attributes.replace("dim", "")  # these colours are faint already
    return Style.parse(f"{attributes} {colour}".strip() or "none")


@cache
def rich_theme(tone: Tone = "dark") -> Theme:
    """All styles by name, for a Rich console."""
    return Theme({name: style(name, tone) for name in NAMES})
