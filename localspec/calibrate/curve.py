"""What a step costs: the calibrated curve c(n) in seconds for n tree nodes.

Nothing here measures: `measure` fills a `CostCurve`, and `online` corrects it while decoding.
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
