"""Bars of blocks: lying and standing ones, in eighths of a cell."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.tui.render import styles
from localspec.tui.render.glyphs import Glyphs
from localspec.tui.render.line import Line


def bar(share: float, width: int, glyph: Glyphs, style: str = styles.BAR, *, rest: bool = False) -> Line:
    """A bar over `share` (0 to 1) of `width` cells, the remainder blank or, with `rest`, shaded. What is not nothing is
    never drawn as nothing."""
    share = min(max(share, 0.0), 1.0)
    steps = len(glyph.eighths)
    filled = round(share * width * steps)
    if share > 0 and width > 0:
        filled = max(1, filled)
    whole, part = divmod(filled, steps)
    drawn = glyph.eighths[-1] * whole + (glyph.eighths[part - 1] if part else "")
    return [(drawn, style), ((glyph.rest if rest else " ") * (width - len(drawn)), styles.LINE)]


def columns(values: Sequence[float], rows: int, most: float, glyph: Glyphs, *, now: int | None = None) -> list[Line]:
    """Standing bars, one cell wide, over `rows` lines that reach from 0 to `most`; bar `now` stands out."""
    steps = len(glyph.ramp) - 1
    heights = [
        0 if value <= 0 or most <= 0 else max(1, round(min(value / most, 1.0) * rows * steps)) for value in values
    ]
    lines: list[Line] = []
    for below in range((rows - 1) * steps, -1, -steps):
        blocks = "".join([glyph.ramp[min(max(height - below, 0), steps)] for height in heights])
        if now is None:
            lines.append([(blocks, styles.BAR)])
        else:
            lit = (blocks[now : now + 1], styles.BAR_NOW)
            lines.append([(blocks[:now], styles.BAR), lit, (blocks[now + 1 :], styles.BAR)])
    return lines
