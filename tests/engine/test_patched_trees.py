"""The patched library against plain decoding: every node's row, every accepted cache, every way out of a tree.

The tiny models have Q4_1 weights, so on the CPU rows are compared bit by bit as long as attention takes the same path
for one token and for several, which the stock kernels do below 512 cells.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from localspec.engine import bindings, patched
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.engine.patched import PatchedContext
from localspec.errors import ContextLengthError, EngineError, UsageError
from tests.tiny_models import N_SWA, N_VOCAB, write_tiny

pytestmark = [
    pytest.mark.patched,
    pytest.mark.skipif(not patched.available(), reason="llama-cpp-python is not patched"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    loaded = {kind: Model.load(write_tiny(folder / f"{kind}.gguf", kind)) for kind in ("llama", "gemma3", "mamba")}
    yield loaded
    for model in loaded.values():
        model.close()


def context(model, n_ctx=256, **params):
    return PatchedContext(model, ContextParams(n_ctx=n_ctx, n_threads=1, n_ubatch=64, n_batch=256, **params))


def random_tree(rng, n, n_open=0):
    """Tokens and parents of n nodes below a tree of n_open nodes, of any shape: bushy, deep or a chain."""
    style = rng.integers(3)
    parents = []
    for node in range(n_open, n_open + n):
        if node == 0 or (style == 0 and rng.random() < 0.1):
            parents.append(-1)
        elif style == 2:
            parents.append(node - 1)
        else:
            parents.append(int(rng.integers(max(0, node - (3 if style else node)), node)))
    return rng.integers(5, N_VOCAB, n).tolist(), parents


def path_to(parents, node):
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


class PlainReference:
    """Rows of plain decoding: one token at a time, always in a chain of their own."""

    def __init__(self, model, **params):
        self.ctx = context(model, **params)
        self.tokens = []

    def row(self, tokens):
        """Logits after `tokens`; the common beginning with the last call is kept."""
        common = 0
        for a, b in zip(self.tokens, tokens[:-1], strict=False):
            if a != b:
                break
            common += 1
        common = self.ctx.trim(common)
        for token in tokens[common:-1]:
            self.ctx.decode([token], [-1])
            self.ctx.accept([0])
        row = self.ctx.decode([tokens[-1]], [-1]).logits(0).copy()
        self.ctx.accept([0])
        self.tokens = list(tokens)
        return row


def one_by_one(ctx, tokens):
    for token in tokens:
        ctx.decode([token], [-1])
        ctx.accept([0])


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_random_trees_have_the_rows_of_plain_decoding(models, kind):
    """Grown in several calls, accepted or dropped again and again up to a full cache: bit-equal to a clean chain."""
    rng = np.random.default_rng(7)
    n_trees = 0
    reference = PlainReference(models[kind])
    for _round in range(14):
        ctx = context(models[kind])
        chain = rng.integers(5, N_VOCAB, int(rng.integers(1, 40))).tolist()
        one_by_one(ctx, chain)
        while True:
            n_calls = int(rng.integers(1, 4))
            sizes = [int(rng.integers(1, 9)) for _ in range(n_calls)]
            if len(chain) + sum(sizes) > ctx.n_ctx:
                break
            tokens, parents, rows = [], [], []
            for size in sizes:
                more_tokens, more_parents = random_tree(rng, size, len(tokens))
                result = ctx.decode(more_tokens, more_parents)
                tokens += more_tokens
                parents += more_parents
                rows += [result.logits(i).copy() for i in range(size)]
            n_trees += 1
            for node in rng.permutation(len(tokens))[:2]:
                path = path_to(parents, int(node))
                expected = reference.row(chain + [tokens[i] for i in path])
                np.testing.assert_array_equal(rows[node], expected)
            if rng.random() < 0.2:
                ctx.drop()
                continue
            path = path_to(parents, int(rng.integers(len(tokens))))[: int(rng.integers(1, 9))]
            ctx.accept(path)
            chain += [tokens[i] for i in path]
            assert ctx.n_past() == len(chain)
            if kind == "llama":
                np.testing.assert_array_equal(ctx.cells(), np.arange(len(chain)))
        ctx.close()
    assert n_trees >= 250


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_twenty_tokens_after_an_accepted_tree_equal_a_clean_context(models, kind):
    rng = np.random.default_rng(3)
    for _ in range(10):
        ctx, clean = context(models[kind]), context(models[kind])
        chain = rng.integers(5, N_VOCAB, 30).tolist()
        one_by_one(ctx, chain)
        tokens, parents = random_tree(rng, 24)
        ctx.decode(tokens, parents)
        path = path_to(parents, int(rng.integers(24)))
        ctx.accept(path)
        one_by_one(clean, chain + [tokens[i] for i in path])
        for token in rng.integers(5, N_VOCAB, 20).tolist():
            ours, theirs = ctx.decode([token], [-1]).logits(0), clean.decode([token], [-1]).logits(0)
            np.testing.assert_array_equal(ours, theirs)
            ctx.accept([0])
            clean.accept([0])
        ctx.close()
        clean.close()


def test_a_sliding_window_keeps_what_the_root_needs(models):
    """Trees across many windows, in a window cache that is reused in rings, equal a chain in a cache that keeps all.

    All decodes have two nodes or more: beyond 512 cells the stock attention of a single token rounds differently.
    """
    model = models["gemma3"]
    rng = np.random.default_rng(11)
    ctx = context(model, n_ctx=1024)
    full = made_with(model, ContextParams(n_ctx=1024, n_threads=1, n_ubatch=64, n_batch=256), swa_full=True)

    def extend(tokens):
        for token in tokens:
            full.decode([token, 5], [-1, -1])
            full.accept([0])

    chain = []
    while len(chain) + 24 < 6 * N_SWA:
        tokens, parents = [], []
        for size in (int(rng.integers(2, 9)), int(rng.integers(2, 9))):
            more_tokens, more_parents = random_tree(rng, size, len(tokens))
            rows = ctx.decode(more_tokens, more_parents)
            last = rows.logits(size - 1).copy()
            tokens, parents = tokens + more_tokens, parents + more_parents
        path = path_to(parents, len(tokens) - 1)
        extend([tokens[i] for i in path[:-1]])
        expected = full.decode([tokens[path[-1]], 5], [-1, -1]).logits(0).copy()
        np.testing.assert_array_equal(last, expected)
        full.trim(len(chain))
        if rng.random() < 0.3:
            ctx.drop()
        else:
            ctx.accept(path)
            chain += [tokens[i] for i in path]
            extend([tokens[i] for i in path])
    assert len(chain) > 4 * N_SWA
    ctx.close()
    full.close()


def made_with(model, params, **settings):
    """A context made by the product's own code, with a few native settings more."""
    return PatchedContext(model, params, **settings)


