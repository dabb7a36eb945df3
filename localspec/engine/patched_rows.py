"""Rows of the patched library: read where the graph left them, reduced by native code, one at a time, on demand."""

from __future__ import annotations

from ctypes import addressof, c_float, c_int32, string_at
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from localspec.engine import bindings
from localspec.engine.base import MAX_TOP_K, FloatArray
from localspec.errors import EngineError, UsageError

if TYPE_CHECKING:
    from localspec.engine.patched import PatchedContext

#: candidates of a row that are found together
FEW = 4


class Scratch:
    """Buffers of the row statistics, made once a context: they are used in every step."""

    def __init__(self) -> None:
        #: the few best of each row, [MAX_NODES][FEW]
        self.few_ids = (c_int32 * (bindings.MAX_NODES * FEW))()
        self.few_logits = (c_float * (bindings.MAX_NODES * FEW))()
        self.few_ids_address, self.few_logits_address = addressof(self.few_ids), addressof(self.few_logits)
        self.rows = (c_int32 * bindings.MAX_NODES)(*range(bindings.MAX_NODES))
        self.ids = (c_int32 * MAX_TOP_K)()
        self.logits = (c_float * MAX_TOP_K)()
        self.sums = (c_float * 2)()
        #: numbers from 0 on: those of neighbouring rows begin at the first of them
        self.rows_address = addressof(self.rows)
        self.ids_address = addressof(self.ids)
        self.logits_address = addressof(self.logits)
        self.sums_address = addressof(self.sums)


class PatchedRows:
    """Rows of the last `decode`; see `base.Rows`. Reductions run in native code, one row at a time, on demand."""

    def __init__(self, context: PatchedContext, n: int) -> None:
        self._context = context
        self._n = n
        self._generation = context.generation
        self._sums: dict[int, tuple[float, float]] = {}
        #: rows whose few best are in the context's buffers
        self._known: set[int] = set()

    def __len__(self) -> int:
        return self._n

    def _check(self, i: int) -> None:
        if self._generation != self._context.generation:
            raise EngineError("these rows belong to an earlier decode", "copy what is needed before the next one")
        if not 0 <= i < self._n:
            raise EngineError(f"row {i} of {self._n} does not exist")

    def _stats(
        self, i: int, k: int, ids: int, logits: int, lse: int | None = None, entropy: int | None = None, n: int = 1
    ) -> None:
        """Write statistics of `n` rows from `i` on to these addresses."""
        self._check(i)
        self._check(i + n - 1)
        context = self._context
        rows = context.scratch.rows_address + 4 * i
        start = perf_counter()
        status = context.lib.llama_tree_stats(context.ctx, n, rows, k, ids, logits, lse, entropy)
        context.native_seconds += perf_counter() - start
        if status != bindings.OK:
            raise EngineError(f"row {i} has no logits")

    def _find_few(self, i: int) -> None:
        """Have the few best of row `i` in the buffers. One pass over the row finds them as fast as the best alone, and
        a drafter often looks at the rows whose best token was emitted."""
        if i in self._known:
            self._check(i)
            return
        context = self._context
        at = 4 * FEW * i
        scratch = context.scratch
        few = min(FEW, context.n_vocab)
        self._stats(i, few, scratch.few_ids_address + at, scratch.few_logits_address + at)
        self._known.add(i)

    def argmax(self, i: int) -> int:
        self._find_few(i)
        return self._context.scratch.few_ids[FEW * i]

    def top_k(self, i: int, k: int) -> tuple[list[int], list[float]]:
        if not 1 <= k <= MAX_TOP_K:
            raise UsageError(f"top_k takes 1 to {MAX_TOP_K} candidates, not {k}")
        k = min(k, self._context.n_vocab)
        scratch = self._context.scratch
        if k <= FEW:
            self._find_few(i)
            return scratch.few_ids[FEW * i : FEW * i + k], scratch.few_logits[FEW * i : FEW * i + k]
        self._stats(i, k, scratch.ids_address, scratch.logits_address)
        return scratch.ids[:k], scratch.logits[:k]

    def few_best(self) -> tuple[int, int] | None:
        """Addresses of the ids (int32) and logits (float32) of the `FEW` best of every row, [n][FEW], for native code.

        They stay until the next decode. None for a vocabulary with fewer tokens.
        """
        return self.few_best_of(0, self._n)

    def few_best_of(self, at: int, n: int) -> tuple[int, int] | None:
        """`few_best` of `n` rows from row `at` on."""
        if self._context.n_vocab < FEW:
            return None
        scratch, offset = self._context.scratch, 4 * FEW * at
        if not self._known.issuperset(range(at, at + n)):
            # one call for all of them: it uses all threads
            self._stats(at, FEW, scratch.few_ids_address + offset, scratch.few_logits_address + offset, n=n)
            self._known.update(range(at, at + n))
        return scratch.few_ids_address + offset, scratch.few_logits_address + offset

    def _sums_of(self, i: int) -> tuple[float, float]:
        sums = self._sums.get(i)
        if sums is None:
            scratch = self._context.scratch
            sums_at = scratch.sums_address
            self._stats(i, 0, scratch.ids_address, scratch.logits_address, sums_at, sums_at + 4)
            sums = self._sums[i] = (scratch.sums[0], scratch.sums[1])
        return sums

    def logsumexp(self, i: int) -> float:
        return self._sums_of(i)[0]

    def entropy(self, i: int) -> float:
        return self._sums_of(i)[1]

    def logits(self, i: int) -> FloatArray:
        self._check(i)
        row = self._context.lib.llama_tree_logits(self._context.ctx, i)
        if not row:
            raise EngineError(f"row {i} has no logits")
        return np.ctypeslib.as_array(row, (self._context.n_vocab,))

    def candidates(self, i: int, out: npt.NDArray[np.void]) -> None:
        self._check(i)
        start = perf_counter()
        status = self._context.lib.llama_tree_candidates(self._context.ctx, i, out.ctypes.data)
        self._context.native_seconds += perf_counter() - start
        if status != bindings.OK:
            raise EngineError(f"row {i} has no logits")

    def hidden(self, i: int) -> FloatArray:
        self._check(i)
        row = self._context.lib.llama_tree_hidden(self._context.ctx, i)
        if not row:
            raise EngineError(f"row {i} has no hidden state", "this model's graph does not expose its final norm")
        # bytes first: an array made of a pointer, or the address of an array, would cost several times the copy
        return np.frombuffer(string_at(row, 4 * self._context.n_embd), dtype=np.float32)
