"""The status line."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from localspec.tui.render import styles, words
from localspec.tui.render.glyphs import Glyphs, cut, glyphs
from localspec.tui.render.line import Line, Part, to_text
from localspec.tui.render.line import width as width_of
from localspec.tui.snapshot import Snapshot


def status_line(snapshot: Snapshot, width: int, *, ascii_only: bool = False) -> Text:
    """One line of at most `width` cells; as it shrinks parts become shorter, and the least important ones go."""
    glyph = glyphs(ascii_only)
    # in the order of the line, with their ranks
    parts = [
        (2, words.rate(snapshot)),
        (3, words.speedup(snapshot, glyph)),
        (0, words.off(snapshot)),
        (5, words.drafting(snapshot, glyph)),
        (1, words.lossy(snapshot, glyph)),
        (6, words.per_step(snapshot)),
        (7, words.context(snapshot)),
        (4, words.finish(snapshot)),
    ]
    return to_text([fitting(parts, width, glyph)])


def fitting(parts: Sequence[tuple[int, Sequence[Part]]], width: int, glyph: Glyphs) -> Line:
    """One line of (rank, variants), the longest variant first: the smaller the rank the more there is of a part.

    The first part is always there, if it has to be cut. Those of rank 0 are as long as can be before others are looked
    at; of the others as many as possible are there before any is longer than it must be.
    """
    gap = cell_len(glyph.separator)
    parts = [part for part in parts if part[1]]
    order = sorted(range(len(parts)), key=lambda i: (i > 0, parts[i][0]))
    chosen: dict[int, Part] = {}
    room = width + gap
    for i in order:
        rank, variants = parts[i]
        fit = [variant for variant in variants if cell_len(variant[0]) + gap <= room]
        if fit or not chosen:
            chosen[i] = variants[-1] if not fit else fit[0] if rank == 0 else fit[-1]
            room -= cell_len(chosen[i][0]) + gap
    for i in sorted(chosen, key=lambda i: parts[i][0]):
        now = cell_len(chosen[i][0])
        # variants get shorter, so the first one that fits is the longest
        chosen[i] = next((one for one in parts[i][1] if cell_len(one[0]) - now <= room), chosen[i])
        room -= cell_len(chosen[i][0]) - now
    return _join([chosen[i] for i in sorted(chosen)], width, glyph)


def _join(parts: Sequence[Part], width: int, glyph: Glyphs) -> Line:
    """Parts in one line with separators between, cut where even one is too long."""
    line: Line = []
    for n, (text, style) in enumerate(parts):
        if n:
            line.append((glyph.separator, styles.LINE))
        line.append((cut(text, width - width_of(line), glyph.dots), style))
    return line
