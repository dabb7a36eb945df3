"""Which trees the steps had and what was accepted in them, against what the calibration expected, task by task."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.bench.run import Run
from localspec.bench.tables import task_table
from localspec.bench.usage import TreeUse, Usage

if TYPE_CHECKING:
    from rich.table import Table

LEGEND = (
    "Trees: nodes with the last token; share: of all steps, others are plain; accepted: drafts in such a step, as "
    "expected by the replay of the calibration and as measured; all: of the trees together."
)


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A tree of a method on a task, or all of its trees (`nodes` None). `share` is of all steps; `expected` and
    `measured` are the accepted drafts of a step that has the tree, None when not known or never used."""

    task: str
    method: str
    nodes: int | None
    share: float
    expected: float | None
    measured: float | None


@dataclass(frozen=True, slots=True)
class AskingRow:
    """The share of the steps with a draft at which a method asked the heads beside its other drafter."""

    task: str
    method: str
    share: float


@dataclass(frozen=True, slots=True)
class Picking:
    """Seconds that choosing and swapping a tree took: the median of the means of the runs, and the largest of all."""

    median_seconds: float
    largest_seconds: float


def _groups(runs: Sequence[Run]) -> list[tuple[str, str, list[tuple[Usage, int]]]]:
    """By task and method: the usage of each run that has one, and its steps."""
    groups: dict[tuple[str, str], list[tuple[Usage, int]]] = {}
    for run in runs:
        if run.usage is not None:
            groups.setdefault((run.task, run.method), []).append((run.usage, run.stats.n_steps))
    order = {task: i for i, task in enumerate(dict.fromkeys(run.task for run in runs))}
    return [(task, method, groups[task, method]) for task, method in sorted(groups, key=lambda key: order[key[0]])]


def tree_rows(runs: Sequence[Run]) -> list[TreeRow]:
    """A row for each tree of a method on a task, then one for all of them where there are several."""
    rows: list[TreeRow] = []
    for task, method, used in _groups(runs):
        steps = sum(n for _, n in used)
        by_tree = list(zip(*(usage.trees for usage, _ in used), strict=True))
        rows += [_row(task, method, uses[0].nodes, uses, steps, uses[0].expected) for uses in by_tree]
        if len(by_tree) > 1:
            uses = [use for uses in by_tree for use in uses]
            rows.append(_row(task, method, None, uses, steps, used[0][0].expected))
    return rows


def _row(
    task: str, method: str, nodes: int | None, uses: Sequence[TreeUse], n_steps: int, expected: float | None
) -> TreeRow:
    steps = sum(use.steps for use in uses)
    measured = sum(use.accepted for use in uses) / steps if steps else None
    return TreeRow(task, method, nodes, steps / n_steps if n_steps else 0.0, expected, measured)


def asking_rows(runs: Sequence[Run]) -> list[AskingRow]:
    """A row for each method that may ask the heads, on each task."""
    rows: list[AskingRow] = []
    for task, method, used in _groups(runs):
        drafted = sum(usage.n_drafted for usage, _ in used)
        if drafted:
            rows.append(AskingRow(task, method, sum(usage.n_asked for usage, _ in used) / drafted))
    return rows


def picking(runs: Sequence[Run]) -> Picking | None:
    """What choosing a tree took; None where none was chosen."""
    usages = [run.usage for run in runs if run.usage is not None and run.usage.n_picked]
    if not usages:
        return None
    means = [usage.pick_seconds / usage.n_picked for usage in usages]
    return Picking(statistics.median(means), max(usage.longest_pick for usage in usages))


def tree_table(rows: Sequence[TreeRow]) -> Table:
    """The rows for people; trees that no step had are left out."""
    table = task_table("tree", "share", "expected", "measured")
    last = rows[0].task
    for row in rows:
        if row.task != last:
            table.add_section()
            last = row.task
        if row.measured is None and row.nodes is not None:
            continue
        accepted = ["-" if value is None else f"{value:.2f}" for value in (row.expected, row.measured)]
        tree = "all" if row.nodes is None else str(row.nodes)
        table.add_row(row.task, row.method, tree, f"{row.share:.1%}", *accepted)
    return table


def footnotes(runs: Sequence[Run]) -> list[str]:
    """What there is to say beside the table."""
    lines: list[str] = []
    for method in dict.fromkeys(row.method for row in asking_rows(runs)):
        shares = ", ".join(f"{row.task} {row.share:.0%}" for row in asking_rows(runs) if row.method == method)
        lines.append(f"{method} asked the heads at these shares of the steps with a draft: {shares}")
    picked = picking(runs)
    if picked is not None:
        lines.append(
            f"choosing and swapping a tree: {picked.median_seconds * 1e6:.1f} us "
            f"(largest {picked.largest_seconds * 1e6:.0f} us)"
        )
    return lines
