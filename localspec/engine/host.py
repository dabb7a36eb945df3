"""Host-side parts of the engine: rows reduced by NumPy, the shape of an open tree, a batch that NumPy fills, and the
making of contexts."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from llama_cpp import llama_cpp as L

from localspec.engine import logs
from localspec.engine.base import MAX_TOP_K, FloatArray, IntArray
from localspec.engine.params import CACHE_TYPES, ContextParams
from localspec.errors import EngineError, UsageError

if TYPE_CHECKING:
    from localspec.engine.model import Model


#: entries of a row whose maximum is taken together
_BLOCK = 128


class HostRows:
    """`Rows` over logits that the library has copied to the host.

    `logits` is float32 [n, n_vocab], a view of the library's buffer; `hidden` reads one hidden state. `is_current`
    says whether the buffer still belongs to this decode.
    """

    def __init__(self, logits: FloatArray, hidden: Callable[[int], FloatArray], is_current: Callable[[], bool]) -> None:
        self._logits = logits
        self._hidden = hidden
        self._is_current = is_current
        self._sums: dict[int, tuple[float, float]] = {}
        self._best: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._logits)

    def argmax(self, i: int) -> int:
        best = self._best.get(i)
        if best is None:
            best = self._best[i] = int(self.logits(i).argmax())  # NumPy takes the first of equals
        return best

    def top_k(self, i: int, k: int) -> tuple[list[int], list[float]]:
        row = self.logits(i)
        if not 1 <= k <= MAX_TOP_K:
            raise UsageError(f"top_k takes 1 to {MAX_TOP_K} candidates, not {k}")
        k = min(k, len(row))
        # The k-th largest of the blocks' maxima is no more than the k-th largest entry, and found much faster.
        n_blocks = len(row) // _BLOCK
        maxima = row[: n_blocks * _BLOCK].reshape(n_blocks, _BLOCK).max(axis=1)
        few = maxima if len(maxima) >= k else row
        threshold = np.partition(few, len(few) - k)[len(few) - k]
        # Everything that ties with the k-th goes into a stable sort, so the smaller id wins at the edge as well.
        ids = np.flatnonzero(row >= threshold)
        ids = ids[np.argsort(-row[ids], kind="stable")[:k]]
        return ids.tolist(), row[ids].tolist()

    def logsumexp(self, i: int) -> float:
        return self._sums_of(i)[0]

    def entropy(self, i: int) -> float:
        return self._sums_of(i)[1]

    def _sums_of(self, i: int) -> tuple[float, float]:
        sums = self._sums.get(i)
        if sums is None:
            row = self.logits(i).astype(np.float64)
            top = float(row.max())
            weights = np.exp(row - top)
            total = float(weights.sum())
            lse = top + math.log(total)
            likely = weights > 0.0  # a logit of minus infinity adds nothing
            entropy = lse - float(weights[likely] @ row[likely]) / total
            sums = self._sums[i] = (lse, entropy)
        return sums

    def logits(self, i: int) -> FloatArray:
        if not self._is_current():
            raise EngineError("these rows belong to an earlier decode", "copy what is needed before the next one")
        if not 0 <= i < len(self):
            raise EngineError(f"row {i} of {len(self)} does not exist")
        return self._logits[i]

    def candidates(self, i: int, out: npt.NDArray[np.void]) -> None:
        out["id"] = np.arange(len(out), dtype=np.int32)
        out["logit"] = self.logits(i)
        out["p"] = 0.0

    def hidden(self, i: int) -> FloatArray:
        self.logits(i)  # the same checks
        return self._hidden(i)


@dataclass(slots=True)
class OpenTree:
    """The open tree of a sequence. `ids[i]` is one native id whose cells include the path of node i."""

    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    is_leaf: list[bool] = field(default_factory=list)
    #: native ids in use, in the order of the sequence's own ids
    used: list[int] = field(default_factory=list)

    def append(self, parent: int) -> None:
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1 if parent >= 0 else 0)
        self.ids.append(-1)
        self.is_leaf.append(True)
        if parent >= 0:
            self.is_leaf[parent] = False

    def is_path(self, path: Sequence[int]) -> bool:
        """Whether `path` leads from a child of the chain downwards."""
        above = [-1, *path[:-1]]
        return all(
            0 <= node < len(self.parents) and self.parents[node] == parent
            for node, parent in zip(path, above, strict=True)
        )

    def check_growth(self, n: int, parents: list[int]) -> None:
        """Raise `UsageError` unless `n` nodes with these parents can be appended."""
        if n == 0 or n != len(parents):
            raise UsageError(f"a tree needs as many tokens as parents, at least one: {n} and {len(parents)} given")
        for node, parent in enumerate(parents, start=len(self.parents)):
            if not -1 <= parent < node:
                raise UsageError(f"node {node} has parent {parent}: a parent comes before its children")


class Batch:
    """A `llama_batch` over NumPy arrays, for up to `n_tokens` tokens of one native sequence, or `n_nodes` tokens with
    up to `n_ids` native sequences each."""

    def __init__(self, n_tokens: int, n_nodes: int, n_ids: int) -> None:
        n_tokens = max(n_tokens, n_nodes)
        self._tokens: IntArray = np.zeros(n_tokens, dtype=np.int32)
        self._positions: IntArray = np.zeros(n_tokens, dtype=np.int32)
        self._n_ids: IntArray = np.ones(n_tokens, dtype=np.int32)
        self._outputs: npt.NDArray[np.int8] = np.zeros(n_tokens, dtype=np.int8)
        self._ids: IntArray = np.zeros((n_nodes, n_ids), dtype=np.int32)
        self._id_rows: npt.NDArray[np.uintp] = np.zeros(n_tokens, dtype=np.uintp)
        self._row_addresses = self._ids.ctypes.data + np.arange(n_nodes, dtype=np.uintp) * np.uintp(4 * n_ids)

        def pointer(array: np.ndarray, kind: Any) -> Any:
            return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))

        self.native = L.llama_batch()
        self.native.token = pointer(self._tokens, L.llama_token)
        self.native.pos = pointer(self._positions, L.llama_pos)
        self.native.n_seq_id = pointer(self._n_ids, ctypes.c_int32)
        self.native.seq_id = pointer(self._id_rows, ctypes.POINTER(L.llama_seq_id))
        self.native.logits = pointer(self._outputs, ctypes.c_int8)

    def fill_chain(self, tokens: IntArray, position: int, native_id: int, outputs: bool) -> None:
        """Consecutive tokens of one native sequence, from `position` on."""
        n = len(tokens)
        self._tokens[:n] = tokens
        self._positions[:n] = np.arange(position, position + n, dtype=np.int32)
        self._n_ids[:n] = 1
        self._ids[0, 0] = native_id
        self._id_rows[:n] = self._row_addresses[0]
        self._outputs[:n] = outputs
        self.native.n_tokens = n

    def fill_nodes(self, tokens: IntArray, positions: Sequence[int], ids: Sequence[Sequence[int]]) -> None:
        """Nodes of a tree, each with its position and all of its native sequences. All of them are outputs."""
        n = len(tokens)
        self._tokens[:n] = tokens
        self._positions[:n] = positions
        self._n_ids[:n] = [len(node_ids) for node_ids in ids]
        for row, node_ids in zip(self._ids, ids, strict=False):
            row[: len(node_ids)] = node_ids
        self._id_rows[:n] = self._row_addresses[:n]
        self._outputs[:n] = 1
        self.native.n_tokens = n


def create_context(model: Model, params: ContextParams, **overrides: Any) -> Any:
    """A native context of `params`; `overrides` are fields of `llama_context_params`.

    Raises `EngineError` with the library's reason.
    """
    native = L.llama_context_default_params()
    native.n_ctx = params.resolve_n_ctx(model.n_ctx_train)
    native.n_batch = params.n_batch
    native.n_ubatch = min(params.n_ubatch, params.n_batch)
    native.n_seq_max = params.n_seq_max
    native.n_threads, native.n_threads_batch = params.resolve_threads()
    native.flash_attn_type = L.LLAMA_FLASH_ATTN_TYPE_AUTO if params.flash_attn else L.LLAMA_FLASH_ATTN_TYPE_DISABLED
    native.type_k, native.type_v = CACHE_TYPES[params.type_k][0], CACHE_TYPES[params.type_v][0]
    native.pooling_type = L.LLAMA_POOLING_TYPE_NONE
    native.embeddings = False
    native.no_perf = True
    for name, value in overrides.items():
        setattr(native, name, value)
    mark = logs.n_errors()
    ctx = L.llama_init_from_model(model.handle, native)
    if not ctx:
        raise EngineError(
            f"no context of n_ctx={native.n_ctx}: {logs.reason(mark, 'the library gave no reason')}",
            "use a smaller n_ctx, or another cache type",
        )
    return ctx
