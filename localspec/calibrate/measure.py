"""Measures the step-cost curve: the time of one forward pass over a tree of n nodes, on this machine with this model.

A step is timed as the decoding loop performs it: a chain-shaped tree is decoded behind a short text and the best token
of every row is read (which also waits for an asynchronous device). Sizes are interleaved, so that a busy moment of the
machine touches all of them alike, and the medians are taken.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.calibrate.curve import CostCurve
from localspec.engine.base import TreeContext
from localspec.tree import Topology

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
N_CONTEXT = 64
MIN_REPEATS, MAX_REPEATS = 2, 5
#: largest ratio of the quartiles of the plain step that still counts as a quiet machine
MAX_SPREAD = 1.6
#: what a model reads before its steps are timed
CALIBRATION_TEXT = (
    "The harbour was quiet in the morning. A few boats lay at the pier, and the first of the fishermen were carrying "
    "their nets ashore. def area(width, height): return width * height. There were 24 crates of herring, 12 of cod and "
    "3 of eel; by noon all of them would be sold. Nobody had seen the old captain since Tuesday, although his lamp was "
    "lit every night at nine. What was he waiting for? The children said that he was writing a letter to the sea."
)
#: called with the share of the work that is done, 0 to 1
Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """A curve, and whether it can be relied on: enough repeats, on a machine that was not busy with something else."""

    curve: CostCurve
    reliable: bool


def measure(
    ctx: TreeContext,
    *,
    tokens: Sequence[int] | None = None,
    sizes: Sequence[int] = SIZES,
    n_context: int = N_CONTEXT,
    budget_seconds: float = 10.0,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Measurement | None:
    """Time trees of `sizes` nodes (those the context can hold) on sequence 0, behind `n_context` tokens or half of what
    the context holds.

    None when the context cannot hold trees, so that there is nothing to choose. `tokens` is text to decode, at least a
    few ids; ids spread over the vocabulary serve when there is none. Sequence 0 is emptied before and after. Larger
    sizes are left out when the time does not suffice for them; the first two never are.
    """
    n_context = min(n_context, max(1, ctx.n_ctx // 2))
    room = min(ctx.max_nodes, ctx.n_ctx - n_context)
    if room < 2:
        return None
    text = _text(tokens, ctx.n_vocab, n_context + max(SIZES))
    timer = StepTimer(ctx, text, n_context, clock)
    start = clock()

    def report() -> None:
        if progress is not None:
            progress(min(1.0, (clock() - start) / budget_seconds))

    ctx.drop()
    ctx.trim(0)
    try:
        ctx.prefill(timer.text[:n_context])
        seconds = _first_pass(timer, [size for size in sizes if size <= room], start + budget_seconds, report)
        _repeat(timer, seconds, start + budget_seconds, report)
    finally:
        ctx.drop()
        ctx.trim(0)
    if progress is not None:
        progress(1.0)
    return _evaluate(seconds)


def _evaluate(seconds: dict[int, list[float]]) -> Measurement:
    # the first run of a size builds its graph: it counts only when there was no time for another
    medians = tuple(statistics.median(values[1:] or values) for values in seconds.values())
    enough = min(map(len, seconds.values())) > MIN_REPEATS
    plain = sorted(seconds[1][1:] or seconds[1])
    steady = plain[(3 * len(plain)) // 4] <= MAX_SPREAD * plain[len(plain) // 4]
    return Measurement(CostCurve(tuple(seconds), medians), enough and steady)


def _text(tokens: Sequence[int] | None, n_vocab: int, need: int) -> list[int]:
    if tokens:
        return (list(tokens) * (need // len(tokens) + 1))[:need]
    return [int(token) for token in np.random.default_rng(0).integers(0, n_vocab, need)]


class StepTimer:
    """Times one step over `n` nodes on sequence 0; the chain is the same afterwards.

    `text` is what the chain holds, its first `n_context` tokens, and what the nodes are taken from, the rest.
    """

    def __init__(
        self, ctx: TreeContext, text: list[int], n_context: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.ctx, self.text, self.n_context, self.clock = ctx, text, n_context, clock

    def __call__(self, n: int) -> float:
        tokens = np.array(self.text[self.n_context : self.n_context + n], dtype=np.int32)
        parents = Topology.chain(n).parent_array
        start = self.clock()
        rows = self.ctx.decode(tokens, parents)
        for i in range(n):
            rows.argmax(i)
        seconds = self.clock() - start
        self.ctx.drop()
        return seconds


def _first_pass(
    timer: StepTimer, sizes: Sequence[int], deadline: float, report: Callable[[], None]
) -> dict[int, list[float]]:
    """One run of each size, ascending, as long as two more of every size begun would fit as well."""
    seconds: dict[int, list[float]] = {}
    for size in sizes:
        if len(seconds) > 1:
            last = next(reversed(seconds))
            expected = seconds[last][-1] * size / last
            rounds = sum(values[-1] for values in seconds.values()) + expected
            if timer.clock() + expected + 2 * rounds > deadline:
                break
        seconds[size] = [timer(size)]
        report()
    return seconds


def _repeat(timer: StepTimer, seconds: dict[int, list[float]], deadline: float, report: Callable[[], None]) -> None:
    """Interleaved rounds over all sizes until the time or the number of repeats is used up.

    Rounds go down and up again: after a large step some CPUs need tens of milliseconds to get back to their pace, which
    made single steps look twice as dear where each round began anew after the largest size.
    """
    sizes = list(seconds)
    for _ in range(MAX_REPEATS):
        sizes.reverse()
        for size in sizes:
            values = seconds[size]
            if timer.clock() + min(values) <= deadline:
                values.append(timer(size))
                report()
