"""What a method could bring at best with trees of one fixed size: tokens per step by replay, over the cost of a step.

A bound of this kind explains a measured ratio. A governor that changes the size from step to step can exceed it; what
falls short is lost to drafting, to the governor's caution, or to steps dearer than the cost curve says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Protocol, TypeVar

from localspec.bench.step_costs import ALL, Curves
from localspec.methods.ptd.native import Corpus
from localspec.methods.registry import make_drafter
from localspec.replay.log import LoggedAnswer
from localspec.replay.replay import replay

#: methods that the rows of a log suffice for; ptd also learns from rejected drafts, so it does a little better in a run
REPLAYABLE = ("auto", "ptd", "ptd-chain", "lookup")
SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


class _Answer(Protocol):
    @property
    def task(self) -> str: ...


AnswerT = TypeVar("AnswerT", bound=_Answer)


@dataclass(frozen=True, slots=True)
class Bound:
    """The best size: `tokens_per_step` with trees of `nodes` nodes, which are `ratio` times as fast as plain.

    Medians over answers, as the measured ratios are.
    """

    nodes: int
    tokens_per_step: float
    ratio: float


def by_task(answers: Iterable[AnswerT]) -> dict[str, list[AnswerT]]:
    """The answers of each task, and of `ALL`."""
    groups: dict[str, list[AnswerT]] = {}
    for answer in answers:
        groups.setdefault(answer.task, []).append(answer)
    return {**groups, ALL: [answer for group in groups.values() for answer in group]}


def bounds(
    answers: Sequence[LoggedAnswer], methods: Sequence[str], curves: Curves, corpus: Corpus | None = None
) -> dict[tuple[str, str], Bound]:
    """The bound of each replayable method on each task, and on all answers as task `ALL`."""
    found: dict[tuple[str, str], Bound] = {}
    for method in methods:
        if method not in REPLAYABLE:
            continue
        # tokens per step of each answer, by size
        yields: dict[str, list[list[float]]] = {}
        for answer in answers:
            made = replay([answer], partial(make_drafter, method, corpus=corpus), SIZES)
            yields.setdefault(answer.task, []).append([count.tokens_per_step for count in made[answer.task]])
        everything = [row for rows in yields.values() for row in rows]
        for task, rows in {**yields, ALL: everything}.items():
            curve = curves[task]
            medians = [median(column) for column in zip(*rows, strict=True)]
            ratios = [tokens / curve.ratio(size) for size, tokens in zip(SIZES, medians, strict=True)]
            best = max(range(len(SIZES)), key=ratios.__getitem__)
            found[method, task] = Bound(SIZES[best], medians[best], ratios[best])
    return found
