"""The panel: all pictures of a snapshot below each other.

Every part has a least and a most height that do not depend on the step, so that nothing jumps while steps go by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.cells import cell_len
from rich.text import Text

from localspec.tui.render import charts, styles, words
from localspec.tui.render.glyphs import Glyphs, cut, glyphs
from localspec.tui.render.line import Line, crop, to_text
from localspec.tui.render.line import width as width_of
from localspec.tui.render.status import fitting
from localspec.tui.render.tree import tree_lines
from localspec.tui.snapshot import Snapshot, Step, shape_name

#: lines that the tree has if there is room for anything, and at most
LEAST_TREE, MOST_TREE = 6, 12

#: lines for lengths at most, and trees of the bank
MOST_LENGTHS, MOST_TREES = 8, 8
#: cells from which on there are two columns, and what is between them
TWO_COLUMNS, GAP = 70, "   "

Draw = Callable[[int], Sequence[Line]]


@dataclass(frozen=True)
class _Part:
    """A picture of `least` to `most` lines, besides a title that may be "". The best rank is 0. Of two columns it is in
    the one at the `left` or in the other."""

    rank: int
    title: str
    least: int
    most: int
    draw: Draw
    left: bool = False

    @property
    def head(self) -> int:
        return 1 if self.title else 0


def panel(snapshot: Snapshot, width: int, height: int, *, ascii_only: bool = False) -> Text:
    """At most `height` lines of at most `width` cells, in two columns where there is room for them.

    Parts with nothing to show are hidden, and the least important ones are left out where the height is short.
    """
    glyph = glyphs(ascii_only)
    if width < TWO_COLUMNS:
        return to_text(_stack(_parts(snapshot, width, glyph), width, height, glyph))
    each = (width - len(GAP)) // 2
    parts = _parts(snapshot, each, glyph)
    left = _stack([part for part in parts if part.left], each, height, glyph)
    right = _stack([part for part in parts if not part.left], each, height, glyph)
    pairs: Iterator[tuple[Line, Line]] = zip_longest(left, right, fillvalue=[])
    return to_text([[*a, (" " * (each - width_of(a)) + GAP, ""), *b] if b else a for a, b in pairs])


def _stack(parts: list[_Part], width: int, height: int, glyph: Glyphs) -> list[Line]:
    """Parts below each other."""
    parts = [part for part in parts if part.most > 0]
    lines: list[Line] = []
    for part, rows in zip(parts, _share(parts, height), strict=True):
        if rows:
            if part.title:
                lines.append(_title(part.title, width, glyph))
            drawn = part.draw(rows)[:rows]
            lines += [*drawn, *([] for _ in range(rows - len(drawn)))]
    return [line if width_of(line) <= width else crop(line, width) for line in lines[:height]]


def _share(parts: list[_Part], height: int) -> list[int]:
    """How many lines each part gets: their least by rank, then one more each in turn."""
    rows = [0] * len(parts)
    order = sorted(range(len(parts)), key=lambda i: parts[i].rank)
    for i in order:
        need = parts[i].head + parts[i].least
        if need <= height:
            rows[i] = parts[i].least
            height -= need
    while height > 0 and (growing := [i for i in order if 0 < rows[i] < parts[i].most]):
        for i in growing[:height]:
            rows[i] += 1
        height -= len(growing[:height])
    return rows


def _parts(snapshot: Snapshot, width: int, glyph: Glyphs) -> list[_Part]:
    """All parts from top to bottom."""
    head = _head(snapshot, width, glyph)
    n_lengths = charts.n_lengths(snapshot, MOST_LENGTHS)
    n_bank = charts.n_bank(snapshot, MOST_TREES)
    n_speed = 2 if snapshot.n_steps else 0
    n_curve = 3 if len(snapshot.curve) > 1 and width >= 20 else 0
    prompt = charts.prompt(snapshot, width, glyph)
    context = charts.context(snapshot, width, glyph)
    legend = _legend(snapshot, width, glyph)
    return [
        _Part(0, "", len(head), len(head), lambda rows: head, left=True),
        _Part(3, "", 1, n_speed, lambda rows: charts.speed(snapshot, width, rows, glyph), left=True),
        _tree_part(snapshot, width, glyph),
        _Part(4, "drafts accepted in a step", 1, n_lengths, lambda rows: charts.lengths(snapshot, width, rows, glyph)),
        _Part(
            5, "trees, share of steps", min(3, n_bank), n_bank, lambda rows: charts.bank(snapshot, width, rows, glyph)
        ),
        _Part(7, "cost of n nodes in plain steps", 1, n_curve, lambda rows: charts.curve(snapshot, width, rows, glyph)),
        _Part(8, "", 1, len(prompt), lambda rows: prompt),
        _Part(2, "", 1, len(context), lambda rows: context),
        _Part(9, "", 1, len(legend), lambda rows: legend, left=True),
    ]


def _tree_part(snapshot: Snapshot, width: int, glyph: Glyphs) -> _Part:
    """The tree, of a height that its size does not change."""
    most = max(4, min(MOST_TREE, snapshot.most_lines))
    least = min(LEAST_TREE, most)
    step = snapshot.step
    if step is None:
        # room is kept where steps went by already and will again
        return _Part(1, "step", least, most if snapshot.n_kept else 0, lambda rows: [], left=True)
    title = _step_title(snapshot, step, width - 4, glyph)
    return _Part(1, title, least, most, lambda rows: tree_lines(step, width, rows, glyph), left=True)


def _step_title(snapshot: Snapshot, step: Step, width: int, glyph: Glyphs) -> str:
    """Which step it is, with which tree (where there is room for that), and how much of it was taken."""
    back = "" if snapshot.at is None else f" ({snapshot.at} back)" if snapshot.at else " (paused)"
    parts = [f"step {step.number}{back}", "no draft"]
    if step.n_drafted:
        # a step of an earlier answer may have had a bank that this one does not
        known = step.tree is not None and 0 <= step.tree < len(snapshot.trees)
        name = snapshot.trees[step.tree or 0] if known else shape_name(step.parents)
        parts = [parts[0], words.shape(name, glyph), f"{len(step.path)}/{step.n_drafted} taken"]
    title = glyph.separator.join(parts)
    return title if cell_len(title) <= width else glyph.separator.join([parts[0], parts[-1]])


def _head(snapshot: Snapshot, width: int, glyph: Glyphs) -> list[Line]:
    """The figures: as many lines from the beginning of an answer to its end."""
    off, speedup = words.off(snapshot), words.speedup(snapshot, glyph)
    unknown = [] if snapshot.phase == "idle" else [("speed-up not known yet", styles.LABEL)]
    rows = [
        [(0, words.rate(snapshot)), (1, words.finish(snapshot))],
        [(0, off), (1, speedup)] if off else [(0, speedup or unknown)],
        [(0, words.drafting(snapshot, glyph)), (1, words.per_step(snapshot))],
        [(0, words.lossy(snapshot, glyph))],
    ]
    lines = [fitting(row, width, glyph) for row in rows]
    return [line for line in lines if line]


def _legend(snapshot: Snapshot, width: int, glyph: Glyphs) -> list[Line]:
    """What the marks of the tree mean."""
    if snapshot.step is None:
        return []
    marks = [
        (glyph.accepted, "taken", styles.ACCEPTED),
        (glyph.refused, "not", styles.REFUSED),
        (glyph.bonus, "bonus", styles.BONUS),
    ]
    if not snapshot.lossless:
        marks.insert(1, (glyph.forgiven, "forgiven", styles.FORGIVEN))
    for gap in ("  ", " "):
        line: Line = []
        for mark, word, style in marks:
            line += [(gap if line else "", ""), (mark, style), (f" {word}", styles.LABEL)]
        if width_of(line) <= width:
            return [line]
    return []


def _title(text: str, width: int, glyph: Glyphs) -> Line:
    """A line across that names what is below."""
    text = cut(text, max(0, width - 3), glyph.dots)
    rest = width - width_of([(text, "")]) - 3
    return [(f"{glyph.scale} ", styles.LINE), (text, styles.LABEL), (" " + glyph.scale * max(0, rest), styles.LINE)]
