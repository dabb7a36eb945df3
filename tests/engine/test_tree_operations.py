"""Masks and row statistics that the graph of a tree decode makes itself: the same bits as those made on the host.

`LLAMA_TREE_MASK` and `LLAMA_TREE_STATS` choose for each context; the CPU has both operations.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from llama_cpp import llama_cpp as L

from localspec.engine import bindings
from localspec.engine.base import MAX_TOP_K, Growth
from localspec.engine.model import Model
from localspec.engine.patched import PatchedContext
from tests.engine.trees import F32_ATTENTION, NEEDS_PATCHES, MakePatched, path_to, random_tokens, random_tree
from tests.tiny_models import N_SWA

pytestmark = NEEDS_PATCHES

Models = dict[str, Model]


@pytest.fixture
def make_pair(make_patched: MakePatched, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`make_pair(model, ...)`: two contexts, with operations never and wherever they are possible."""

    def make(*arguments: Any, **params: Any) -> tuple[PatchedContext, PatchedContext]:
        made = []
        for choice in "01":
            monkeypatch.setenv("LLAMA_TREE_MASK", choice)
            monkeypatch.setenv("LLAMA_TREE_STATS", choice)
            made.append(make_patched(*arguments, **params))
        return made[0], made[1]

    return make


def assert_same(host: PatchedContext, graph: PatchedContext, growths: list[Growth], in_graph: bool = True) -> None:
    """Both contexts give all rows of a decode the same bits; the second with a mask of its graph, if `in_graph`."""
    n = sum(len(tokens) for tokens, _, _ in growths)
    expected, found = host.decode_many(growths), graph.decode_many(growths)
    for i in range(n):
        np.testing.assert_array_equal(found.logits(i), expected.logits(i))
    assert not host.mask_in_graph
    assert graph.mask_in_graph == in_graph


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@pytest.mark.parametrize("attention", [{}, F32_ATTENTION], ids=["flash", "f32"])
@pytest.mark.parametrize("in_place", ["0", "1"])
def test_masks_of_the_graph_have_the_bits_of_the_host(
    tiny_q4: Models,
    make_pair: Any,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    attention: dict[str, Any],
    in_place: str,
) -> None:
    """Trees that grow in several calls, accepted or dropped, beyond a sliding window and up to a full cache; with rows
    that are moved on acceptance and rows that stay where they are."""
    monkeypatch.setenv("LLAMA_KV_TREE_IN_PLACE", in_place)
    rng = np.random.default_rng(3)
    host, graph = pair = make_pair(tiny_q4[kind], **attention)
    n = 0
    for _ in range(40):
        sizes = [int(rng.integers(1, 24)) for _ in range(int(rng.integers(1, 4)))]
        if n == 0 or n + sum(sizes) > host.n_ctx:
            prompt = random_tokens(rng, int(rng.integers(1, 3 * N_SWA)))
            for ctx in pair:
                ctx.trim(0)
                ctx.prefill(prompt)
        parents: list[int] = []
        for size in sizes:
            tokens, more = random_tree(rng, size, len(parents))
            assert_same(host, graph, [(tokens, more, 0)])
            parents += more
        path = path_to(parents, int(rng.integers(len(parents))))
        for ctx in pair:
            ctx.drop() if len(path) % 3 == 0 else ctx.accept(path)
        n = host.n_past()


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@pytest.mark.parametrize("partitioned", [True, False])
def test_several_sequences_in_one_cache(tiny_q4: Models, make_pair: Any, kind: str, partitioned: bool) -> None:
    rng = np.random.default_rng(4)
    pair = make_pair(tiny_q4[kind], n_ctx=512, n_seq_max=4, shared_cells=True, partitioned=partitioned)
    for seq in range(3):  # the fourth stays empty
        prompt = random_tokens(rng, 20 + 17 * seq)
        for ctx in pair:
            ctx.prefill(prompt, seq)
    for _ in range(12):
        seqs = [int(seq) for seq in rng.permutation(4)[: int(rng.integers(1, 5))]]
        trees = [(*random_tree(rng, int(rng.integers(1, 12))), seq) for seq in seqs]
        assert_same(*pair, trees)
        for _, parents, seq in trees:
            path = path_to(parents, len(parents) - 1)[:3]
            for ctx in pair:
                ctx.accept(path, seq)


def test_cells_that_sequences_of_the_batch_share_need_the_host(tiny_q4: Models, make_pair: Any) -> None:
    """A cell of the map names one owner; alone, each of the sequences has its mask made by the graph."""
    rng = np.random.default_rng(5)
    pair = make_pair(tiny_q4["llama"], n_seq_max=2, shared_cells=True)
    prompt = random_tokens(rng, 30)
    for ctx in pair:
        ctx.prefill(prompt)
        L.llama_memory_seq_cp(L.llama_get_memory(ctx.ctx), 0, 1, 0, -1)
    trees = [(*random_tree(rng, 6), seq) for seq in range(2)]
    assert_same(*pair, trees, in_graph=False)
    for ctx in pair:
        ctx.drop(0)
        ctx.drop(1)
    for tree in trees:
        assert_same(*pair, [tree])


