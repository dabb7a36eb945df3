"""The tree engine on the patched library: trees live in one sequence, rows are read where the graph left them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from ctypes import addressof, c_int32
from functools import cache
from struct import Struct
from time import perf_counter
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as L

from localspec.engine import bindings, logs
from localspec.engine.base import MAX_TOP_K, Growth, IntArray, TreeContext
from localspec.engine.context import NativeContext
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.engine.patched_rows import PatchedRows, Scratch
from localspec.errors import EngineError, LocalspecError, UsageError

logger = logging.getLogger(__name__)


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


class PatchedContext(NativeContext):
    """`base.TreeContext` on `llama_tree_*`. Not thread-safe.

    `max_nodes` is 1, and `decode` refuses, for a model whose memory cannot hold trees: see `new_patched_context`.
    `settings` are further fields of llama_context_params.
    """

    mode = "patched"
    one_pass = True

    def __init__(self, model: Model, params: ContextParams, **settings: Any) -> None:
        lib = bindings.library()
        if lib is None:
            raise EngineError(
                "this llama-cpp-python lacks localspec's patches", "pip install ./ggml_patches, or use mode=stock"
            )
        self.lib: Any = lib
        # a verification pass wants all its rows; the default, one a prompt token, would reserve far more memory
        n_outputs_max = min(bindings.MAX_NODES, params.n_batch)
        cache: dict[str, Any] = {"kv_unified": params.shared_cells and params.n_seq_max > 1}
        if params.partitioned:
            cache["swa_full"] = True  # a window's cache is too small to be divided
        super().__init__(model, params, n_outputs_max=n_outputs_max, **{**cache, **settings})
        reason = lib.llama_tree_unsupported(self.ctx)
        self.tree_limit_reason = reason.decode() if reason else None
        self.max_nodes = 1 if reason else min(bindings.MAX_NODES, int(L.llama_n_batch(self.ctx)))
        # a device that holds the rows and can finds their best tokens; on the CPU the few rows that a step looks at
        # are cheaper one by one, and the library does nothing more
        lib.llama_tree_set_stats(self.ctx, MAX_TOP_K)
        self.scratch = Scratch()
        self._nodes = _Nodes(int(L.llama_n_batch(self.ctx)))
        self._open: set[int] = set()
        if params.partitioned and lib.llama_tree_partition(self.ctx) != bindings.OK:
            logger.info("the sequences of this model share cells: texts may differ in company in their last bits")

    @property
    def graph_builds(self) -> int:
        """Compute graphs built since the context was made."""
        return int(self.lib.llama_tree_n_graph_builds(self.ctx))

    @property
    def mask_in_graph(self) -> bool:
        """Whether the graph of the last decode made its attention mask, in place of the host."""
        return bool(self.lib.llama_tree_mask_on_device(self.ctx))

    @property
    def stats_in_graph(self) -> bool:
        """Whether the graph of the last decode computed the statistics of its rows."""
        return bool(self.lib.llama_tree_stats_on_device(self.ctx))

    @property
    def bus_bytes(self) -> tuple[int, int]:
        """Bytes that the decodes sent to devices with memory of their own, and that were fetched from them."""
        return int(self.lib.llama_tree_n_bytes_sent(self.ctx)), int(self.lib.llama_tree_n_bytes_fetched(self.ctx))

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
            self._fail(status, n, mark, self._n_taken(growths[0][2]))
        return PatchedRows(self, n)

    def copy_prefix(self, source: int, seq: int, n: int) -> bool:
        if self._n_past[self._checked(seq)] or not 0 <= n <= self._n_past[self._checked(source)]:
            raise UsageError(f"sequence {seq} cannot begin with {n} tokens of sequence {source}")
        if self.lib.llama_tree_copy_prefix(self.ctx, source, seq, n) != bindings.OK:
            return False
        self._n_past[seq] = n
        return True

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
