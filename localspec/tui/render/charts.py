"""Figures as pictures. Every function gives lines of at most `width` cells, and none where there is nothing to show."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from localspec.tui.render import styles, words
from localspec.tui.render.bars import bar, columns
from localspec.tui.render.glyphs import Glyphs, cut
from localspec.tui.render.line import Line
from localspec.tui.render.line import width as width_of
from localspec.tui.snapshot import Snapshot

#: lengths that are told from the beginning
LEAST_LENGTHS = 4


def speed(snapshot: Snapshot, width: int, rows: int, glyph: Glyphs) -> list[Line]:
    """Tokens per second over time, newest at the right, over `rows` lines; the largest is told at the top right."""
    if len(snapshot.rates) < 2:
        return []
    most = max(snapshot.rates)
    label = f" {most:.0f}" if most >= 10 else f" {most:.1f}"
    room = width - len(label)
    if room < 1:
        return []
    rates = snapshot.rates[-room:]
    # a short run begins at the right as well: now is always at the same place
    lines: list[Line] = [[(" " * (room - len(rates)), ""), *line] for line in columns(rates, rows, most, glyph)]
    lines[0].append((label, styles.LABEL))
    return lines


def lengths(snapshot: Snapshot, width: int, rows: int, glyph: Glyphs) -> list[Line]:
    """The share of steps by how many drafts were accepted in them, a line each; with one row they stand beside each
    other. Where there are too many they are put together, few of them with few and many with many."""
    counts, total = _counts(snapshot), sum(snapshot.lengths)
    if not total or not snapshot.n_drafted:
        return []
    now = len(snapshot.step.path) if snapshot.step is not None else -1
    if rows == 1:
        return [_lengths_in_one(counts, width, glyph, now)]
    bins = _bins(len(counts), rows)
    names = [_bin_name(start, end, len(counts)) for start, end in bins]
    wide = max(map(len, names))
    shares = [sum(counts[start:end]) / total for start, end in bins]
    return [
        _row(name.rjust(wide), share, width, glyph, start <= now < end, largest=max(shares))
        for name, share, (start, end) in zip(names, shares, bins, strict=True)
    ]


def n_lengths(snapshot: Snapshot, most: int) -> int:
    """Lines that `lengths` would fill of `most`."""
    return len(_bins(len(_counts(snapshot)), most)) if snapshot.n_drafted else 0


def _counts(snapshot: Snapshot) -> tuple[int, ...]:
    """The lengths, with those that most answers come to from the beginning, so that few lines are added later."""
    return snapshot.lengths + (0,) * (LEAST_LENGTHS - len(snapshot.lengths))


def _bins(n: int, most: int) -> list[tuple[int, int]]:
    """`n` counts in at most `most` bins (start, end): one each, or else 0, 1, 2, 3-4, 5-8 and so on."""
    if n <= most:
        return [(k, k + 1) for k in range(n)]
    bins = [(0, 1), (1, 2)]
    while bins[-1][1] < n:
        start = bins[-1][1]
        bins.append((start, 2 * start - 1))
    bins = bins[:most]
    return [*bins[:-1], (bins[-1][0], n)]


def _bin_name(start: int, end: int, n: int) -> str:
    if end - start == 1:
        return str(start)
    return f"{start}+" if end == n else f"{start}-{end - 1}"


def _lengths_in_one(counts: Sequence[int], width: int, glyph: Glyphs, now: int) -> Line:
    """0▂ 1▅ 2▇: every number with its bar, those at the end left out where the line is full."""
    bins = _bins(len(counts), 8)
    sums = [sum(counts[start:end]) for start, end in bins]
    line: Line = []
    room = width
    for (start, end), count in zip(bins, sums, strict=True):
        name = (" " if line else "") + _bin_name(start, end, len(counts))
        room -= len(name) + 1
        if room < 0:
            break
        lit = start <= now < end
        height = max(1, round(count / max(sums) * (len(glyph.ramp) - 1))) if count else 0
        line.append((name, styles.STRONG if lit else styles.LABEL))
        line.append((glyph.ramp[height], styles.BAR_NOW if lit else styles.BAR))
    return line


def bank(snapshot: Snapshot, width: int, rows: int, glyph: Glyphs) -> list[Line]:
    """The trees of the bank with their shares of the steps, the one in use marked; of too many those that were used
    most. The score that chooses among them is below."""
    used = snapshot.tree_steps
    if not snapshot.trees or not sum(used):
        return []
    scale = gauge(snapshot, width, glyph) if rows > 1 else []
    rows -= len(scale)
    order = sorted(range(len(used)), key=lambda i: (i != snapshot.tree, -used[i]))[:rows]
    names = [cut(words.shape(name, glyph), max(4, width // 2), glyph.dots) for name in snapshot.trees]
    wide = max(map(cell_len, names))
    lines = []
    for i in sorted(order):
        lit = i == snapshot.tree
        name = f"{glyph.now if lit else ' '} {names[i]}{' ' * (wide - cell_len(names[i]))}"
        lines.append(_row(name, used[i] / max(1, snapshot.n_steps), width, glyph, lit))
    return lines + scale


def n_bank(snapshot: Snapshot, most: int) -> int:
    """Lines that `bank` would fill with at most `most` trees."""
    if not any(snapshot.tree_steps):
        return 0
    return min(most, len(snapshot.tree_steps)) + (snapshot.score is not None and len(snapshot.edges) > 0)


def _row(name: str, share: float, width: int, glyph: Glyphs, lit: bool, largest: float = 1.0) -> Line:
    """A name, a bar and the share it stands for; the largest share fills the line."""
    figure = f" {share:4.0%}"
    room = width - cell_len(name) - 1 - len(figure)
    line: Line = [(name, styles.STRONG if lit else styles.LABEL)]
    if room > 0:
        filled = share / largest if largest else 0.0
        line += [(" ", ""), *bar(filled, room, glyph, styles.BAR_NOW if lit else styles.BAR)]
    return [*line, (figure, styles.VALUE)]


def gauge(snapshot: Snapshot, width: int, glyph: Glyphs) -> list[Line]:
    """The score from 0 to 1 on a scale with its edges."""
    if snapshot.score is None or not snapshot.edges:
        return []
    head, figure = "s ", f" {snapshot.score:.2f}"
    room = width - len(head) - len(figure)
    if room < 4:
        return []
    scale = [glyph.scale] * room
    # policies that never change have edges beyond all scores
    for edge in snapshot.edges:
        if 0 <= edge <= 1:
            scale[round(edge * (room - 1))] = glyph.edge
    at = round(min(max(snapshot.score, 0.0), 1.0) * (room - 1))
    before, after = "".join(scale[:at]), "".join(scale[at + 1 :])
    marker = (glyph.marker, styles.BAR_NOW)
    return [[(head, styles.LABEL), (before, styles.LINE), marker, (after, styles.LINE), (figure, styles.VALUE)]]


def curve(snapshot: Snapshot, width: int, rows: int, glyph: Glyphs) -> list[Line]:
    """The cost of a step by its nodes, from 1 at the left to the most at the right; the nodes of the step stand out.
    What the most cost is told at the top right."""
    points = snapshot.curve
    if len(points) < 2:
        return []
    first, last = points[0][0], points[-1][0]
    most = max(cost for _, cost in points)
    tail = f" {most:.1f}{glyph.times} at {last}"
    room = width - len(tail)
    if room < 4:
        return []
    now = None
    if snapshot.step is not None:
        share = (len(snapshot.step.parents) - first) / (last - first)
        now = round(min(max(share, 0.0), 1.0) * (room - 1))
    lines = columns(_costs(points, room), rows, most, glyph, now=now)
    lines[0].append((tail, styles.LABEL))
    return lines


def _costs(points: Sequence[tuple[int, float]], n: int) -> list[float]:
    """The costs at `n` places at equal distances over the curve, on straight lines between its points."""
    costs = []
    first, last = points[0][0], points[-1][0]
    i = 1
    for place in range(n):
        x = first + (last - first) * place / (n - 1)
        while x > points[i][0] and i < len(points) - 1:
            i += 1
        (x0, cost0), (x1, cost1) = points[i - 1], points[i]
        costs.append(cost0 + (cost1 - cost0) * (x - x0) / (x1 - x0))
    return costs


def prompt(snapshot: Snapshot, width: int, glyph: Glyphs) -> list[Line]:
    """How long the prompt is, how much of it was read before, and how fast the rest was read."""
    if not snapshot.n_prompt:
        return []
    fresh = snapshot.n_prompt - snapshot.n_cached
    figures = str(snapshot.n_prompt)
    if snapshot.n_cached:
        figures += f" ({snapshot.n_cached} known)"
    if snapshot.prompt_seconds and fresh > 1:
        figures += f", {fresh / snapshot.prompt_seconds:.0f} tok/s"
    return [[("prompt ", styles.LABEL), (cut(figures, max(0, width - 7), glyph.dots), styles.VALUE)]]


def context(snapshot: Snapshot, width: int, glyph: Glyphs) -> list[Line]:
    """How full the context window is."""
    if not snapshot.n_ctx or not snapshot.n_used:
        return []
    line: Line = [("ctx ", styles.LABEL)]
    figure = f" {snapshot.n_used}/{snapshot.n_ctx}"
    share = snapshot.n_used / snapshot.n_ctx
    room = width - width_of(line) - len(figure)
    if room > 3:
        line += bar(share, room, glyph, styles.WARNING if share > 0.9 else styles.BAR, rest=True)
    return [[*line, (figure, styles.VALUE)]]
