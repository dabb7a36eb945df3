"""The tree engine on the patched library: trees live in one sequence, rows are read where the graph left them."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as L

from localspec.engine import bindings, logs
from localspec.engine.base import MAX_TOP_K, FloatArray, IntArray, Progress
from localspec.engine.host import Batch, create_context
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.errors import ContextLengthError, EngineError, UsageError


def available() -> bool:
    """Whether the installed llama-cpp-python carries the localspec patches."""
    return bindings.library() is not None


class PatchedRows:
    """Rows of the last `decode`; see `base.Rows`. Reductions run in native code, one row at a time, on demand."""

    def __init__(self, context: PatchedContext, n: int) -> None:
        self._context = context
        self._lib = context.lib
        self._n = n
        self._generation = context.generation
        self._node = np.zeros(1, dtype=np.int32)
        self._ids = np.empty(MAX_TOP_K, dtype=np.int32)
        self._logits = np.empty(MAX_TOP_K, dtype=np.float32)
        self._sums = np.empty(2, dtype=np.float32)
        self._addresses = tuple(a.ctypes.data for a in (self._node, self._ids, self._logits, self._sums))
        self._statistics: dict[int, tuple[float, float]] = {}
        self._argmax: dict[int, int] = {}

    def __len__(self) -> int:
        return self._n

    def _stats(self, i: int, k: int, sums: bool) -> None:
        node, ids, logits, lse = self._addresses
        self._node[0] = i
        self._check(i)
        start = perf_counter()
        status = self._lib.llama_tree_stats(
            self._context.ctx, 1, node, k, ids, logits, lse if sums else None, lse + 4 if sums else None
        )
        self._context.native_seconds += perf_counter() - start
        if status != bindings.OK:
            raise EngineError(f"row {i} has no logits")

    def _check(self, i: int) -> None:
        if self._generation != self._context.generation:
            raise EngineError("these rows belong to an earlier decode", "copy what is needed before the next one")
        if not 0 <= i < self._n:
            raise EngineError(f"row {i} of {self._n} does not exist")

    def argmax(self, i: int) -> int:
        token = self._argmax.get(i)
        if token is None:
            self._stats(i, 1, sums=False)
            token = self._argmax[i] = int(self._ids[0])
        return token

    def top_k(self, i: int, k: int) -> tuple[IntArray, FloatArray]:
        if not 1 <= k <= MAX_TOP_K:
            raise UsageError(f"top_k of {k}: 1 to {MAX_TOP_K} are supported")
        self._stats(i, k, sums=False)
        return self._ids[:k].copy(), self._logits[:k].copy()

    def _sums_of(self, i: int) -> tuple[float, float]:
        sums = self._statistics.get(i)
        if sums is None:
            self._stats(i, 0, sums=True)
            sums = self._statistics[i] = (float(self._sums[0]), float(self._sums[1]))
        return sums

    def logsumexp(self, i: int) -> float:
        return self._sums_of(i)[0]

    def entropy(self, i: int) -> float:
        return self._sums_of(i)[1]

    def logits(self, i: int) -> FloatArray:
        self._check(i)
        row = self._lib.llama_tree_logits(self._context.ctx, i)
        if not row:
            raise EngineError(f"row {i} has no logits")
        return np.ctypeslib.as_array(row, (self._context.n_vocab,))

    def hidden(self, i: int) -> FloatArray:
        self._check(i)
        row = self._lib.llama_tree_hidden(self._context.ctx, i)
        if not row:
            raise EngineError(f"row {i} has no hidden state", "this model's graph does not expose its final norm")
        return np.ctypeslib.as_array(row, (self._context.n_embd,)).copy()


class PatchedContext:
    """`base.TreeContext` on `llama_tree_*`. Not thread-safe.

    `max_nodes` is 1 for a model whose memory cannot hold trees; use a `StockContext` for it.
    """

    mode = "patched"

    def __init__(self, model: Model, params: ContextParams) -> None:
        lib = bindings.library()
        if lib is None:
            raise EngineError(
                "this llama-cpp-python lacks localspec's patches", "pip install ./ggml_patches, or use mode=stock"
            )
        self.lib: Any = lib
        self.ctx = create_context(
            model,
            params,
            # a verification pass wants all its rows; the default, one a prompt token, would reserve far more memory
            n_outputs_max=min(bindings.MAX_NODES, params.n_batch),
            kv_unified=params.n_seq_max > 1,
        )
        self._free = weakref.finalize(self, L.llama_free, self.ctx)
        self._memory = L.llama_get_memory(self.ctx)
        self.n_vocab = model.n_vocab
        self.n_embd = model.n_embd
        self.n_seq_max = params.n_seq_max
        self.n_ctx = int(L.llama_n_ctx(self.ctx))
        self._n_swa = model.n_swa
        self._n_ubatch = int(L.llama_n_ubatch(self.ctx))
        self.native_seconds = 0.0
        #: counts the decodes, so that rows know when they are stale
        self.generation = 0
        reason = lib.llama_tree_unsupported(self.ctx)
        self.tree_limit_reason = reason.decode() if reason else None
        self.max_nodes = 1 if reason else min(bindings.MAX_NODES, int(L.llama_n_batch(self.ctx)))
        self._n_past = [0] * self.n_seq_max
        self._open: set[int] = set()
        self._batch = Batch(self._n_ubatch, 1, 1)

    @property
    def graph_builds(self) -> int:
        """Compute graphs built since the context was made."""
        return int(self.lib.llama_tree_n_graph_builds(self.ctx))

    def cells(self, seq: int = 0) -> IntArray:
        """K/V cells that hold the sequence, in position order; for tests and diagnostics."""
        cells = np.empty(self.n_ctx, dtype=np.int32)
        n = self.lib.llama_tree_cells(self.ctx, self._checked(seq), cells.ctypes.data, len(cells))
        return cells[: max(n, 0)]

    def n_past(self, seq: int = 0) -> int:
        return self._n_past[self._checked(seq)]

    def _checked(self, seq: int) -> int:
        if not self._free.alive:
            raise EngineError("this context is closed")
        if not 0 <= seq < self.n_seq_max:
            raise UsageError(f"sequence {seq} does not exist; this context has {self.n_seq_max}")
        return seq

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            self.native_seconds += perf_counter() - start

    def prefill(self, tokens: Sequence[int], seq: int = 0, progress: Progress | None = None) -> int:
        if self._checked(seq) in self._open:
            raise EngineError(f"sequence {seq} has an open tree: accept or drop it before a prefill")
        array = np.asarray(tokens, dtype=np.int32)
        free = self.n_ctx - sum(self._n_past)
        if len(array) > free:
            raise ContextLengthError(
                f"{len(array)} tokens do not fit: {free} of {self.n_ctx} cells of the context are free",
                "shorten the prompt or use a larger n_ctx",
            )
        done = 0
        # one physical batch at a time: just as fast, and `progress` gets a say more often
        while done < len(array):
            chunk = array[done : done + self._n_ubatch]
            self._batch.fill_chain(chunk, self._n_past[seq], seq, outputs=False)
            self.generation += 1
            with logs.collect_errors() as errors, self._timed():
                status = L.llama_decode(self.ctx, self._batch.native)
                L.llama_synchronize(self.ctx)
            if status != 0:
                L.llama_memory_seq_rm(self._memory, seq, self._n_past[seq], -1)
                self._raise(bindings.FULL if status == 1 else bindings.FAILED, len(chunk), errors)
            self._n_past[seq] += len(chunk)
            done += len(chunk)
            if progress is not None and not progress(done):
                break
        return done

    def decode(self, tokens: Sequence[int] | IntArray, parents: Sequence[int] | IntArray, seq: int = 0) -> PatchedRows:
        n = len(tokens)
        try:
            if n == 0 or len(parents) != n:
                raise UsageError(f"a tree needs as many tokens as parents, at least one: {n} and {len(parents)} given")
            self._decode([(tokens, parents, seq)])
        except (UsageError, ContextLengthError, EngineError):
            self.drop(seq)
            raise
        return PatchedRows(self, n)

    def decode_many(self, trees: Sequence[tuple[Sequence[int], Sequence[int], int]]) -> PatchedRows:
        """Append (tokens, parents, seq) to the trees of several sequences in one forward pass.

        The rows come in the order given, sequence after sequence. On an error all these trees are dropped.
        """
        try:
            self._decode(trees)
        except (UsageError, ContextLengthError, EngineError):
            for _, _, seq in trees:
                self.drop(seq)
            raise
        return PatchedRows(self, sum(len(tokens) for tokens, _, _ in trees))

    def _decode(self, trees: Sequence[tuple[Sequence[int] | IntArray, Sequence[int] | IntArray, int]]) -> None:
        tokens = np.concatenate([np.asarray(tree[0], dtype=np.int32) for tree in trees])
        parents = np.concatenate([np.asarray(tree[1], dtype=np.int32) for tree in trees])
        seqs = np.repeat(np.array([tree[2] for tree in trees], dtype=np.int32), [len(tree[0]) for tree in trees])
        self.generation += 1
        for _, _, seq in trees:
            if self._checked(seq) not in self._open:
                if self.lib.llama_tree_begin(self.ctx, seq) != bindings.OK:
                    raise EngineError(f"no tree can be opened: {self.tree_limit_reason or 'the library refused'}")
                self._open.add(seq)
        arrays = (tokens.ctypes.data, parents.ctypes.data, seqs.ctypes.data)
        start = perf_counter()
        status = self.lib.llama_tree_decode(self.ctx, len(tokens), *arrays, None)
        if status == bindings.OK:
            L.llama_synchronize(self.ctx)
        self.native_seconds += perf_counter() - start
        if status != bindings.OK:
            self._raise(status, len(tokens), [])

    def _raise(self, status: int, n: int, errors: list[str]) -> None:
        if status == bindings.FULL:
            raise ContextLengthError(
                f"no room for {n} more tokens: {sum(self._n_past)} of {self.n_ctx} cells of the context are taken",
                "shorten the text or use a larger n_ctx",
            )
        if status == bindings.ABORTED:
            raise EngineError("the evaluation was aborted")
        if status == bindings.INVALID:
            raise UsageError(
                f"{n} nodes were refused: a parent comes before its children, tokens are of the vocabulary, and a tree "
                f"has at most {self.max_nodes} nodes"
            )
        raise EngineError(f"llama.cpp failed to evaluate {n} tokens: {logs.reason(errors, f'status {status}')}")

    def accept(self, path: Sequence[int], seq: int = 0) -> None:
        nodes = np.asarray(path, dtype=np.int32)
        start = perf_counter()
        status = self.lib.llama_tree_accept(self.ctx, self._checked(seq), nodes.ctypes.data, len(nodes))
        self.native_seconds += perf_counter() - start
        if status != bindings.OK:
            self.drop(seq)
            raise UsageError(f"{list(path)} is not a path of the open tree of sequence {seq}")
        self._open.discard(seq)
        self._n_past[seq] += len(nodes)

    def drop(self, seq: int = 0) -> None:
        self.lib.llama_tree_drop(self.ctx, self._checked(seq))
        self._open.discard(seq)

    def trim(self, n: int, seq: int = 0) -> int:
        self.drop(seq)
        if 0 <= n < self._n_past[seq]:
            with self._timed():
                # a continuation looks n_swa - 1 tokens back; a sliding window may have let go of those
                low = L.llama_memory_seq_pos_min(self._memory, seq)
                whole = n == 0 or not self._n_swa or low <= max(0, n - self._n_swa + 1)
                if not (whole and L.llama_memory_seq_rm(self._memory, seq, n, -1)):
                    n = 0
                    L.llama_memory_seq_rm(self._memory, seq, -1, -1)
            self._n_past[seq] = n
        return self._n_past[seq]

    def close(self) -> None:
        self.generation += 1
        self._free()
