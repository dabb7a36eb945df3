"""What a method could bring at best with trees of one fixed size: tokens per step by replay, over the cost of a step.

A bound of this kind explains a measured ratio. A governor that changes the size from step to step can exceed it; what
falls short is lost to drafting, to the governor's caution, or to steps dearer than the cost curve says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from localspec.calibrate.curve import CostCurve
from localspec.methods.registry import make_drafter
from localspec.replay.log import LoggedAnswer
from localspec.replay.replay import replay

#: methods that the rows of a log suffice for; ptd also learns from rejected drafts, so it does a little better in a run
REPLAYABLE = ("auto", "ptd", "ptd-chain", "lookup")
SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


@dataclass(frozen=True, slots=True)
class Bound:
    """The best size: `tokens_per_step` with trees of `nodes` nodes, which are `ratio` times as fast as plain."""

    nodes: int
    tokens_per_step: float
    ratio: float


def bounds(answers: Sequence[LoggedAnswer], methods: Sequence[str], curve: CostCurve) -> dict[tuple[str, str], Bound]:
    """The bound of each replayable method on each task, and on all answers as task "all"."""
    found: dict[tuple[str, str], Bound] = {}
    for method in methods:
        if method not in REPLAYABLE:
            continue
        totals: Mapping[str, Sequence[tuple[int, int]]] = {
            task: [(count.tokens, count.steps) for count in counts]
            for task, counts in replay(answers, partial(make_drafter, method), SIZES).items()
        }
        everything = [tuple(map(sum, zip(*column, strict=True))) for column in zip(*totals.values(), strict=True)]
        for task, counts in {**totals, "all": everything}.items():
            rates = [tokens / steps / curve.ratio(size) for size, (tokens, steps) in zip(SIZES, counts, strict=True)]
            best = max(range(len(SIZES)), key=rates.__getitem__)
            tokens, steps = counts[best]
            found[method, task] = Bound(SIZES[best], tokens / steps, rates[best])
    return found
