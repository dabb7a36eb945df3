"""The rows of one sequence among those of a pass over several."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from localspec.engine.base import FloatArray, Rows


class PartRows:
    """`base.Rows`: `n` of `rows`, from row `at` on."""

    def __init__(self, rows: Rows, at: int, n: int) -> None:
        self._rows, self._at, self._n = rows, at, n

    def __len__(self) -> int:
        return self._n

    def argmax(self, i: int) -> int:
        return self._rows.argmax(self._at + i)

    def top_k(self, i: int, k: int) -> tuple[list[int], list[float]]:
        return self._rows.top_k(self._at + i, k)

    def logsumexp(self, i: int) -> float:
        return self._rows.logsumexp(self._at + i)

    def entropy(self, i: int) -> float:
        return self._rows.entropy(self._at + i)

    def logits(self, i: int) -> FloatArray:
        return self._rows.logits(self._at + i)

    def candidates(self, i: int, out: npt.NDArray[np.void]) -> None:
        self._rows.candidates(self._at + i, out)

    def hidden(self, i: int) -> FloatArray:
        return self._rows.hidden(self._at + i)

    def few_best(self) -> tuple[int, int] | None:
        """See `PatchedRows.few_best`; None where the rows have none."""
        few_best_of = getattr(self._rows, "few_best_of", None)
        found: tuple[int, int] | None = None if few_best_of is None else few_best_of(self._at, self._n)
        return found