# one cache for all sequences interleaves their cells, so sums run in another order; with a cache each they do not
@pytest.mark.parametrize(("unified", "tolerance"), [(True, 0.3), (False, 0.0)])
def test_sequences_with_trees_of_their_own_share_a_decode(models, unified, tolerance):
    model = models["llama"]
    rng = np.random.default_rng(5)
    params = ContextParams(n_ctx=768, n_threads=1, n_ubatch=64, n_batch=256, n_seq_max=3)
    shared = made_with(model, params, kv_unified=unified)
    alone = [context(model) for _ in range(3)]
    for seq in range(3):
        chain = rng.integers(5, N_VOCAB, 5 + 4 * seq).tolist()
        shared.prefill(chain, seq)
        alone[seq].prefill(chain)
    for _ in range(10):
        trees = [(*random_tree(rng, int(rng.integers(1, 7))), seq) for seq in range(3)]
        rows = shared.decode_many(trees)
        start = 0
        for tokens, parents, seq in trees:
            expected = alone[seq].decode(tokens, parents)
            for i in range(len(tokens)):
                np.testing.assert_allclose(rows.logits(start + i), expected.logits(i), atol=tolerance, rtol=0)
            start += len(tokens)
            path = path_to(parents, int(rng.integers(len(tokens))))
            shared.accept(path, seq)
            alone[seq].accept(path)
    assert [shared.n_past(seq) for seq in range(3)] == [ctx.n_past() for ctx in alone]
    for ctx in (shared, *alone):
        ctx.close()


