"""Draft heads evaluated by the patched library on the model's device (`include/llama-heads.h` of ggml_patches).

The graph of a static tree is built when the tree is first asked for and kept. A device computes it in one go, the CPU
level by level where deep levels may be left out. `make_heads` gives these heads where the library has them, and those
of NumPy elsewhere.
"""

from __future__ import annotations

import os
import weakref
from array import array
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from localspec.engine import bindings, logs
from localspec.engine.base import TreeContext
from localspec.engine.model import Model
from localspec.engine.patched import PatchedContext
from localspec.errors import EngineError, ModelError
from localspec.heads.base import base_facts
from localspec.heads.draws import SampledDraft
from localspec.heads.embeddings import InputEmbeddings
from localspec.heads.file import read_heads, read_spec
from localspec.heads.reference import HeadDraft, ReferenceHeads, check_tree, checked_state
from localspec.heads.spec import HYDRA, MEDUSA, FloatArray, check_base
from localspec.heads.tensors import HINT
from localspec.static_tree import StaticTree

NATIVE_ARCHS = (HYDRA, MEDUSA)
#: plans that are kept; the one made first goes when there are more
MAX_PLANS = 64
#: of llama_heads_flags, for tests: graphs of operations that devices have, and without TOPK_STATS, which not all have
PORTABLE, STOCK_TOP_K = 1, 2


def make_heads(model: Model, context: TreeContext, path: str | Path) -> NativeHeads | ReferenceHeads:
    """Heads of the file `path`, native where library, context and kind of heads allow it.

    Raises `ModelNotFoundError` for no such file, and `ModelError` for one that is damaged, not of heads, or made for
    another model.
    """
    spec = read_spec(path)
    check_base(spec, base_facts(model))
    if isinstance(context, PatchedContext) and spec.arch in NATIVE_ARCHS:
        return NativeHeads(model, context, path)
    return ReferenceHeads(read_heads(path), InputEmbeddings(model.path))


class _Plan:
    """The graph of one tree, and the arrays that it is drafted into."""

    def __init__(self, lib: Any, heads: int, tree: StaticTree) -> None:
        parents, ranks = array("i", tree.topology.parents), array("i", tree.ranks)
        mark = logs.n_errors()
        self.handle = lib.llama_heads_plan_init(heads, tree.n_nodes, parents.buffer_info()[0], ranks.buffer_info()[0])
        if not self.handle:
            raise EngineError(f"no graph of a tree of {tree.n_nodes} nodes: {logs.reason(mark, 'memory ran out')}")
        self.free = weakref.finalize(self, lib.llama_heads_plan_free, self.handle)
        self.tree = tree  # as long as this, so that no other tree has its identity
        self.n_top1 = sum(level.greedy is not None for level in tree.levels)
        self.tokens = np.empty(tree.n_nodes, dtype=np.int32)
        self.q = np.empty(tree.n_nodes, dtype=np.float32)
        self.top1 = np.empty(max(1, tree.depth), dtype=np.float32)
        self.n_levels = np.empty(1, dtype=np.int32)
        self.addresses = tuple(out.ctypes.data for out in (self.tokens, self.q, self.top1, self.n_levels))


