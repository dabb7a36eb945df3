"""The tree engine on the patched library: trees live in one sequence, rows are read where the graph left them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_float, c_int32
from functools import cache
from struct import Struct
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_cpp import llama_cpp as L

from localspec.engine import bindings, logs
from localspec.engine.base import MAX_TOP_K, FloatArray, IntArray, TreeContext
from localspec.engine.context import NativeContext
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.errors import EngineError, LocalspecError, UsageError

#: candidates of a row that are found together
FEW = 4

#: (tokens, parents, sequence) of the nodes that a decode appends to one tree
Growth = tuple[Sequence[int] | IntArray, Sequence[int] | IntArray, int]


def available() -> bool:
    """Whether the installed llama-cpp-python carries the localspec patches."""
    return bindings.library() is not None


def new_patched_context(model: Model, params: ContextParams) -> TreeContext:
    """A `PatchedContext`, or in its place a plain one where the memory of the model cannot hold trees."""
    context = PatchedContext(model, params)
    if context.tree_limit_reason is None:
        return context
    from localspec.engine.stock import StockContext

    context.close()
    return StockContext(model, params, context.tree_limit_reason)


@cache
def _packer(n: int) -> Callable[..., None]:
    """Writes `n` int32 to a buffer: (buffer, offset in bytes, *values)."""
    return Struct(f"{n}i").pack_into


class _Nodes:
    """The arrays that a decode takes, made once a context and filled in every step.

    Plain addresses of fixed buffers are the cheapest arguments that ctypes can pass, and a step's few integers are
    packed faster than NumPy could convert them.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._tokens, self._parents, self._seqs = ((c_int32 * capacity)() for _ in range(3))
        self.tokens_address, self.parents_address = addressof(self._tokens), addressof(self._parents)
        #: None while all nodes are of sequence 0
        self.seqs_address: int | None = None

    def fill(self, growths: Sequence[Growth]) -> int:
        """Take the nodes of all growths, one after the other, and return their number."""
        total = sum([len(tokens) for tokens, _, _ in growths])
        if total > self._capacity:
            raise UsageError(f"one decode takes at most {self._capacity} nodes")
        self.seqs_address = addressof(self._seqs) if any(seq for *_, seq in growths) else None
        at = 0
        for tokens, parents, seq in growths:
            n = len(tokens)
            pack = _packer(n)
            pack(self._tokens, at, *tokens)
            pack(self._parents, at, *parents)
            if self.seqs_address is not None:
                pack(self._seqs, at, *[seq] * n)
            at += 4 * n
        return total

    def fill_path(self, path: Sequence[int]) -> int:
        """Take the node numbers of a path, and return their number."""
        if len(path) > self._capacity:
            raise UsageError(f"a path has at most {self._capacity} nodes")
        _packer(len(path))(self._tokens, 0, *path)
        return len(path)


class _Scratch:
    """Buffers of the row statistics, made once a context: they are used in every step."""

    def __init__(self) -> None:
        #: the few best of each row, [MAX_NODES][FEW]
        self.few_ids = (c_int32 * (bindings.MAX_NODES * FEW))()
        self.few_logits = (c_float * (bindings.MAX_NODES * FEW))()
        self.few_ids_address, self.few_logits_address = addressof(self.few_ids), addressof(self.few_logits)
        self.row = c_int32()
        self.ids = (c_int32 * MAX_TOP_K)()
        self.logits = (c_float * MAX_TOP_K)()
        self.sums = (c_float * 2)()
        self.row_address = addressof(self.row)
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

    def _stats(self, i: int, k: int, ids: int, logits: int, lse: int | None, entropy: int | None) -> None:
        """Write statistics of row `i` to these addresses."""
        self._check(i)
        context = self._context
        scratch = context.scratch
        scratch.row.value = i
        start = perf_counter()
        status = context.lib.llama_tree_stats(context.ctx, 1, scratch.row_address, k, ids, logits, lse, entropy)
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
        self._stats(i, few, scratch.few_ids_address + at, scratch.few_logits_address + at, None, None)
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
        self._stats(i, k, scratch.ids_address, scratch.logits_address, None, None)
        return scratch.ids[:k], scratch.logits[:k]

    def few_best(self) -> tuple[int, int] | None:
        """Addresses of the ids (int32) and logits (float32) of the `FEW` best of every row, [n][FEW], for native code.

        They stay until the next decode. None for a vocabulary with fewer tokens.
        """
        if self._context.n_vocab < FEW:
            return None
        for i in range(self._n):
            self._find_few(i)
        return self._context.scratch.few_ids_address, self._context.scratch.few_logits_address

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
        return np.ctypeslib.as_array(row, (self._context.n_embd,)).copy()


