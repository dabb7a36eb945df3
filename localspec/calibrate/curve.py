"""What a step costs: the calibrated curve c(n) in seconds for n tree nodes, and its correction while decoding.

Nothing here measures; `calibrate` fills a `CostCurve`, and the governor feeds step times to an `OnlineCost`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

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


class OnlineCost:
    """The cost of a step relative to a plain one, kept true by measured steps.

    The shape comes from `curve`; without one it is a line, cautious at first, whose slope is learned. `plain_seconds`
    follows the plain steps, as it grows with the context; what larger steps deviate from the shape is learned as a
    factor that nearby sizes share. A large deviation counts fully only when the next measurement confirms it: a hiccup
    of the machine is harmless.
    """

    _CLOSE = math.log(1.3)
    _CLIP = math.log(2.0)
    _CLIP_WIDE = math.log(8.0)
    _RATE = 0.2
    #: share of a learned deviation that is left after a step, so that a size once found dear is tried again
    _MEMORY = 0.998
    #: plain steps whose forgetting is done at once: they are the ones where this bookkeeping must not show
    _FORGET_EVERY = 16

    def __init__(self, curve: CostCurve | None, max_nodes: int) -> None:
        sizes = np.arange(1, max_nodes + 1, dtype=np.float64)
        self._slope = None if curve else DEFAULT_SLOPE
        shape = [curve.ratio(n) for n in range(1, max_nodes + 1)] if curve else 1 + DEFAULT_SLOPE * (sizes - 1)
        self.plain_seconds: float | None = curve.cost(1) if curve else None
        self.n_tree_steps = 0
        self._shape: Floats = np.asarray(shape, dtype=np.float64)
        self._log_factor: Floats = np.zeros(max_nodes)
        self._more: Floats = sizes - 1
        self._log_sizes: Floats = np.log2(sizes)
        self._n_plain, self._n_needed = 0, 1
        self._learned = False
        self._n_unforgotten = 0
        self._last_off = [0.0, 0.0]
        #: entry n - 1: cost of n nodes in plain steps, float64 [max_nodes]
        self.relative: Floats = self._shape

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
            return float(self.relative[n - 1])
        if self.plain_seconds is None:
            self.plain_seconds = seconds / float(self.relative[n - 1])
        off = math.log(seconds / (self.plain_seconds * self.relative[n - 1]))
        if n == 1:
            self._observe_plain(off)
            cost = 1.0
        else:
            off = self._credible(off, 1)
            cost = float(self.relative[n - 1]) * math.exp(off)
            self.n_tree_steps += 1
        self._n_unforgotten += 1
        if n > 1 or (self._learned and self._n_unforgotten >= self._FORGET_EVERY):
            self._learn(n, off, cost)
        return cost

    def _learn(self, n: int, off: float, cost: float) -> None:
        self._log_factor = self._MEMORY**self._n_unforgotten * self._log_factor
        self._n_unforgotten = 0
        if n > 1:
            near = 1 - np.abs(self._log_sizes - self._log_sizes[n - 1]) / 1.5
            rate = self._RATE if abs(off) <= self._CLIP else 2 * self._RATE
            self._log_factor += rate * off * np.maximum(near, 0)
            self._log_factor[0] = 0
            self._learned = True
            if self._slope is not None:
                slope = min(max((cost - 1) / (n - 1), self._slope / 4), 2 * self._slope)
                self._slope += self._RATE * (slope - self._slope)
                self._shape = 1 + max(self._slope, MIN_SLOPE) * self._more
        self.relative = self._shape * np.exp(self._log_factor)

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