class NativeHeads:
    """Heads of the file `path` for `model`, computed with the threads and devices of `context`. Not thread-safe.

    `flags` are those of llama_heads_load. Raises `ModelError` for a file that the library refuses.
    """

    def __init__(self, model: Model, context: PatchedContext, path: str | Path, flags: int = 0) -> None:
        self.spec = read_spec(path)
        self.depth = self.spec.n_heads
        self._path, self._base = path, model.path
        self._lib, self._context = context.lib, context
        mark = logs.n_errors()
        handle = self._lib.llama_heads_load(model.handle, os.fsencode(path), flags)
        if not handle:
            raise ModelError(f"{path} gives no heads: {logs.reason(mark, 'the library gave no reason')}", HINT)
        self._handle = handle
        self._plans: dict[tuple[tuple[int, ...], ...], _Plan] = {}
        #: the same plans by the identity of trees, which is found faster
        self._known: dict[int, _Plan] = {}
        self._draft = self._lib.llama_heads_draft
        self._n_vocab = self.spec.n_vocab
        self._state = np.empty(self.spec.n_embd, dtype=np.float32)
        self._state_address = self._state.ctypes.data
        self._free = weakref.finalize(self, _release, self._lib, handle, self._plans)
        model.own(self)

    @property
    def n_bytes(self) -> int:
        """Bytes of weights held in memory."""
        self._check_open()
        return int(self._lib.llama_heads_n_bytes(self._handle))

    @property
    def device(self) -> str:
        """Name of the device that holds the weights."""
        self._check_open()
        return str(self._lib.llama_heads_device(self._handle).decode())

    def copied_bytes(self, tree: StaticTree) -> tuple[int, int]:
        """Bytes that drafting `tree` copies to the device and from it; none with the CPU's own operations."""
        self._check_open()
        handle = self._plan(tree).handle
        sent, fetched = self._lib.llama_heads_plan_n_bytes_sent, self._lib.llama_heads_plan_n_bytes_fetched
        return int(sent(handle)), int(fetched(handle))

    def n_splits(self, tree: StaticTree) -> int:
        """Parts that the library's scheduler makes of the graph of `tree`, between the device of the heads and the CPU.

        1 when nothing leaves the device; 0 for a tree that has no more than its root.
        """
        self._check_open()
        check_tree(self.spec, tree)
        parents, ranks = array("i", tree.topology.parents), array("i", tree.ranks)
        mark = logs.n_errors()
        addresses = parents.buffer_info()[0], ranks.buffer_info()[0]
        n = int(self._lib.llama_heads_n_splits(self._handle, tree.n_nodes, *addresses))
        if n < 0:
            raise EngineError(f"no graph of a tree of {tree.n_nodes} nodes: {logs.reason(mark, 'memory ran out')}")
        return n

    def draft(self, g: FloatArray, root: int, tree: StaticTree, least_p: float = 0.0) -> HeadDraft:
        """Draft a tree below the token `root`, as `ReferenceHeads.draft` does.

        Raises `UsageError` for inputs that do not fit the heads, and `EngineError` when the library fails.
        """
        self._check_open()
        plan = self._known.get(id(tree)) or self._plan(tree)
        # after a step of the model every object of Python has left the caches: the fewer are touched, the better
        fits = g.shape == self._state.shape and 0 <= root < self._n_vocab
        self._state[:] = g if fits else checked_state(self.spec, g, root)
        context = self._context
        mark = logs.n_errors()
        start = perf_counter()
        status = self._draft(plan.handle, context.ctx, self._state_address, root, least_p, *plan.addresses)
        context.native_seconds += perf_counter() - start
        if status != bindings.OK:
            raise EngineError(f"the heads drafted nothing: {logs.reason(mark, f'status {status}')}")
        top1 = tuple(plan.top1[: plan.n_top1].tolist())
        return HeadDraft(plan.tokens.copy(), plan.q.copy(), top1, int(plan.n_levels[0]))

    def draft_sampled(
        self, g: FloatArray, root: int, tree: StaticTree, temperature: float, rng: np.random.Generator
    ) -> SampledDraft:
        """As `ReferenceHeads.draft_sampled`, and by it: the library tells the best tokens, not the whole law."""
        return self._reference.draft_sampled(g, root, tree, temperature, rng)

    @cached_property
    def _reference(self) -> ReferenceHeads:
        return ReferenceHeads(read_heads(self._path), InputEmbeddings(self._base))

    def _plan(self, tree: StaticTree) -> _Plan:
        """The plan of a tree that was not met before, or only as an equal one."""
        check_tree(self.spec, tree)
        plan = self._plans.get(tree.paths)
        if plan is not None:
            return plan
        if len(self._plans) == MAX_PLANS:
            oldest = self._plans.pop(next(iter(self._plans)))
            del self._known[id(oldest.tree)]
            oldest.free()
        plan = self._plans[tree.paths] = self._known[id(tree)] = _Plan(self._lib, self._handle, tree)
        return plan

    def _check_open(self) -> None:
        if not self._free.alive:
            raise EngineError("these heads are closed")
        self._context.check_open()

    def close(self) -> None:
        """Free the weights and all plans. Idempotent."""
        self._free()


def _release(lib: Any, handle: int, plans: dict[tuple[tuple[int, ...], ...], _Plan]) -> None:
    for plan in plans.values():
        plan.free()
    lib.llama_heads_free(handle)
