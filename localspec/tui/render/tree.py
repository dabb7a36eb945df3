"""A step's token tree as indented lines: nodes without a fork between them share a line.

●␣The                  the last token of the text so far
├✓␣quick ✓␣brown       accepted
│ ├·␣dog               not taken
│ └+␣fox               the token that the model added itself
└·␣old ·␣man
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from rich.cells import cell_len
from rich.text import Text

from localspec.tui.render import styles
from localspec.tui.render.glyphs import UNICODE, Glyphs, cut, glyphs, visible
from localspec.tui.render.line import Line, Part, to_text
from localspec.tui.snapshot import Step

#: cells of a token's text at most
TOKEN_WIDTH = 20
_SPACES = re.compile(f"([{''.join(UNICODE.spaces.values())}]+)")


@dataclass(frozen=True)
class _Node:
    """A node as it is drawn: its cells, and of which parts. `lit` ones are the root, the accepted ones and the bonus
    token."""

    text: str
    style: str
    lit: bool
    width: int
    parts: tuple[Part, ...]


@lru_cache(maxsize=4096)
def _node(text: str, mark: str, style: str, lit: bool, glyph: Glyphs) -> _Node:
    """A node with the text of its token."""
    text = mark + cut(visible(text, glyph.ascii_only), TOKEN_WIDTH, glyph.dots)
    return _Node(text, style, lit, cell_len(text), _parts(text, style, glyph))


def _parts(text: str, style: str, glyph: Glyphs) -> tuple[Part, ...]:
    """Words are easier to read where the stand-ins for whitespace step back."""
    if glyph.ascii_only:
        return ((text, style),)
    # whitespace is at odd places of what the split gives
    return tuple([(part, styles.SPACE if i % 2 else style) for i, part in enumerate(_SPACES.split(text)) if part])


@dataclass
class _Run:
    """Nodes that follow each other without a fork. `depth` counts the forks above, `above` is the run before."""

    nodes: list[_Node]
    depth: int = 0
    above: int = -1
    below: list[int] = field(default_factory=list)

    @property
    def lit(self) -> bool:
        return self.nodes[0].lit


def tree(step: Step, width: int, max_rows: int, *, ascii_only: bool = False) -> Text:
    """The tree of a step in at most `max_rows` (2 or more) lines of at most `width` cells.

    The accepted path and the bonus token come first; a line tells how many nodes have no place.
    """
    return to_text(tree_lines(step, width, max_rows, glyphs(ascii_only)))


def tree_lines(step: Step, width: int, max_rows: int, glyph: Glyphs) -> list[Line]:
    """The lines of `tree`."""
    runs = _runs(step, glyph)
    wrapped = [_wrap(run, width) for run in runs]
    shown = _choose(runs, wrapped, max_rows)
    rows = _rows(runs, wrapped, shown, width, glyph)
    if len(shown) == len(runs) and len(rows) <= max_rows:
        return [line for line, _ in rows]
    # of a path that is itself too long the end is kept, where something happened
    kept = rows[-min(len(rows), max_rows - 1) :]
    lines = [line for line, _ in kept]
    hidden = sum(len(run.nodes) for run in runs) - sum(n for _, n in kept)
    note = cut(f"{glyph.dots} {hidden} more node{'s' * (hidden > 1)}", width, glyph.dots)
    lines.insert(len(lines) if len(kept) == len(rows) else 0, [(note, styles.LABEL)])
    return lines


def _nodes(step: Step, glyph: Glyphs) -> tuple[list[_Node], list[int]]:
    """What is drawn at each node, and the parents. The bonus token is a node like others, the last one."""
    marks = dict.fromkeys(step.path, (glyph.accepted, styles.ACCEPTED))
    marks.update(dict.fromkeys(step.forgiven, (glyph.forgiven, styles.FORGIVEN)))
    marks[0] = (glyph.root, styles.ROOT)
    texts, parents = list(step.texts), list(step.parents)
    if step.bonus is not None:
        marks[len(texts)] = (glyph.bonus, styles.BONUS)
        texts.append(step.bonus)
        parents.append(step.path[-1] if step.path else 0)
    nodes = []
    for node, text in enumerate(texts):
        mark, style = marks.get(node, (glyph.refused, styles.REFUSED))
        nodes.append(_node(text, mark, style, node in marks, glyph))
    return nodes, parents


def _runs(step: Step, glyph: Glyphs) -> list[_Run]:
    """The runs of a tree, the root's first, each before those below it."""
    nodes, parents = _nodes(step, glyph)
    n_children = [0] * len(nodes)
    for parent in parents[1:]:
        n_children[parent] += 1
    runs = [_Run([nodes[0]])]
    run_of = [0]
    for node, parent in enumerate(parents[1:], start=1):
        above = run_of[parent]
        if n_children[parent] == 1 and nodes[parent].lit == nodes[node].lit:
            runs[above].nodes.append(nodes[node])
            run_of.append(above)
        else:
            runs[above].below.append(len(runs))
            run_of.append(len(runs))
            runs.append(_Run([nodes[node]], runs[above].depth + 1, above))
    return runs


