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

from collections.abc import Sequence

import numpy as np
from llama_cpp import llama_cpp as L

from localspec.engine.base import FloatArray, IntArray
from localspec.engine.context import NativeContext
from localspec.engine.host import Batch, HostRows, OpenTree
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.errors import EngineError, UsageError

MAX_LEAVES = 64
_MAX_IDS = 256  # LLAMA_MAX_SEQ of llama.cpp
_MIN_LEAVES = 4


class StockContext(NativeContext):
    """`base.TreeContext` on unpatched llama.cpp; see the module's text. Not thread-safe.

    With a `limit_reason`, and on recurrent and hybrid models, `max_nodes` is 1. On the latter `drop` and `trim` empty
    the sequence where the library cannot step back: look at `n_past` afterwards.
    """

    mode = "stock"

    def __init__(self, model: Model, params: ContextParams, limit_reason: str | None = None) -> None:
        if params.n_seq_max > _MAX_IDS // _MIN_LEAVES:
            raise UsageError(
                f"n_seq_max is {params.n_seq_max}; stock mode holds at most {_MAX_IDS // _MIN_LEAVES} sequences"
            )
        if limit_reason is None and (model.is_recurrent or model.is_hybrid):
            kind = "recurrent" if model.is_recurrent else "hybrid"
            limit_reason = f"{model.arch} is a {kind} model: its state cannot branch"
        n_leaves = min(MAX_LEAVES, _MAX_IDS // params.n_seq_max) if limit_reason is None else 1
        n_ids = n_leaves * params.n_seq_max
        super().__init__(
            model,
            params,
            n_batch=max(params.n_batch, n_ids),
            n_seq_max=n_ids,
            n_outputs_max=n_ids,
            kv_unified=True,  # leaves share the cells of their path
            swa_full=True,  # a cell with several ids is never reused, so a window-sized cache would fill up
        )
        self._with_hidden = params.hidden
        self.max_nodes = n_leaves
        self.tree_limit_reason = limit_reason or "unpatched llama.cpp needs one of its sequence ids for every leaf"
        extra = n_leaves - 1
        self._own_ids = [
            [seq, *range(self.n_seq_max + seq * extra, self.n_seq_max + (seq + 1) * extra)]
            for seq in range(self.n_seq_max)
        ]
        #: how many tokens of the chain an id other than a primary one carries
        self._synced = [0] * n_ids
        self._trees: list[OpenTree | None] = [None] * self.n_seq_max
        self._batch = Batch(self.n_ubatch, self.max_nodes, n_leaves)

    def _has_tree(self, seq: int) -> bool:
        return self._trees[seq] is not None

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
        if not self._with_hidden:
            self._evaluate(seq)
            return self._rows(len(token_array))
        # only here: with embeddings on, every token of a prompt would become an output
        L.llama_set_embeddings(self.ctx, True)
        try:
            self._evaluate(seq)
        finally:
            L.llama_set_embeddings(self.ctx, False)
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
        if self.n_swa and self._synced[native_id]:
            # A sliding window may have let go of cells of one id only, and ids that share a node must agree.
            first = L.llama_memory_seq_pos_min(self._memory, native_id)
            if first != L.llama_memory_seq_pos_min(self._memory, seq):
                L.llama_memory_seq_rm(self._memory, native_id, -1, -1)
                self._synced[native_id] = 0
        if self._synced[native_id] < self._n_past[seq]:
            L.llama_memory_seq_cp(self._memory, seq, native_id, self._synced[native_id], self._n_past[seq])
            self._synced[native_id] = self._n_past[seq]

    def _rows(self, n: int) -> HostRows:
        generation = self.generation
        logits = np.ctypeslib.as_array(L.llama_get_logits_ith(self.ctx, 0), (n, self.n_vocab))

        def read_hidden(i: int) -> FloatArray:
            if not self._with_hidden:
                raise EngineError("hidden states were not asked for", "set ContextParams.hidden")
            return np.ctypeslib.as_array(L.llama_get_embeddings_ith(self.ctx, i), (self.n_embd,)).copy()

        return HostRows(logits, read_hidden, lambda: generation == self.generation)

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

    def _rewind(self, seq: int, n: int) -> None:
        super()._rewind(seq, n)
        self._trees[seq] = None

    def _remove(self, seq: int, start: int) -> bool:
        """Remove everything of the sequence from position `start` on; False when the library cannot."""
        tree = self._trees[seq]
        removed = bool(L.llama_memory_seq_rm(self._memory, seq, start, -1))
        for native_id in self._own_ids[seq][1:]:
            if self._synced[native_id] > start or (tree is not None and native_id in tree.used):
                L.llama_memory_seq_rm(self._memory, native_id, start, -1)
                self._synced[native_id] = min(self._synced[native_id], start)
        return removed
