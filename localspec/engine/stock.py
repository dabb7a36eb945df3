"""Trees on an unpatched llama.cpp: one sequence id a leaf.

The chain of sequence `seq` is carried by the native id `seq`, its *primary* id. Each sequence also owns a block of
further ids for the leaves of its tree; they are brought up to date only when a tree needs them, so plain decoding
costs nothing extra. A node of a tree carries the ids of all leaves below it, and llama.cpp's own mask ("same id, not
later") then shows each node exactly its path. `accept` keeps the cells of one path and frees the others.

Limits of this mode: 64 nodes a tree, reductions on the host, and accepted K/V rows stay where they were written. So a
path that was not the first one leaves the rows out of position order, and later sums may differ in the last bits from
a context that never branched.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import numpy as np
from llama_cpp import llama_cpp as L

from localspec.engine import logs
from localspec.engine.base import FloatArray, IntArray, Progress
from localspec.engine.host import Batch, HostRows, OpenTree, create_context
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.errors import ContextLengthError, EngineError, UsageError

MAX_LEAVES = 64
_MAX_IDS = 256  # LLAMA_MAX_SEQ of llama.cpp
_MIN_LEAVES = 4


class StockContext:
    """`base.TreeContext` on unpatched llama.cpp; see the module's text. Not thread-safe.

    On recurrent and hybrid models `max_nodes` is 1, and `drop` and `trim` empty the sequence where the library cannot
    step back: look at `n_past` afterwards.
    """

    mode = "stock"

    def __init__(self, model: Model, params: ContextParams) -> None:
        if params.n_seq_max > _MAX_IDS // _MIN_LEAVES:
            raise UsageError(
                f"n_seq_max is {params.n_seq_max}; stock mode holds at most {_MAX_IDS // _MIN_LEAVES} sequences"
            )
        linear = model.is_recurrent or model.is_hybrid
        n_leaves = 1 if linear else min(MAX_LEAVES, _MAX_IDS // params.n_seq_max)
        n_ids = n_leaves * params.n_seq_max
        self.ctx = create_context(
            model,
            params,
            n_batch=max(params.n_batch, n_ids),
            n_seq_max=n_ids,
            n_outputs_max=n_ids,
            kv_unified=True,  # leaves share the cells of their path
            swa_full=True,  # a cell with several ids is never reused, so a window-sized cache would fill up
        )
        self._free = weakref.finalize(self, L.llama_free, self.ctx)
        self._memory = L.llama_get_memory(self.ctx)
        self._model = model
        self._with_hidden = params.hidden
        self.n_vocab = model.n_vocab
        self.n_seq_max = params.n_seq_max
        self.n_ctx = int(L.llama_n_ctx(self.ctx))
        self._n_ubatch = int(L.llama_n_ubatch(self.ctx))
        self.native_seconds = 0.0
        self.max_nodes = n_leaves
        self.tree_limit_reason: str | None = "unpatched llama.cpp needs one of its sequence ids for every leaf"
        if linear:
            kind = "recurrent" if model.is_recurrent else "hybrid"
            self.tree_limit_reason = f"{model.arch} is a {kind} model: its state cannot branch"
        extra = n_leaves - 1
        self._own_ids = [
            [seq, *range(self.n_seq_max + seq * extra, self.n_seq_max + (seq + 1) * extra)]
            for seq in range(self.n_seq_max)
        ]
        #: how many tokens of the chain an id other than a primary one carries
        self._synced = [0] * n_ids
        self._trees: list[OpenTree | None] = [None] * self.n_seq_max
        self._n_past = [0] * self.n_seq_max
        self._batch = Batch(self._n_ubatch, self.max_nodes, n_leaves)
        self._generation = 0

    def n_past(self, seq: int = 0) -> int:
        return self._n_past[self._checked(seq)]

    def _checked(self, seq: int) -> int:
        if not self._free.alive:
            raise EngineError("this context is closed")
        if not 0 <= seq < self.n_seq_max:
            raise UsageError(f"sequence {seq} does not exist; this context has {self.n_seq_max}")
        return seq

    def prefill(self, tokens: Sequence[int], seq: int = 0, progress: Progress | None = None) -> int:
        if self._trees[self._checked(seq)] is not None:
            raise EngineError(f"sequence {seq} has an open tree: accept or drop it before a prefill")
        array = np.asarray(tokens, dtype=np.int32)
        free = self.n_ctx - sum(self._n_past)
        if len(array) > free:
            raise ContextLengthError(
                f"{len(array)} tokens do not fit: {free} of {self.n_ctx} cells of the context are free",
                "shorten the prompt or use a larger n_ctx",
            )
        done = 0
        # One physical batch at a time: just as fast, and `progress` gets a say more often.
        while done < len(array):
            chunk = array[done : done + self._n_ubatch]
            self._batch.fill_chain(chunk, self._n_past[seq], seq, outputs=False)
            self._evaluate(seq, hidden=False)  # hidden states would make every token of the prompt an output
            self._n_past[seq] += len(chunk)
            done += len(chunk)
            if progress is not None and not progress(done):
                break
        return done

    def decode(self, tokens: Sequence[int] | IntArray, parents: Sequence[int] | IntArray, seq: int = 0) -> HostRows:
        tree = self._trees[self._checked(seq)] or OpenTree()
        token_array = np.asarray(tokens, dtype=np.int32)
        parent_list = [int(parent) for parent in parents]
        n_old = len(tree.parents)
        try:
            tree.check_growth(len(token_array), parent_list)
            if n_old + len(parent_list) > self.max_nodes:
                raise UsageError(
                    f"a tree of {n_old + len(parent_list)} nodes exceeds the {self.max_nodes} of this context",
                    self.tree_limit_reason,
                )
        except UsageError:
            self.drop(seq)
            raise
        self._trees[seq] = tree
        with self._timed():
            ids = self._assign(tree, parent_list, seq)
        self._batch.fill_nodes(token_array, [self._n_past[seq] + depth for depth in tree.depths[n_old:]], ids)
        self._evaluate(seq, self._with_hidden)
        return self._rows(len(token_array))

    def _assign(self, tree: OpenTree, parents: list[int], seq: int) -> list[list[int]]:
        """Append nodes to the open tree and return the native ids of each.

        A new leaf needs an id whose cells are the chain and the path to the node where its branch joins the old tree.
        Below an old leaf the first new leaf inherits that leaf's id; every other one takes an unused id, for which the
        cells of the path are marked (no data moves). So ids never outnumber leaves.
        """
        n_old = len(tree.parents)
        heirless = {node for node in range(n_old) if tree.is_leaf[node]}
        for parent in parents:
            tree.append(parent)
        ids: list[list[int]] = [[] for _ in parents]
        for leaf in range(n_old, len(tree.parents)):
            if not tree.is_leaf[leaf]:
                continue
            branch = [leaf]
            while (joint := tree.parents[branch[-1]]) >= n_old:
                branch.append(joint)
            if joint in heirless:
                heirless.discard(joint)
                native_id = tree.ids[joint]
            else:
                native_id = self._take(tree, joint, seq)
            for node in branch:
                ids[node - n_old].append(native_id)
        for node, node_ids in enumerate(ids, start=n_old):
            tree.ids[node] = node_ids[0]
        return ids

    def _take(self, tree: OpenTree, joint: int, seq: int) -> int:
        """An unused id, made to carry the chain and the path down to `joint` (-1: the chain alone)."""
        native_id = self._own_ids[seq][len(tree.used)]
        tree.used.append(native_id)
        n_past = self._n_past[seq]
        if native_id != seq:
            self._sync(native_id, seq)
        if joint >= 0:
            end = n_past + tree.depths[joint] + 1
            L.llama_memory_seq_cp(self._memory, tree.ids[joint], native_id, n_past, end)
        return native_id

    def _sync(self, native_id: int, seq: int) -> None:
        if self._model.n_swa and self._synced[native_id]:
            # A sliding window may have let go of cells of one id only, and ids that share a node must agree.
            first = L.llama_memory_seq_pos_min(self._memory, native_id)
            if first != L.llama_memory_seq_pos_min(self._memory, seq):
                L.llama_memory_seq_rm(self._memory, native_id, -1, -1)
                self._synced[native_id] = 0
        if self._synced[native_id] < self._n_past[seq]:
            L.llama_memory_seq_cp(self._memory, seq, native_id, self._synced[native_id], self._n_past[seq])
            self._synced[native_id] = self._n_past[seq]

    def _evaluate(self, seq: int, hidden: bool) -> None:
        """Decode the batch; on failure the sequence is a plain chain of `n_past` tokens again."""
        self._generation += 1
        with logs.collect_errors() as errors, self._timed():
            if self._with_hidden:
                L.llama_set_embeddings(self.ctx, hidden)
            status = L.llama_decode(self.ctx, self._batch.native)
            L.llama_synchronize(self.ctx)
        if status == 0:
            return
        n = self._batch.native.n_tokens
        self._rewind(seq, self._n_past[seq])
        if status == 1:
            raise ContextLengthError(
                f"no room for {n} more tokens: {sum(self._n_past)} of {self.n_ctx} cells of the context are taken",
                "shorten the text or use a larger n_ctx",
            )
        if status == 2:
            raise EngineError("the evaluation was aborted")
        raise EngineError(f"llama.cpp failed to evaluate {n} tokens: {logs.reason(errors, f'status {status}')}")

    def _rows(self, n: int) -> HostRows:
        generation = self._generation
        logits = np.ctypeslib.as_array(L.llama_get_logits_ith(self.ctx, 0), (n, self.n_vocab))

        def read_hidden(i: int) -> FloatArray:
            if not self._with_hidden:
                raise EngineError("hidden states were not asked for", "set ContextParams.hidden")
            return np.ctypeslib.as_array(L.llama_get_embeddings_ith(self.ctx, i), (self._model.n_embd,)).copy()

        return HostRows(logits, read_hidden, lambda: generation == self._generation)

    def accept(self, path: Sequence[int], seq: int = 0) -> None:
        tree = self._trees[self._checked(seq)]
        if tree is None or not tree.is_path(path):
            self.drop(seq)
            raise UsageError(f"nodes {list(path)} are not a path of the open tree of sequence {seq}")
        if not len(path):
            self.drop(seq)
            return
        end = self._n_past[seq] + len(path)
        if self.max_nodes > 1:
            with self._timed():
                self._keep(tree, tree.ids[path[-1]], end, seq)
        self._n_past[seq] = end
        self._trees[seq] = None

    def _keep(self, tree: OpenTree, winner: int, end: int, seq: int) -> None:
        """Leave only the tree's cells of `winner` below position `end`, marked for the primary id as well."""
        start = self._n_past[seq]
        if winner != seq:
            L.llama_memory_seq_rm(self._memory, seq, start, -1)
            L.llama_memory_seq_cp(self._memory, winner, seq, start, end)
            self._synced[winner] = end
        if len(tree.used) == 1 and end == start + len(tree.parents):
            return  # a chain, accepted as a whole: the common case of plain decoding
        for native_id in tree.used:
            L.llama_memory_seq_rm(self._memory, native_id, end if native_id in (winner, seq) else start, -1)

    def drop(self, seq: int = 0) -> None:
        if self._trees[self._checked(seq)] is not None:
            self._rewind(seq, self._n_past[seq])

    def trim(self, n: int, seq: int = 0) -> int:
        self.drop(seq)
        if 0 <= n < self._n_past[seq]:
            self._rewind(seq, n)
        return self._n_past[seq]

    def _rewind(self, seq: int, n: int) -> None:
        """Close the tree and cut the chain to `n` tokens, or to none where the library cannot stop there."""
        with self._timed():
            if not (self._remove(seq, n) and self._window_kept(seq, n)):
                n = 0
                self._remove(seq, 0)
        self._trees[seq] = None
        self._n_past[seq] = n

    def _remove(self, seq: int, start: int) -> bool:
        """Remove everything of the sequence from position `start` on; False when the library cannot."""
        tree = self._trees[seq]
        removed = bool(L.llama_memory_seq_rm(self._memory, seq, start, -1))
        for native_id in self._own_ids[seq][1:]:
            if self._synced[native_id] > start or (tree is not None and native_id in tree.used):
                L.llama_memory_seq_rm(self._memory, native_id, start, -1)
                self._synced[native_id] = min(self._synced[native_id], start)
        return removed

    def _window_kept(self, seq: int, n: int) -> bool:
        """Whether the cells that a token at position `n` looks back at are still there."""
        n_swa = self._model.n_swa
        return not n_swa or n == 0 or L.llama_memory_seq_pos_min(self._memory, seq) <= max(0, n - n_swa + 1)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        begin = perf_counter()
        try:
            yield
        finally:
            self.native_seconds += perf_counter() - begin

    def close(self) -> None:
        self._generation += 1
        self._free()