def test_a_cache_of_its_own_for_each_sequence_needs_the_host(tiny_q4: Models, make_pair: Any) -> None:
    rng = np.random.default_rng(6)
    pair = make_pair(tiny_q4["llama"], n_seq_max=2, shared_cells=False)
    assert_same(*pair, [(*random_tree(rng, 5), 1)], in_graph=False)


def test_another_tree_of_the_same_size_builds_no_graph(tiny_q4: Models, make_pair: Any) -> None:
    rng = np.random.default_rng(7)
    _, graph = make_pair(tiny_q4["gemma3"])
    graph.prefill(random_tokens(rng, 10))
    graph.decode(*random_tree(rng, 16))
    graph.drop()
    builds = graph.graph_builds
    for _ in range(10):
        graph.decode(*random_tree(rng, 16))
        graph.accept([0])
    assert graph.mask_in_graph
    assert graph.stats_in_graph
    assert graph.graph_builds == builds


def test_statistics_of_the_graph_are_those_of_the_rows(tiny_q4: Models, make_pair: Any) -> None:
    rng = np.random.default_rng(8)
    pair = make_pair(tiny_q4["llama"])
    for size in (1, 5, 40):
        tree = random_tree(rng, size)
        expected, found = (ctx.decode(*tree) for ctx in pair)
        assert [ctx.stats_in_graph for ctx in pair] == [False, True]
        for i in range(size):
            assert found.top_k(i, MAX_TOP_K) == expected.top_k(i, MAX_TOP_K)
            assert found.argmax(i) == expected.argmax(i) == int(np.argmax(expected.logits(i)))
            # the code of the operation computes both
            assert (found.logsumexp(i), found.entropy(i)) == (expected.logsumexp(i), expected.entropy(i))
            row = expected.logits(i).astype(np.float64)
            lse = row.max() + np.log(np.exp(row - row.max()).sum())
            assert found.logsumexp(i) == pytest.approx(lse, rel=1e-5)
            assert found.entropy(i) == pytest.approx(-(np.exp(row - lse) * (row - lse)).sum(), rel=1e-4)
        for ctx in pair:
            ctx.drop()
    assert [ctx.bus_bytes for ctx in pair] == [(0, 0), (0, 0)]  # this memory is the host's


def test_rows_without_statistics_are_read_as_before(tiny_q4: Models, make_pair: Any) -> None:
    """More candidates than the graph computed, a tree in several passes, statistics turned off."""
    rng = np.random.default_rng(9)
    host, graph = make_pair(tiny_q4["llama"], n_ubatch=32)
    lib = graph.lib
    assert lib.llama_tree_set_stats(graph.ctx, 2) == bindings.OK
    small, large = random_tree(rng, 8), random_tree(rng, 50)
    for tree, in_graph in ((small, True), (large, False)):
        expected, found = host.decode(*tree), graph.decode(*tree)
        assert graph.stats_in_graph == in_graph
        for i in range(len(tree[0])):
            assert found.top_k(i, 7) == expected.top_k(i, 7)
            assert found.entropy(i) == expected.entropy(i)
        host.drop()
        graph.drop()
    assert lib.llama_tree_set_stats(graph.ctx, 0) == bindings.OK
    graph.decode(*small)
    assert not graph.stats_in_graph
    assert lib.llama_tree_set_stats(graph.ctx, MAX_TOP_K + 1) == bindings.INVALID
    assert lib.llama_tree_set_stats(graph.ctx, -1) == bindings.INVALID


@pytest.mark.model
def test_many_rows_at_once_have_the_statistics_of_each_alone(model: Model, make_patched: MakePatched) -> None:
    """Enough rows of a real vocabulary for the native code to use its threads."""
    rng = np.random.default_rng(10)
    ctx = make_patched(model, n_threads=2, n_threads_batch=2)
    n, k = 40, 5
    parents = random_tree(rng, n)[1]
    rows = ctx.decode([int(token) for token in rng.integers(0, model.n_vocab, n)], parents)
    nodes = rng.permutation(n).astype(np.int32)
    ids, logits = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
    lse, entropy = np.empty(n, np.float32), np.empty(n, np.float32)
    addresses = [ctypes.c_void_p(array.ctypes.data) for array in (nodes, ids, logits, lse, entropy)]
    assert ctx.lib.llama_tree_stats(ctx.ctx, n, addresses[0], k, *addresses[1:]) == bindings.OK
    for at, node in enumerate(nodes):
        assert (ids[at].tolist(), logits[at].tolist()) == rows.top_k(int(node), k)
        assert (lse[at], entropy[at]) == (rows.logsumexp(int(node)), rows.entropy(int(node)))