def test_changing_the_tree_builds_no_graph_for_a_size_seen_before(models):
    rng = np.random.default_rng(2)
    ctx = context(models["llama"])
    ctx.prefill(rng.integers(5, N_VOCAB, 20).tolist())
    sizes = [1, 4, 7, 16, 2]
    for size in sizes:
        ctx.decode(*random_tree(rng, size))
        ctx.drop()
    before = ctx.graph_builds
    for _ in range(20):
        size = int(rng.choice(sizes))
        ctx.decode(*random_tree(rng, size))
        ctx.drop()
    assert ctx.graph_builds == before
    ctx.decode(*random_tree(rng, 9))
    assert ctx.graph_builds == before + 1
    ctx.close()


def test_a_tree_of_256_nodes_works_and_one_more_is_refused(models):
    rng = np.random.default_rng(1)
    ctx = context(models["llama"], n_ctx=512)
    ctx.prefill([7, 8, 9])
    tokens, parents = random_tree(rng, 256)
    assert len(ctx.decode(tokens, parents)) == 256
    with pytest.raises(UsageError, match="256 nodes"):
        ctx.decode([5], [0])
    assert ctx.n_past() == 3
    np.testing.assert_array_equal(ctx.cells(), np.arange(3))
    ctx.close()


def test_a_full_cache_says_so_and_leaves_a_plain_chain(models):
    ctx = context(models["llama"])
    ctx.prefill([10] * 250)
    ctx.decode([11, 12, 13], [-1, 0, 0])
    with pytest.raises(ContextLengthError, match="no room for 8"):
        ctx.decode([14] * 8, [0] * 8)
    np.testing.assert_array_equal(ctx.cells(), np.arange(250))
    ctx.decode([11, 12], [-1, 0])
    ctx.accept([0, 1])
    assert ctx.n_past() == 252
    ctx.close()


def test_an_aborted_evaluation_leaves_a_plain_chain(models):
    from llama_cpp import llama_cpp as native

    ctx, clean = context(models["llama"]), context(models["llama"])
    for each in (ctx, clean):
        each.prefill(list(range(20, 60)))
    ctx.decode([11, 12, 13], [-1, 0, 0])
    abort = native.ggml_abort_callback(lambda _data: True)
    native.llama_set_abort_callback(ctx.ctx, abort, None)
    with pytest.raises(EngineError, match="aborted"):
        ctx.decode([14, 15], [1, 1])
    native.llama_set_abort_callback(ctx.ctx, native.ggml_abort_callback(0), None)
    np.testing.assert_array_equal(ctx.cells(), np.arange(40))
    np.testing.assert_array_equal(ctx.decode([9], [-1]).logits(0), clean.decode([9], [-1]).logits(0))
    ctx.close()
    clean.close()


@pytest.mark.parametrize(
    "bad", [([5, 6], [-1, 1]), ([5, 6], [-1, -2]), ([5, N_VOCAB], [-1, 0]), ([-1], [-1]), ([5], [0])]
)
def test_bad_nodes_are_refused_and_nothing_happens(models, bad):
    ctx = context(models["llama"])
    ctx.prefill([7, 8])
    with pytest.raises(UsageError):
        ctx.decode(*bad)
    assert ctx.n_past() == 2
    np.testing.assert_array_equal(ctx.cells(), np.arange(2))
    ctx.close()


def test_a_path_that_is_none_is_refused(models):
    ctx = context(models["llama"])
    for path in ([1], [0, 2, 1], [0, 3], [7], [0, 0]):
        ctx.decode([5, 6, 7, 8], [-1, 0, 0, 1])
        with pytest.raises(UsageError, match="not a path"):
            ctx.accept(path)
        assert ctx.n_past() == 0
    with pytest.raises(UsageError, match="not a path"):
        ctx.accept([0])
    ctx.close()


