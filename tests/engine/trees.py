"""Random trees, and plain decoding to compare them with: shared by the tests of the patched library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from localspec.engine import patched
from localspec.engine.base import FloatArray
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.engine.patched import PatchedContext
from tests.tiny_models import N_VOCAB

#: the marks of a module that tests the patched library
NEEDS_PATCHES = [
    pytest.mark.patched,
    pytest.mark.skipif(not patched.available(), reason="llama-cpp-python is not patched: pip install ./ggml_patches"),
]

#: attention without any rounding of K and V: flash attention would turn both into f16 whatever the cache holds
F32_ATTENTION: dict[str, Any] = {"type_k": "f32", "type_v": "f32", "flash_attn": False}
#: how far logits of the float models may then differ when sums run in another order; measured at most 3e-4,
#: where the logits have a standard deviation of 3
F32_TOLERANCE = 1e-3

MakePatched = Callable[..., PatchedContext]


def new_context(model: Model, native: dict[str, Any] | None = None, **params: Any) -> PatchedContext:
    """A context of the patched library; `native` are fields of llama_context_params beyond the product's own."""
    chosen = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1, "n_ubatch": 64, "n_batch": 256, **params}
    return PatchedContext(model, ContextParams(**chosen), **(native or {}))


def random_tokens(rng: np.random.Generator, n: int) -> list[int]:
    return [int(token) for token in rng.integers(5, N_VOCAB, n)]


def random_tree(rng: np.random.Generator, n: int, n_open: int = 0) -> tuple[list[int], list[int]]:
    """Tokens and parents of `n` nodes below a tree of `n_open` nodes, of any shape: bushy, deep or a chain."""
    style = rng.integers(3)
    parents = []
    for node in range(n_open, n_open + n):
        if node == 0 or (style == 0 and rng.random() < 0.1):
            parents.append(-1)
        elif style == 2:
            parents.append(node - 1)
        else:
            parents.append(int(rng.integers(max(0, node - (3 if style else node)), node)))
    return random_tokens(rng, n), parents


def path_to(parents: Sequence[int], node: int) -> list[int]:
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def one_by_one(ctx: PatchedContext, tokens: Sequence[int]) -> None:
    for token in tokens:
        ctx.decode([token], [-1])
        ctx.accept([0])


class PlainReference:
    """Rows of plain decoding: one token a call, always in a chain of its own."""

    def __init__(self, ctx: PatchedContext) -> None:
        self.ctx = ctx
        self._tokens: list[int] = []

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a chain with a prompt that is read in batches."""
        self.ctx.trim(0)
        self.ctx.prefill(prompt)
        self._tokens = list(prompt)

    def row(self, tokens: Sequence[int]) -> FloatArray:
        """Logits after `tokens`; the common beginning with the last call is kept."""
        common = 0
        for a, b in zip(self._tokens, tokens[:-1], strict=False):
            if a != b:
                break
            common += 1
        common = self.ctx.trim(common)
        one_by_one(self.ctx, tokens[common:-1])
        row = self.ctx.decode([tokens[-1]], [-1]).logits(0).copy()
        self.ctx.accept([0])
        self._tokens = list(tokens)
        return row


class Grown:
    """A tree that grows in several calls, with the row of each node."""

    def __init__(self, ctx: PatchedContext, rng: np.random.Generator, sizes: Sequence[int]) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.rows: list[FloatArray] = []
        for size in sizes:
            tokens, parents = random_tree(rng, size, len(self.tokens))
            result = ctx.decode(tokens, parents)
            self.tokens += tokens
            self.parents += parents
            self.rows += [result.logits(i).copy() for i in range(size)]

    def path(self, node: int) -> list[int]:
        return path_to(self.parents, node)

    def text(self, path: Sequence[int]) -> list[int]:
        return [self.tokens[node] for node in path]

    def depth_first(self) -> list[int]:
        """All nodes, so that neighbours share most of their paths."""
        return sorted(range(len(self.tokens)), key=self.path)


def assert_rows_of(
    tree: Grown, chain: list[int], reference: PlainReference, nodes: Sequence[int], tolerance: float = 0.0
) -> None:
    """These nodes have the rows of plain decoding: to the last bit, or within `tolerance`."""
    for node in nodes:
        expected = reference.row(chain + tree.text(tree.path(node)))
        if tolerance:
            np.testing.assert_allclose(tree.rows[node], expected, rtol=0, atol=tolerance)
        else:
            np.testing.assert_array_equal(tree.rows[node], expected)
