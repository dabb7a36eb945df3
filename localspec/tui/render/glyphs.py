"""The characters that pictures are made of, for terminals with and without UTF-8, and token texts made visible."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from rich.cells import cell_len, set_cell_size


@dataclass(frozen=True, eq=False)
class Glyphs:
    """One set of characters. `ramp` has bars of growing height, the empty one first; `eighths` bars of growing length,
    a full one last; `spaces` the stand-ins for whitespace."""

    root: str = "●"
    accepted: str = "✓"
    refused: str = "·"
    bonus: str = "+"
    forgiven: str = "≈"
    fork: str = "├"
    last: str = "└"
    pass_by: str = "│"
    dots: str = "…"
    nothing: str = "∅"
    separator: str = " · "
    times: str = "×"
    now: str = "▸"
    rest: str = "░"
    ramp: str = " ▁▂▃▄▅▆▇█"
    eighths: str = "▏▎▍▌▋▊▉█"
    scale: str = "─"
    edge: str = "┼"
    marker: str = "◆"
    spaces: Mapping[str, str] = field(default_factory=lambda: {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"})
    ascii_only: bool = False


UNICODE = Glyphs()
ASCII = Glyphs(
    root="o",
    accepted="*",
    refused=".",
    bonus="+",
    forgiven="~",
    fork="|-",
    last="`-",
    pass_by="| ",
    dots="..",
    nothing="<>",
    separator=" | ",
    times="x",
    now=">",
    rest=".",
    ramp=" _.:-=+*#",
    eighths="#",
    scale="-",
    edge="|",
    marker="^",
    spaces={" ": "_", "\n": "\\n", "\t": "\\t", "\r": "\\r"},
    ascii_only=True,
)


def glyphs(ascii_only: bool) -> Glyphs:
    """The set to use."""
    return ASCII if ascii_only else UNICODE


@lru_cache(maxsize=8192)
def visible(text: str, ascii_only: bool = False) -> str:
    """The text of a token in one line: whitespace as glyphs, controls and invisible characters as escapes, so that it
    can neither break a picture nor command a terminal. Its width is the sum of its characters' widths."""
    glyph = glyphs(ascii_only)
    shown = "".join([_visible(char, glyph) for char in text])
    if "    " in text:
        # indentation: how much of it there is tells more than itself does
        space = glyph.spaces[" "]
        shown = re.sub(f"{space}{{4,}}", lambda match: f"{space}{glyph.times}{len(match[0])}", shown)
    # a mark that combines would sit on what stands before it
    if shown and not cell_len(shown[0]):
        return f"◌{shown}"
    return shown or glyph.nothing


def _visible(char: str, glyph: Glyphs) -> str:
    if char in glyph.spaces:
        return glyph.spaces[char]
    # selectors of emoji looks change widths in some terminals and not in others
    if "\ufe00" <= char <= "\ufe0f":
        return ""
    category = unicodedata.category(char)
    if category == "Zs":
        return glyph.spaces[" "]
    if category[0] == "C" or category in ("Zl", "Zp") or (glyph.ascii_only and not char.isascii()):
        return char.encode("unicode_escape", "surrogatepass").decode()
    return char


def cut(text: str, width: int, dots: str = "…") -> str:
    """At most `width` cells of a line, with dots where something is missing."""
    if cell_len(text) <= width:
        return text
    room = width - len(dots)
    if room <= 0:
        return dots[: max(0, width)]
    # a wide character that does not fit becomes a blank, which would look like a part of the text
    return set_cell_size(text, room).rstrip(" ") + dots