def test_an_ordinary_decode_under_an_open_tree_is_refused(models):
    from llama_cpp import llama_cpp as native

    ctx = context(models["llama"])
    ctx.prefill([7, 8])
    ctx.decode([5, 6], [-1, 0])
    token = (ctypes.c_int32 * 1)(9)
    assert native.llama_decode(ctx.ctx, native.llama_batch_get_one(token, 1)) == -1
    ctx.accept([0, 1])
    assert native.llama_decode(ctx.ctx, native.llama_batch_get_one(token, 1)) == 0
    ctx.close()


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@pytest.mark.parametrize("change", ["seq_rm", "seq_cp", "seq_keep", "seq_add", "clear"])
def test_memory_operations_close_a_tree_they_reach_into(models, kind, change):
    from llama_cpp import llama_cpp as native

    ctx = context(models[kind], n_seq_max=2)
    memory = native.llama_get_memory(ctx.ctx)
    arguments = {
        "seq_rm": (0, 2, -1),
        "seq_cp": (0, 1, -1, -1),
        "seq_keep": (0,),
        "seq_add": (0, 0, -1, 1),
        "clear": (False,),
    }
    ctx.prefill([7, 8, 9, 10])
    ctx.decode([5, 6, 7], [-1, 0, 0])
    assert ctx.lib.llama_tree_n_nodes(ctx.ctx, 0) == 3
    getattr(native, f"llama_memory_{change}")(memory, *arguments[change])
    assert ctx.lib.llama_tree_n_nodes(ctx.ctx, 0) == -1
    assert len(ctx.cells()) <= 4
    ctx.close()


def test_a_state_with_an_open_tree_is_not_saved(models):
    from llama_cpp import llama_cpp as native

    ctx = context(models["llama"])
    ctx.prefill([7, 8, 9])
    size = native.llama_state_seq_get_size(ctx.ctx, 0)
    assert size > 0
    ctx.decode([5, 6], [-1, 0])
    assert native.llama_state_seq_get_size(ctx.ctx, 0) == 0
    ctx.accept([0])
    assert native.llama_state_seq_get_size(ctx.ctx, 0) > size
    ctx.close()


@pytest.mark.parametrize("params", [{"type_k": "q8_0", "type_v": "q8_0"}, {"flash_attn": False}, {"type_k": "f32"}])
def test_other_caches_accept_trees_as_well(models, params):
    """Quantised K/V, and the transposed V of attention without flash attention: rows move with the right strides."""
    rng = np.random.default_rng(9)
    reference = PlainReference(models["llama"], **params)
    ctx = context(models["llama"], **params)
    chain = rng.integers(5, N_VOCAB, 10).tolist()
    one_by_one(ctx, chain)
    for _ in range(15):
        tokens, parents = random_tree(rng, 9)
        ctx.decode(tokens, parents)
        path = path_to(parents, int(rng.integers(9)))
        ctx.accept(path)
        chain += [tokens[i] for i in path]
        row = ctx.decode([20], [-1]).logits(0).copy()
        ctx.drop()
        np.testing.assert_allclose(row, reference.row([*chain, 20]), atol=5e-2)
    ctx.close()


def test_rows_that_stay_in_place_give_the_same_results(tmp_path, monkeypatch):
    """What a cache in device memory does: accepted rows are not moved, so cells are no longer in position order."""
    # nothing is quantised: another order of summation differs by little
    model = Model.load(write_tiny(tmp_path / "f32.gguf", quantised=False))
    params = {"type_k": "f32", "type_v": "f32"}
    monkeypatch.setenv("LLAMA_KV_TREE_IN_PLACE", "1")
    ctx = context(model, **params)
    monkeypatch.delenv("LLAMA_KV_TREE_IN_PLACE")
    reference = PlainReference(model, **params)
    rng = np.random.default_rng(6)
    chain = rng.integers(5, N_VOCAB, 10).tolist()
    ctx.prefill(chain)
    scattered = False
    while len(chain) < 200:
        tokens, parents = random_tree(rng, 9)
        ctx.decode(tokens, parents)
        path = path_to(parents, int(rng.integers(9)))
        ctx.accept(path)
        chain += [tokens[i] for i in path]
        scattered |= bool((np.diff(ctx.cells()) != 1).any())
        row = ctx.decode([20], [-1]).logits(0).copy()
        ctx.drop()
        np.testing.assert_allclose(row, reference.row([*chain, 20]), atol=5e-2)
    assert scattered
    model.close()


