"""What runs are worth by the steps that they made and what such steps cost, whatever the machine did meanwhile.

A run and the plain one that it is held against are seconds apart, and the pace of a shared machine changes within
seconds. The nodes that a run verified do not, nor does the share of its time that went into drafts: so the time of all
its steps at one pace, that of the steps timed between the runs, tells what its choices were worth.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.bench.bound import by_task
from localspec.bench.run import PLAIN, BenchResult, Run
from localspec.bench.step_costs import ALL
from localspec.bench.tables import task_table
from localspec.calibrate.curve import CostCurve

if TYPE_CHECKING:
    from rich.table import Table

#: a ratio below it counts as slower than plain
SLOWER = 0.97
LEGEND = (
    "By cost: x plain were the pace of the machine the same in all runs, by the nodes verified, the cost of such steps "
    f"as timed for the bound, and the share of drafts; slower: answers under {SLOWER:g} of plain by that."
)


@dataclass(frozen=True, slots=True)
class CostRow:
    """A method on a task: the median `ratio` to plain by cost, the `least` of an answer and the answers that were
    `slower` than plain, of `n_runs`. `bound` is what the best tree size brings, None when not known."""

    task: str
    method: str
    ratio: float
    least: float
    slower: int
    n_runs: int
    bound: float | None


def ratio_by_cost(run: Run, curve: CostCurve) -> float:
    """Tokens per plain step of `run`, drafts included, with steps that cost what `curve` says."""
    steps = sum(n_steps * curve.ratio(n_nodes) for n_nodes, n_steps in run.nodes.items())
    drafts = run.stats.propose_seconds / run.stats.seconds if run.stats.seconds else 0.0
    return run.stats.n_tokens * (1 - drafts) / steps if steps else float("nan")


def cost_rows(result: BenchResult) -> list[CostRow]:
    """A row for each method but plain on each task, then on all tasks; none where steps were not timed."""
    rows: list[CostRow] = []
    for task, runs in by_task(result.runs).items() if result.curves else ():
        if task == ALL and len({run.task for run in runs}) == 1:
            continue
        for method in dict.fromkeys(run.method for run in runs):
            mine = [ratio_by_cost(run, result.curves[run.task]) for run in runs if run.method == method and run.nodes]
            if method == PLAIN or not mine:
                continue
            bound = result.bounds.get((method, task))
            slower = sum(ratio < SLOWER for ratio in mine)
            ratio = statistics.median(mine)
            best = None if bound is None else bound.ratio
            rows.append(CostRow(task, method, ratio, min(mine), slower, len(mine), best))
    return rows


def cost_table(rows: Sequence[CostRow]) -> Table:
    """The rows for people."""
    table = task_table("by cost", "bound", "of it", "least", "slower")
    last = rows[0].task
    for row in rows:
        if row.task != last:
            table.add_section()
            last = row.task
        bound = ("", "") if row.bound is None else (f"{row.bound:.2f}", f"{row.ratio / row.bound:.0%}")
        slower = f"{row.slower}/{row.n_runs}"
        table.add_row(row.task, row.method, f"{row.ratio:.2f}", *bound, f"{row.least:.2f}", slower)
    return table
