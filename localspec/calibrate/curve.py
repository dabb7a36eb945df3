"""What a step costs: the calibrated curve c(n) in seconds for n tree nodes, and its correction while decoding.

Nothing here measures; `calibrate` fills a `CostCurve`, and the governor feeds step times to an `OnlineCost`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from localspec.errors import UsageError

Floats = npt.NDArray[np.float64]

#: cost of a further node, in plain steps, assumed before anything is known
DEFAULT_SLOPE = 0.75
MIN_SLOPE = 0.01


def _isotonic(values: Sequence[float]) -> list[float]:
    """The non-decreasing sequence closest to `values` (pool adjacent violators): noise must not invert the curve."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        block = (value, 1)
        while blocks and blocks[-1][0] > block[0]:
            mean, count = blocks.pop()
            total = count + block[1]
            block = ((mean * count + block[0] * block[1]) / total, total)
        blocks.append(block)
    return [mean for mean, count in blocks for _ in range(count)]


def _line(slope: float, max_nodes: int) -> list[float]:
    return [1 + slope * more for more in range(max_nodes)]


@dataclass(frozen=True)
class CostCurve:
    """Measured seconds of a step with `n[i]` nodes.

    `n` increases strictly from 1 and has two or more entries; `seconds` are positive. Raises `UsageError` otherwise.
    """

    n: tuple[int, ...]
    seconds: tuple[float, ...]
    model: str | None = None
    device: str | None = None
    threads: str | None = None
    build: str | None = None
    date: str | None = None

    def __post_init__(self) -> None:
        if len(self.n) != len(self.seconds) or len(self.n) < 2:
            raise UsageError(f"a cost curve has two or more points, not {len(self.n)} sizes, {len(self.seconds)} times")
        if self.n[0] != 1 or any(a >= b for a, b in pairwise(self.n)):
            raise UsageError(f"the sizes of a cost curve increase from 1, unlike {list(self.n)}")
        if not all(math.isfinite(s) and s > 0 for s in self.seconds):
            raise UsageError("the times of a cost curve are positive seconds")

    @cached_property
    def _fit(self) -> Floats:
        return np.array(_isotonic(self.seconds), dtype=np.float64)

    def cost(self, n: int) -> float:
        """Seconds of a step with `n` >= 1 nodes; never less for more nodes.

        Linear between the points; beyond the last one by the last slope, or the mean slope where that is steeper.
        """
        fit, last = self._fit, self.n[-1]
        if n <= last:
            return float(np.interp(n, self.n, fit))
        slope = max((fit[-1] - fit[-2]) / (last - self.n[-2]), (fit[-1] - fit[0]) / (last - 1))
        return float(fit[-1] + slope * (n - last))

    def ratio(self, n: int) -> float:
        """Cost of `n` nodes in plain steps."""
        return self.cost(n) / self.cost(1)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, read back by `from_dict`."""
        return {**asdict(self), "n": list(self.n), "seconds": list(self.seconds)}

    @classmethod
    def from_dict(cls, data: object) -> CostCurve:
        """Rebuild a curve from `to_dict` data; unknown keys are ignored. Raises `UsageError` for anything else."""
        if not isinstance(data, Mapping):
            raise UsageError(f"a cost curve is an object, not {type(data).__name__}", "calibrate again")
        numbers: dict[str, list[Any]] = {}
        for key, kind in (("n", int), ("seconds", (int, float))):
            values = data.get(key)
            if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, kind) for v in values):
                raise UsageError(f"a cost curve needs {key!r} as a list of numbers", "calibrate again")
            numbers[key] = values
        texts = {key: data.get(key) for key in ("model", "device", "threads", "build", "date")}
        for key, text in texts.items():
            if text is not None and not isinstance(text, str):
                raise UsageError(f"{key!r} of a cost curve is a string, not {text!r}", "calibrate again")
        return cls(tuple(numbers["n"]), tuple(map(float, numbers["seconds"])), **texts)


class Cost(Protocol):
    """What a step costs, in plain steps, as the governor sees it. `relative[n - 1]` is for n nodes: another list after
    every change. `plain_known` tells whether this generation measured plain steps; `in_company` that other texts are
    written in the same passes."""

    @property
    def relative(self) -> list[float]: ...

    @property
    def plain_seconds(self) -> float | None: ...

    @property
    def plain_known(self) -> bool: ...

    @property
    def n_tree_steps(self) -> int: ...

    @property
    def in_company(self) -> bool: ...

    def start(self) -> None: ...

    def observe(self, n: int, seconds: float) -> float: ...


class OnlineCost:
    """The cost of a step relative to a plain one, kept true by measured steps.

    The shape comes from `curve`; without one it is a line, cautious at first, whose slope is learned. `plain_seconds`
    follows the plain steps, as it grows with the context; what larger steps deviate from the shape is learned as a
    factor that nearby sizes share. A large deviation counts fully only when the next measurement confirms it: a hiccup
    of the machine is harmless.

    Plain lists: NumPy's calls on arrays this short, once a step and out of the caches by then, took twice as long.
    """

    in_company = False

    _CLOSE = math.log(1.3)
    #: a tree step that takes less than this share of a plain one says that the plain one is out of date
    _FASTER = 0.95
    _CLIP = math.log(2.0)
    _CLIP_WIDE = math.log(8.0)
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
        self._last_off = [0.0, 0.0]
        #: entry n - 1: cost of n nodes in plain steps; another list after every change
        self.relative = self._shape

    def start(self) -> None:
        """A new generation: another context length, so the plain step has to be measured anew."""
        self._n_plain, self._n_needed = 0, 1

    @property
    def plain_known(self) -> bool:
        """Whether this generation measured plain steps: one that was as expected, or two."""
        return self._n_plain >= self._n_needed

    def observe(self, n: int, seconds: float) -> float:
        """A step with `n` nodes took `seconds`; returns its cost in plain steps, freed of a hiccup."""
        if seconds <= 0:
            return self.relative[n - 1]
        if self.plain_seconds is None or (n > 1 and seconds < self._FASTER * self.plain_seconds):
            # More nodes never cost less: the plain step was measured in a slow moment, as after a long prompt.
            self.plain_seconds = seconds / self.relative[n - 1]
        off = math.log(seconds / (self.plain_seconds * self.relative[n - 1]))
        if n == 1:
            self._observe_plain(off)
            cost = 1.0
        else:
            off = self._credible(off, 1)
            cost = self.relative[n - 1] * math.exp(off)
            self.n_tree_steps += 1
        self._n_unforgotten += self._learned
        if self._n_unforgotten >= self._FORGET_EVERY:
            self._forget()
        if n > 1:
            self._learn(n, off)
            if self._slope is not None:
                self._learn_slope(self._slope, (cost - 1) / (n - 1))
        return cost

    def _forget(self) -> None:
        left = self._MEMORY**self._n_unforgotten
        self._n_unforgotten = 0
        self._log_factor = [left * factor for factor in self._log_factor]
        self.relative = self._product(0, len(self._shape))

    def _learn(self, n: int, off: float) -> None:
        """Let the sizes near `n` share a log deviation: fully at n, not at all at 2.8 times as many or few."""
        first, shares = self._shares[n - 1] or self._share(n)
        end = first + len(shares)
        step = (self._RATE if abs(off) <= self._CLIP else 2 * self._RATE) * off
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
            self._n_needed = 1 if abs(off) < self._CLOSE else 2
            rate, off = 1.0, min(max(off, -self._CLIP_WIDE), self._CLIP_WIDE)
        elif self._n_plain == 1 and off < 0:
            rate = 1.0
        else:
            rate, off = max(self._RATE, 1 / (1 + self._n_plain)), self._credible(off, 0)
        self.plain_seconds *= math.exp(rate * off)
        self._n_plain += 1

    def _credible(self, off: float, kind: int) -> float:
        """A log deviation, limited to a factor of two unless the last one of its kind (0 plain, 1 tree) agrees."""
        last, self._last_off[kind] = self._last_off[kind], off
        limit = max(self._CLIP, min(abs(last), self._CLIP_WIDE) if last * off > 0 else 0)
        return min(max(off, -limit), limit)