def test_row_statistics_equal_numpy(models):
    ctx = context(models["llama"])
    ctx.prefill(list(range(30, 50)))
    rows = ctx.decode(*random_tree(np.random.default_rng(4), 12))
    for i in range(12):
        row = rows.logits(i).astype(np.float64)
        order = np.lexsort((np.arange(len(row)), -row))
        for k in (1, 5, 16):
            ids, logits = rows.top_k(i, k)
            np.testing.assert_array_equal(ids, order[:k])
            np.testing.assert_array_equal(logits, rows.logits(i)[ids])
        p = np.exp(row - row.max())
        lse = np.log(p.sum()) + row.max()
        p /= p.sum()
        assert rows.logsumexp(i) == pytest.approx(lse, rel=1e-6)
        assert rows.entropy(i) == pytest.approx(-(p * np.log(p)).sum(), rel=1e-5)
        assert rows.argmax(i) == order[0]
    ctx.close()


def test_rows_of_an_earlier_decode_are_refused(models):
    ctx = context(models["llama"])
    rows = ctx.decode([5], [-1])
    ctx.accept([0])
    assert rows.argmax(0) >= 0  # rows outlive accept
    ctx.decode([6], [-1])
    with pytest.raises(EngineError, match="earlier decode"):
        rows.logits(0)
    ctx.close()


def test_hidden_states_are_those_of_plain_decoding(models):
    for kind in ("llama", "gemma3"):
        ctx, plain = context(models[kind]), context(models[kind])
        for each in (ctx, plain):
            each.prefill(list(range(30, 50)))
        hidden = ctx.decode([5, 6, 7, 8], [-1, 0, 0, 2]).hidden(3)
        one_by_one(plain, [5, 7])
        np.testing.assert_allclose(hidden, plain.decode([8], [-1]).hidden(0), atol=1e-5)
        ctx.close()
        plain.close()


def test_a_tree_larger_than_a_ubatch_gives_the_same_rows(models):
    """Several physical batches: rows and hidden states come from copies, in node order."""
    rng = np.random.default_rng(8)
    tokens, parents = random_tree(rng, 50)
    small = PatchedContext(models["llama"], ContextParams(n_ctx=256, n_threads=1, n_ubatch=16, n_batch=256))
    large = PatchedContext(models["llama"], ContextParams(n_ctx=256, n_threads=1, n_ubatch=256, n_batch=256))
    rows, expected = small.decode(tokens, parents), large.decode(tokens, parents)
    for i in range(50):
        np.testing.assert_array_equal(rows.logits(i), expected.logits(i))
        np.testing.assert_allclose(rows.hidden(i), expected.hidden(i), atol=1e-5)
    small.close()
    large.close()


def test_a_recurrent_model_is_refused_by_name_and_runs_plain(models):
    model = models["mamba"]
    refused = context(model)
    assert refused.max_nodes == 1
    assert "recurrent" in (refused.tree_limit_reason or "")
    with pytest.raises(EngineError, match="recurrent"):
        refused.decode([5], [-1])
    refused.close()
    plain = model.new_context(ContextParams(n_ctx=256, n_threads=1))
    assert plain.max_nodes == 1
    assert "recurrent" in (plain.tree_limit_reason or "")
    plain.prefill([7, 8, 9])
    assert np.isfinite(plain.decode([5], [-1]).logits(0)).all()
    plain.accept([0])
    assert plain.n_past() == 4
    plain.close()


def test_the_interface_version_is_checked(monkeypatch):
    monkeypatch.setattr(bindings, "ABI", 99)
    bindings.library.cache_clear()
    try:
        assert bindings.library() is None
    finally:
        monkeypatch.undo()
        bindings.library.cache_clear()
    assert bindings.library() is not None
