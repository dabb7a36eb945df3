"""What a step costs while decoding: the calibrated curve, corrected by measured steps.

Nothing here measures; the governor feeds step times to an `OnlineCost`.
"""

from __future__ import annotations

import math
from statistics import median
from typing import Protocol

from localspec.calibrate.curve import CostCurve
from localspec.calibrate.hiccups import CLIP, CLIP_WIDE, SCATTER, Hiccups

#: cost of a further node, in plain steps, assumed before anything is known
DEFAULT_SLOPE = 0.75
MIN_SLOPE = 0.01
#: tree steps that deviate in a row until that is a change, where no plain step tells: in company there is none
_TREES_IN_A_ROW = 8


def _line(slope: float, max_nodes: int) -> list[float]:
    return [1 + slope * more for more in range(max_nodes)]


class Cost(Protocol):
    """What a step costs, in plain steps, as the governor sees it.

    `relative[n - 1]` is for n nodes: another list after every change. `plain_known` tells whether this generation
    measured plain steps, which are `n_plain`, and `doubtful` that one more would tell whether trees became dearer or
    the machine slow. `n_texts` is how many texts are written in the same passes, `in_company` that there are several.
    """

    @property
    def relative(self) -> list[float]: ...

    @property
    def plain_seconds(self) -> float | None: ...

    @property
    def plain_known(self) -> bool: ...

    @property
    def n_plain(self) -> int: ...

    @property
    def doubtful(self) -> bool: ...

    @property
    def n_tree_steps(self) -> int: ...

    @property
    def in_company(self) -> bool: ...

    @property
    def n_texts(self) -> int: ...

    def start(self) -> None: ...

    def observe(self, n: int, seconds: float) -> float: ...


