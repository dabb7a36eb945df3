"""What a step costs in the texts of a bench, timed between its runs.

Where a machine is shared its pace changes within minutes, for wide steps more than for single ones. So a curve that is
timed after a bench explains nothing about it: the steps have to be timed where the runs are.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from localspec.calibrate.curve import CostCurve
from localspec.calibrate.measure import measure
from localspec.engine.base import TreeContext
from localspec.replay.log import LoggedAnswer

#: the task that all answers are together
ALL = "all"
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
#: time that one text may take, in plain steps; larger sizes are left out where it does not suffice
BUDGET_STEPS = 200
#: by task, and for `ALL`
Curves = Mapping[str, CostCurve]


class StepCosts:
    """Collects the cost of steps in the middle of answers. `fallback` is a curve of the model: it tells how long a step
    takes about, and stands in where a context holds no trees."""

    def __init__(self, fallback: CostCurve) -> None:
        self._fallback = fallback
        self._by_task: dict[str, list[CostCurve]] = {}
        #: answers in which steps were timed, and those of them where the machine was too busy to rely on it
        self.n_timed = self.n_unsteady = 0

    def time(self, ctx: TreeContext, answer: LoggedAnswer) -> None:
        """Time steps in this answer: attention makes nodes dearer in longer texts. Empties sequence 0."""
        measured = measure(
            ctx,
            tokens=[*answer.prompt, *answer.tokens],
            sizes=SIZES,
            n_context=len(answer.prompt) + len(answer.tokens) // 2,
            budget_seconds=BUDGET_STEPS * self._fallback.cost(1),
        )
        if measured is not None:
            self._by_task.setdefault(answer.task, []).append(measured.curve)
            self.n_timed += 1
            self.n_unsteady += not measured.reliable

    def curves(self, tasks: Mapping[str, object]) -> dict[str, CostCurve]:
        """The curve of each of `tasks` and of `ALL`."""
        everything = [curve for group in self._by_task.values() for curve in group]
        groups = {task: self._by_task.get(task, []) for task in tasks} | {ALL: everything}
        return {task: typical(group) if group else self._fallback for task, group in groups.items()}


def typical(curves: list[CostCurve]) -> CostCurve:
    """The median pace of `curves`, and at each size the median of what a step costs in plain ones. Sizes are those that
    all of them have."""
    sizes = sorted(set.intersection(*(set(curve.n) for curve in curves)))
    plain = median(curve.cost(1) for curve in curves)
    return CostCurve(tuple(sizes), tuple(plain * median(curve.ratio(n) for curve in curves) for n in sizes))