class PatchedContext(NativeContext):
    """`base.TreeContext` on `llama_tree_*`. Not thread-safe.

    `max_nodes` is 1, and `decode` refuses, for a model whose memory cannot hold trees: see `new_patched_context`.
    `settings` are further fields of llama_context_params.
    """

    mode = "patched"

    def __init__(self, model: Model, params: ContextParams, **settings: Any) -> None:
        lib = bindings.library()
        if lib is None:
            raise EngineError(
                "this llama-cpp-python lacks localspec's patches", "pip install ./ggml_patches, or use mode=stock"
            )
        self.lib: Any = lib
        # a verification pass wants all its rows; the default, one a prompt token, would reserve far more memory
        n_outputs_max = min(bindings.MAX_NODES, params.n_batch)
        unified = {"kv_unified": params.n_seq_max > 1}
        super().__init__(model, params, n_outputs_max=n_outputs_max, **{**unified, **settings})
        reason = lib.llama_tree_unsupported(self.ctx)
        self.tree_limit_reason = reason.decode() if reason else None
        self.max_nodes = 1 if reason else min(bindings.MAX_NODES, int(L.llama_n_batch(self.ctx)))
        self.scratch = _Scratch()
        self._nodes = _Nodes(int(L.llama_n_batch(self.ctx)))
        self._open: set[int] = set()

    @property
    def graph_builds(self) -> int:
        """Compute graphs built since the context was made."""
        return int(self.lib.llama_tree_n_graph_builds(self.ctx))

    def cells(self, seq: int = 0) -> IntArray:
        """K/V cells that hold the sequence, in position order; for tests and diagnostics."""
        cells = np.empty(self.n_ctx, dtype=np.int32)
        n = self.lib.llama_tree_cells(self.ctx, self._checked(seq), cells.ctypes.data, len(cells))
        return cells[: max(n, 0)]

    def _has_tree(self, seq: int) -> bool:
        return seq in self._open

    def decode(self, tokens: Sequence[int] | IntArray, parents: Sequence[int] | IntArray, seq: int = 0) -> PatchedRows:
        return self.decode_many([(tokens, parents, seq)])

    def decode_many(self, growths: Sequence[Growth]) -> PatchedRows:
        """`decode` for several sequences in one forward pass; the rows come in the order given.

        On an error all these trees are dropped.
        """
        try:
            return self._decode(growths)
        except LocalspecError:
            for *_, seq in growths:
                self.drop(seq)
            raise

    def _decode(self, growths: Sequence[Growth]) -> PatchedRows:
        for tokens, parents, seq in growths:
            if len(tokens) == 0 or len(tokens) != len(parents):
                raise UsageError(
                    f"a tree needs as many tokens as parents, at least one: {len(tokens)} and {len(parents)} given"
                )
            if self._checked(seq) not in self._open:
                if self.lib.llama_tree_begin(self.ctx, seq) != bindings.OK:
                    raise EngineError(f"no tree can be opened: {self.tree_limit_reason or 'the library refused'}")
                self._open.add(seq)
        nodes = self._nodes
        n = nodes.fill(growths)
        self.generation += 1
        mark = logs.n_errors()
        start = perf_counter()
        status = self.lib.llama_tree_decode(
            self.ctx, n, nodes.tokens_address, nodes.parents_address, nodes.seqs_address, None
        )
        L.llama_synchronize(self.ctx)
        self.native_seconds += perf_counter() - start
        if status == bindings.INVALID:
            raise UsageError(
                f"{n} nodes were refused: a parent comes before its children, tokens are of the vocabulary, and a tree "
                f"has at most {self.max_nodes} nodes"
            )
        if status != bindings.OK:
            self._fail(status, n, mark)
        return PatchedRows(self, n)

    def accept(self, path: Sequence[int], seq: int = 0) -> None:
        n = self._nodes.fill_path(path)
        start = perf_counter()
        status = self.lib.llama_tree_accept(self.ctx, self._checked(seq), self._nodes.tokens_address, n)
        self.native_seconds += perf_counter() - start
        if status != bindings.OK:
            self.drop(seq)
            raise UsageError(f"nodes {list(path)} are not a path of the open tree of sequence {seq}")
        self._open.discard(seq)
        self._n_past[seq] += n

    def drop(self, seq: int = 0) -> None:
        self.lib.llama_tree_drop(self.ctx, self._checked(seq))
        self._open.discard(seq)