def _wrap(run: _Run, width: int) -> list[list[_Node]]:
    """The nodes of a run by line: a lit one goes on below where the line is full, any other is one line."""
    if not run.lit:
        return [run.nodes]
    room = width - min(2 * run.depth, width // 2) - 2
    lines: list[list[_Node]] = [[]]
    used = 0
    for node in run.nodes:
        if lines[-1] and used + node.width > room:
            lines.append([])
            used = 0
        lines[-1].append(node)
        used += node.width + 1
    return lines


def _choose(runs: list[_Run], wrapped: list[list[list[_Node]]], max_rows: int) -> set[int]:
    """The runs that have a place: the lit ones, then those nearest to the root."""
    shown = {i for i, run in enumerate(runs) if run.lit}
    rows = sum(len(wrapped[i]) for i in shown)
    others = sorted((run.depth, i) for i, run in enumerate(runs) if i not in shown)
    # the line that tells of what is missing needs a place as well
    room = len(others) if rows + len(others) <= max_rows else max_rows - 1 - rows
    shown.update(i for _, i in others[: max(0, room)])
    return shown


def _rows(
    runs: list[_Run], wrapped: list[list[list[_Node]]], shown: set[int], width: int, glyph: Glyphs
) -> list[tuple[Line, int]]:
    """The lines from top to bottom, and how many nodes each of them shows or tells of."""
    rows: list[tuple[Line, int]] = []
    pass_by, blank = (glyph.pass_by.ljust(2), styles.LINE), ("  ", "")
    # a run, what its first line begins with, and what those below begin with
    waiting: list[tuple[int, Line, Line]] = [(0, [], [])]
    while waiting:
        i, first, others = waiting.pop()
        below = [child for child in runs[i].below if child in shown]
        for n, nodes in enumerate(wrapped[i]):
            lead = [*others, pass_by if below else blank] if n else first
            rows.append((_line(lead, nodes, width, glyph), len(nodes)))
        for child in reversed(below):
            is_last = child == below[-1]
            fork = glyph.last if is_last else glyph.fork, styles.ACCEPTED if runs[child].lit else styles.LINE
            waiting.append((child, [*others, fork], [*others, blank if is_last else pass_by]))
    return rows


def _line(lead: Line, nodes: list[_Node], width: int, glyph: Glyphs) -> Line:
    """Nodes behind what their line begins with: as many as there is room for, and how many more there are."""
    # however deep they are, nodes get half of the line; all parts of the lead but the last have two cells
    while lead and sum(len(text) for text, _ in lead) > width // 2:
        lead = lead[1:]
    line = list(lead)
    room = width - sum(len(text) for text, _ in lead)
    for n, node in enumerate(nodes):
        more = len(nodes) - n - 1
        tail = f" {glyph.dots}{more}" if more else ""
        if n and 1 + node.width + len(tail) > room:
            line.append((f" {glyph.dots}{more + 1}", styles.LABEL))
            break
        if n:
            line.append((" ", ""))
            room -= 1
        if node.width + len(tail) <= room:
            line += node.parts
        else:
            line.append((cut(node.text, room - len(tail), glyph.dots), node.style))
        room -= node.width
    return line
