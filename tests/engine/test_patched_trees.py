"""The patched library against plain decoding: every node's row, and what follows an accepted path.

The tiny models have Q4_1 weights, so on the CPU rows are compared bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from localspec.engine.model import Model
from localspec.errors import UsageError
from tests.engine.trees import (
    F32_ATTENTION,
    F32_TOLERANCE,
    NEEDS_PATCHES,
    Grown,
    MakePatched,
    PlainReference,
    assert_rows_of,
    one_by_one,
    path_to,
    random_tokens,
    random_tree,
)
from tests.tiny_models import N_SWA

pytestmark = NEEDS_PATCHES

Models = dict[str, Model]

#: one cache that drops what left the window, and one that keeps all: a clean chain for a model with a sliding window
KEEP_ALL = {"swa_full": True}


def small(rng: np.random.Generator) -> list[int]:
    """Sizes of up to three calls that make a tree of at most 12 nodes."""
    return [int(rng.integers(1, 5)) for _ in range(int(rng.integers(1, 4)))]


def large(rng: np.random.Generator) -> list[int]:
    """Sizes of one or two calls, up to 63 nodes each."""
    return [int(rng.integers(13, 64)) for _ in range(int(rng.integers(1, 3)))]


# 400 small trees with all their nodes and 120 large ones with a sample; the long contexts below come on top
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@pytest.mark.parametrize(("draw", "n_trees", "n_checked"), [(small, 200, 12), (large, 60, 8)], ids=["small", "large"])
def test_random_trees_have_the_rows_of_plain_decoding(
    tiny_q4: Models,
    make_patched: MakePatched,
    kind: str,
    draw: Callable[[np.random.Generator], list[int]],
    n_trees: int,
    n_checked: int,
) -> None:
    """Grown in several calls, accepted or dropped, again and again up to a full cache."""
    rng = np.random.default_rng(7)
    ctx, reference = make_patched(tiny_q4[kind]), PlainReference(make_patched(tiny_q4[kind], KEEP_ALL))
    chain: list[int] = []
    for _ in range(n_trees):
        sizes = draw(rng)
        if not chain or len(chain) + sum(sizes) > ctx.n_ctx:
            chain = random_tokens(rng, int(rng.integers(1, 100)))
            ctx.trim(0)
            one_by_one(ctx, chain)
        tree = Grown(ctx, rng, sizes)
        nodes = tree.depth_first()
        if len(nodes) > n_checked:
            nodes = [nodes[i] for i in sorted(rng.choice(len(nodes), n_checked, replace=False))]
        assert_rows_of(tree, chain, reference, nodes)
        if rng.random() < 0.2:
            ctx.drop()
            continue
        path = tree.path(int(rng.integers(len(tree.tokens))))[: int(rng.integers(1, 9))]
        ctx.accept(path)
        chain += tree.text(path)
        assert ctx.n_past() == len(chain)
        np.testing.assert_array_equal(ctx.cells(), np.arange(len(chain)))


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_rows_of_a_long_context_are_those_of_plain_decoding(
    tiny_q4: Models, make_patched: MakePatched, kind: str, n_threads: int
) -> None:
    """Beyond 512 cells stock flash attention rounds a single row otherwise than several; the patched one does not."""
    rng = np.random.default_rng(17)
    model = tiny_q4[kind]
    ctx = make_patched(model, n_ctx=1024, n_threads=n_threads)
    reference = PlainReference(make_patched(model, KEEP_ALL, n_ctx=1024, n_threads=n_threads))
    chain = random_tokens(rng, 521)
    ctx.prefill(chain)
    reference.start(chain)
    for sizes in [small(rng) for _ in range(20)] + [[63], [40, 20]]:
        tree = Grown(ctx, rng, sizes)
        nodes = tree.depth_first()
        assert_rows_of(tree, chain, reference, nodes[:: 1 + len(nodes) // 12])
        path = tree.path(len(tree.tokens) - 1)[:8]
        ctx.accept(path)
        chain += tree.text(path)
    assert len(chain) > 540


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_sixty_four_nodes_in_one_call_have_the_rows_of_plain_decoding(
    tiny: Models, tiny_q4: Models, make_patched: MakePatched, kind: str
) -> None:
    """To the last bit in two physical batches of 32; in one of 64 attention sums in another order."""
    for model, params, tolerance in (
        (tiny_q4[kind], {"n_ubatch": 32}, 0.0),
        (tiny[kind], F32_ATTENTION, F32_TOLERANCE),
    ):
        rng = np.random.default_rng(19)
        ctx = make_patched(model, **params)
        reference = PlainReference(make_patched(model, KEEP_ALL, **params))
        chain = random_tokens(rng, 40)
        one_by_one(ctx, chain)
        tree = Grown(ctx, rng, [64])
        assert_rows_of(tree, chain, reference, tree.depth_first(), tolerance)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_twenty_tokens_after_an_accepted_tree_equal_a_clean_context(
    tiny_q4: Models, make_patched: MakePatched, kind: str
) -> None:
    rng = np.random.default_rng(3)
    for _ in range(10):
        ctx, clean = make_patched(tiny_q4[kind]), make_patched(tiny_q4[kind])
        chain = random_tokens(rng, 30)
        one_by_one(ctx, chain)
        tree = Grown(ctx, rng, [16, 8])
        path = tree.path(int(rng.integers(24)))
        ctx.accept(path)
        one_by_one(clean, chain + tree.text(path))
        for token in random_tokens(rng, 20):
            ours, theirs = ctx.decode([token], [-1]).logits(0), clean.decode([token], [-1]).logits(0)
            np.testing.assert_array_equal(ours, theirs)
            ctx.accept([0])
            clean.accept([0])


def test_a_sliding_window_keeps_what_the_root_needs(tiny_q4: Models, make_patched: MakePatched) -> None:
    """Trees across many windows, in a window cache that is reused in rings, equal a chain in a cache that keeps all."""
    model = tiny_q4["gemma3"]
    rng = np.random.default_rng(11)
    ctx, reference = make_patched(model, n_ctx=1024), PlainReference(make_patched(model, KEEP_ALL, n_ctx=1024))
    chain: list[int] = []
    while len(chain) < 8 * N_SWA:
        tree = Grown(ctx, rng, [int(rng.integers(1, 9)), int(rng.integers(1, 9))])
        path = tree.path(len(tree.tokens) - 1)
        nodes = [int(rng.integers(len(tree.tokens))), path[-1]]
        assert_rows_of(tree, chain, reference, sorted(nodes, key=tree.path))
        if rng.random() < 0.3:
            ctx.drop()
        else:
            ctx.accept(path)
            chain += tree.text(path)


# With a cache, or a part of one, for each sequence the rows keep their bits. One cache for all interleaves the cells of
# the sequences, so sums run in another order: with nothing quantised that changes little.
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@pytest.mark.parametrize("cache", ["streams", "parts", "unified"])
def test_trees_in_company_have_the_rows_that_they_have_alone(
    tiny: Models, tiny_q4: Models, make_patched: MakePatched, kind: str, cache: str
) -> None:
    """Three sequences with trees of their own in each decode: P17, what others ask does not change the answer."""
    unified = cache == "unified"
    model, params, tolerance = (tiny[kind], F32_ATTENTION, F32_TOLERANCE) if unified else (tiny_q4[kind], {}, 0.0)
    rng = np.random.default_rng(5)
    settings = {"kv_unified": cache != "streams"}
    shared = make_patched(model, settings, n_ctx=768, n_seq_max=3, partitioned=cache == "parts", **params)
    alone = [make_patched(model, **params) for _ in range(3)]
    for seq in range(3):
        chain = random_tokens(rng, 5 + 4 * seq)
        shared.prefill(chain, seq)
        alone[seq].prefill(chain)
    for _ in range(20):
        growths = [(*random_tree(rng, int(rng.integers(1, 7))), seq) for seq in range(3)]
        rows = shared.decode_many(growths)
        offset = 0
        for tokens, parents, seq in growths:
            expected = alone[seq].decode(tokens, parents)
            for i in range(len(tokens)):
                np.testing.assert_allclose(rows.logits(offset + i), expected.logits(i), rtol=0, atol=tolerance)
            offset += len(tokens)
            path = path_to(parents, int(rng.integers(len(tokens))))
            dropped = rng.random() < 0.2
            for each, number in ((shared, seq), (alone[seq], 0)):
                if dropped:
                    each.drop(number)
                else:
                    each.accept(path, number)
            assert shared.n_past(seq) == alone[seq].n_past()


@pytest.mark.parametrize(
    ("params", "tolerance"),
    [({"type_k": "q8_0", "type_v": "q8_0"}, 0.0), ({"type_k": "f32"}, 0.0), ({"flash_attn": False}, 1e-2)],
    ids=["q8_0", "f32", "no flash attention"],
)
def test_other_caches_accept_trees_as_well(
    tiny: Models, tiny_q4: Models, make_patched: MakePatched, params: dict[str, Any], tolerance: float
) -> None:
    """Quantised K/V, and the transposed V of attention without flash attention: rows move with the right strides."""
    rng = np.random.default_rng(9)
    # where sums run in another order, weights that are not quantised: else a last bit may flip a rounding
    model = (tiny if tolerance else tiny_q4)["llama"]
    ctx = make_patched(model, **params)
    reference = PlainReference(make_patched(model, **params))
    chain = random_tokens(rng, 10)
    one_by_one(ctx, chain)
    for _ in range(15):
        tree = Grown(ctx, rng, [9])
        path = tree.path(int(rng.integers(9)))
        ctx.accept(path)
        chain += tree.text(path)
        row = ctx.decode([20], [-1]).logits(0).copy()
        ctx.drop()
        np.testing.assert_allclose(row, reference.row([*chain, 20]), rtol=0, atol=tolerance)


def test_rows_that_stay_in_place_give_the_same_results(
    tiny: Models, make_patched: MakePatched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a cache in device memory does: accepted rows are not moved, so cells are no longer in position order."""
    # nothing is quantised: another order of summation differs by little
    model = tiny["llama"]
    monkeypatch.setenv("LLAMA_KV_TREE_IN_PLACE", "1")
    ctx = make_patched(model, **F32_ATTENTION)
    monkeypatch.delenv("LLAMA_KV_TREE_IN_PLACE")
    reference = PlainReference(make_patched(model, **F32_ATTENTION))
    rng = np.random.default_rng(6)
    chain = random_tokens(rng, 10)
    ctx.prefill(chain)
    scattered = False
    while len(chain) < 200:
        tree = Grown(ctx, rng, [9])
        path = tree.path(int(rng.integers(9)))
        ctx.accept(path)
        chain += tree.text(path)
        scattered |= bool((np.diff(ctx.cells()) != 1).any())
        row = ctx.decode([20], [-1]).logits(0).copy()
        ctx.drop()
        np.testing.assert_allclose(row, reference.row([*chain, 20]), rtol=0, atol=F32_TOLERANCE)
    assert scattered


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_rows_that_stay_in_place_in_company_give_the_same_results(
    tiny: Models, make_patched: MakePatched, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Each sequence fills the gaps in its own part of the cache, until a part is full."""
    model = tiny[kind]
    monkeypatch.setenv("LLAMA_KV_TREE_IN_PLACE", "1")
    shared = make_patched(model, {"kv_unified": True}, n_ctx=512, n_seq_max=2, partitioned=True, **F32_ATTENTION)
    monkeypatch.delenv("LLAMA_KV_TREE_IN_PLACE")
    reference = PlainReference(make_patched(model, KEEP_ALL, **F32_ATTENTION))
    rng = np.random.default_rng(8)
    chains = [random_tokens(rng, 10), random_tokens(rng, 40)]
    for seq, chain in enumerate(chains):
        shared.prefill(chain, seq)
    while max(map(len, chains)) + 9 <= shared.n_ctx:
        growths = [(*random_tree(rng, 9), seq) for seq in range(2)]
        rows = shared.decode_many(growths)
        for tokens, parents, seq in growths:
            path = path_to(parents, int(rng.integers(9)))
            chains[seq] += [tokens[node] for node in path]
            expected = reference.row(chains[seq])
            np.testing.assert_allclose(rows.logits(9 * seq + path[-1]), expected, rtol=0, atol=F32_TOLERANCE)
            shared.accept(path, seq)
    cells = [shared.cells(seq) for seq in range(2)]
    assert any((np.diff(each) != 1).any() for each in cells)
    assert [int(each.max()) // shared.n_ctx for each in cells] == [0, 1]


def test_a_prompt_read_in_pieces_in_its_part_of_the_cache_is_that_of_one_alone(
    tiny_q4: Models, make_patched: MakePatched
) -> None:
    """Pieces of a tile or more, another sequence in between, and a copied prefix: the same rows to the last bit."""
    rng = np.random.default_rng(3)
    model = tiny_q4["llama"]
    prompt = random_tokens(rng, 300)
    alone = make_patched(model, n_ctx=512)
    alone.prefill(prompt)
    expected = alone.decode([7], [-1]).logits(0).copy()
    shared = make_patched(model, {"kv_unified": True}, n_ctx=3 * 512, n_seq_max=3, partitioned=True)
    for begin, end in ((0, 64), (64, 192), (192, 300)):
        shared.prefill(prompt[begin:end], 1)
        shared.prefill(random_tokens(rng, 20), 0)
    np.testing.assert_array_equal(shared.decode([7], [-1], 1).logits(0), expected)
    shared.drop(1)
    assert shared.copy_prefix(1, 2, 300)
    np.testing.assert_array_equal(shared.decode([7], [-1], 2).logits(0), expected)
    assert list(shared.cells(2)) == list(range(1024, 1325))
    with pytest.raises(UsageError, match="cannot begin"):
        shared.copy_prefix(0, 1, 10)