class OnlineCost:
    """The cost of a step relative to a plain one, kept true by measured steps.

    The shape comes from `curve`; without one it is a line, cautious at first, whose slope is learned. `plain_seconds`
    follows the plain steps, as it grows with the context; what larger steps deviate from the shape is learned as a
    factor that nearby sizes share. What deviates by more than steps scatter is believed, and counted, only when it is
    no hiccup of the machine: a plain step between two tree steps that deviate tells (see `Hiccups`).

    Plain lists: NumPy's calls on arrays this short, once a step and out of the caches by then, took twice as long.
    """

    in_company = False
    n_texts = 1

    #: a tree step that takes less than this share of a plain one says that the plain one is out of date
    _FASTER = 0.95
    #: when so many in a row do; a single one is scatter
    _N_FASTER = 3
    #: plain steps that doubtful ones may take, beyond what is believed, until a plain step has to tell
    _MOST_HELD = 1.5
    _RATE = 0.2
    #: share of a learned deviation that is left after a step, so that a size once found dear is tried again
    _MEMORY = 0.998
    #: steps whose forgetting is done at once: this bookkeeping must not show
    _FORGET_EVERY = 16

    def __init__(self, curve: CostCurve | None, max_nodes: int) -> None:
        sizes = range(1, max_nodes + 1)
        self._slope = None if curve else DEFAULT_SLOPE
        self._shape = [curve.ratio(n) for n in sizes] if curve else _line(DEFAULT_SLOPE, max_nodes)
        self.plain_seconds: float | None = curve.cost(1) if curve else None
        self.n_tree_steps = 0
        self._log_factor = [0.0] * max_nodes
        #: entry n - 1: which part of a deviation at n nodes its neighbours share, and the index of the first of them
        self._shares: list[tuple[int, list[float]] | None] = [None] * max_nodes
        self._n_plain, self._n_needed = 0, 1
        self._learned = False
        self._n_unforgotten = 0
        self._plain_hiccups, self._tree_hiccups = Hiccups(), Hiccups(_TREES_IN_A_ROW)
        #: plain steps not yet counted that doubtful steps took
        self._held = 0.0
        #: plain step by each of the last tree steps that were faster than a plain one
        self._faster: list[float] = []
        #: entry n - 1: cost of n nodes in plain steps; another list after every change
        self.relative = self._shape

    def start(self) -> None:
        """A new generation: another context length, so the plain step has to be measured anew."""
        self._n_plain, self._n_needed = 0, 1
        self._faster = []
        self._plain_hiccups.dismiss()
        self._dismiss()

    @property
    def plain_known(self) -> bool:
        """Whether this generation measured plain steps: one that was as expected, or two."""
        return self._n_plain >= self._n_needed

    @property
    def n_plain(self) -> int:
        """Plain steps that this generation measured."""
        return self._n_plain

    @property
    def doubtful(self) -> bool:
        """Whether a plain step would tell if trees became dearer, or the machine slow."""
        trees = self._tree_hiccups
        return not trees.believed and not trees.vouched and (trees.n_in_a_row > 1 or self._held > self._MOST_HELD)

    def observe(self, n: int, seconds: float) -> float:
        """A step with `n` nodes took `seconds`; returns its cost in plain steps, freed of a hiccup."""
        if seconds <= 0:
            return self.relative[n - 1]
        if self.plain_seconds is None:
            self.plain_seconds = seconds / self.relative[n - 1]
        elif n > 1:
            self.plain_seconds = self._checked(self.plain_seconds, n, seconds)
        off = math.log(seconds / (self.plain_seconds * self.relative[n - 1]))
        if n == 1:
            self._observe_plain(off)
            cost = 1.0
        else:
            off, cost = self._counted(n, off)
            self.n_tree_steps += 1
        self._n_unforgotten += self._learned
        if self._n_unforgotten >= self._FORGET_EVERY:
            self._forget()
        if n > 1:
            self._learn(n, off)
            if self._slope is not None:
                self._learn_slope(self._slope, (cost - 1) / (n - 1))
        return cost

    def _checked(self, plain: float, n: int, seconds: float) -> float:
        """Seconds of a plain step after a tree step. More nodes never cost less: where several steps in a row took less
        than a plain one, that was measured in a slow moment, as after a long prompt."""
        if seconds >= self._FASTER * plain:
            self._faster = []
            return plain
        self._faster.append(seconds / self.relative[n - 1])
        if len(self._faster) < self._N_FASTER:
            return plain
        faster, self._faster = self._faster, []
        return median(faster)

    def _counted(self, n: int, off: float) -> tuple[float, float]:
        """The part of a log deviation of `n` nodes to learn from, and what the step cost in plain ones. What doubtful
        steps took beyond it is counted when others confirm it."""
        believed = self._tree_hiccups.freed(off)
        cost = self.relative[n - 1] * math.exp(believed)
        if not self._tree_hiccups.believed:
            self._held += self.relative[n - 1] * math.exp(min(off, CLIP_WIDE)) - cost
            return believed, cost
        if abs(believed) > SCATTER:  # a change, not the end of a hiccup
            cost += self._held
        self._held = 0.0
        return believed, cost

    def _dismiss(self) -> None:
        """The last tree steps may have been hiccups, and will not be counted."""
        self._tree_hiccups.dismiss()
        self._held = 0.0

    def _forget(self) -> None:
        left = self._MEMORY**self._n_unforgotten
        self._n_unforgotten = 0
        self._log_factor = [left * factor for factor in self._log_factor]
        self.relative = self._product(0, len(self._shape))

    def _learn(self, n: int, off: float) -> None:
        """Let the sizes near `n` share a log deviation: fully at n, not at all at 2.8 times as many or few."""
        first, shares = self._shares[n - 1] or self._share(n)
        end = first + len(shares)
        step = (self._RATE if abs(off) <= CLIP else 2 * self._RATE) * off
        near = self._log_factor[first:end]
        self._log_factor[first:end] = [factor + step * share for factor, share in zip(near, shares, strict=True)]
        self._learned = True
        relative = self.relative.copy()
        relative[first:end] = self._product(first, end)
        self.relative = relative

    def _share(self, n: int) -> tuple[int, list[float]]:
        """Fill an entry of `_shares`. Plain steps are the unit, so they take no share."""
        shares = {size: 1 - abs(math.log2(size / n)) / 1.5 for size in range(2, len(self._shape) + 1)}
        near = {size: share for size, share in shares.items() if share > 0}
        entry = self._shares[n - 1] = (min(near) - 1, list(near.values()))
        return entry

    def _learn_slope(self, known: float, seen: float) -> None:
        self._slope = known + self._RATE * (min(max(seen, known / 4), 2 * known) - known)
        self._shape = _line(max(self._slope, MIN_SLOPE), len(self._shape))
        self.relative = self._product(0, len(self._shape))

    def _product(self, first: int, end: int) -> list[float]:
        pairs = zip(self._shape[first:end], self._log_factor[first:end], strict=True)
        return [shape * math.exp(factor) for shape, factor in pairs]

    def _observe_plain(self, off: float) -> None:
        assert self.plain_seconds is not None
        if self._n_plain == 0:
            # This context length may be far from what was measured before, or this was a hiccup: look again.
            self._n_needed = 1 if abs(off) < SCATTER else 2
            rate, off = 1.0, min(max(off, -CLIP_WIDE), CLIP_WIDE)
        elif self._n_plain == 1 and off < 0:
            rate = 1.0
        else:
            rate, off = max(self._RATE, 1 / (1 + self._n_plain)), self._plain_hiccups.freed(off)
            if self._plain_hiccups.believed:  # the machine is as it was, so trees that deviate have changed
                self._tree_hiccups.vouch()
            else:
                self._dismiss()
        self.plain_seconds *= math.exp(rate * off)
        self._n_plain += 1
