"""What the patched library refuses or has to break off: the reason is named, and a plain chain is left."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from llama_cpp import llama_cpp as L

from localspec.engine import bindings
from localspec.engine.base import TreeContext
from localspec.engine.model import Model
from localspec.errors import ContextLengthError, EngineError, UsageError
from tests.engine.conftest import MakeContext
from tests.engine.trees import F32_ATTENTION, F32_TOLERANCE, NEEDS_PATCHES, MakePatched, random_tokens, random_tree
from tests.tiny_models import N_VOCAB

pytestmark = NEEDS_PATCHES

Models = dict[str, Model]


def test_a_tree_of_256_nodes_works_and_one_more_is_refused(tiny_q4: Models, make_patched: MakePatched) -> None:
    ctx = make_patched(tiny_q4["llama"], n_ctx=512)
    ctx.prefill([7, 8, 9])
    tokens, parents = random_tree(np.random.default_rng(1), 256)
    assert len(ctx.decode(tokens, parents)) == 256
    with pytest.raises(UsageError, match="256 nodes"):
        ctx.decode([5], [0])
    assert ctx.n_past() == 3
    np.testing.assert_array_equal(ctx.cells(), np.arange(3))


def test_a_full_cache_says_so_and_leaves_a_plain_chain(tiny_q4: Models, make_patched: MakePatched) -> None:
    ctx = make_patched(tiny_q4["llama"])
    ctx.prefill([10] * 250)
    ctx.decode([11, 12, 13], [-1, 0, 0])
    with pytest.raises(ContextLengthError, match="no room for 8"):
        ctx.decode([14] * 8, [0] * 8)
    np.testing.assert_array_equal(ctx.cells(), np.arange(250))
    ctx.decode([11, 12], [-1, 0])
    ctx.accept([0, 1])
    assert ctx.n_past() == 252


def test_an_aborted_evaluation_leaves_a_plain_chain(tiny_q4: Models, make_patched: MakePatched) -> None:
    ctx, clean = make_patched(tiny_q4["llama"]), make_patched(tiny_q4["llama"])
    for each in (ctx, clean):
        each.prefill(list(range(20, 60)))
    ctx.decode([11, 12, 13], [-1, 0, 0])
    abort = L.ggml_abort_callback(lambda _data: True)
    L.llama_set_abort_callback(ctx.ctx, abort, None)
    with pytest.raises(EngineError, match="aborted"):
        ctx.decode([14, 15], [1, 1])
    L.llama_set_abort_callback(ctx.ctx, L.ggml_abort_callback(0), None)
    np.testing.assert_array_equal(ctx.cells(), np.arange(40))
    np.testing.assert_array_equal(ctx.decode([9], [-1]).logits(0), clean.decode([9], [-1]).logits(0))


@pytest.mark.parametrize(
    "bad", [([5, 6], [-1, 1]), ([5, 6], [-1, -2]), ([5, N_VOCAB], [-1, 0]), ([-1], [-1]), ([5], [0])]
)
def test_bad_nodes_are_refused_and_nothing_happens(
    tiny_q4: Models, make_patched: MakePatched, bad: tuple[list[int], list[int]]
) -> None:
    ctx = make_patched(tiny_q4["llama"])
    ctx.prefill([7, 8])
    with pytest.raises(UsageError):
        ctx.decode(*bad)
    assert ctx.n_past() == 2
    np.testing.assert_array_equal(ctx.cells(), np.arange(2))


def test_a_path_that_is_none_is_refused(tiny_q4: Models, make_patched: MakePatched) -> None:
    ctx = make_patched(tiny_q4["llama"])
    for path in ([1], [0, 2, 1], [0, 3], [7], [0, 0]):
        ctx.decode([5, 6, 7, 8], [-1, 0, 0, 1])
        with pytest.raises(UsageError, match="not a path"):
            ctx.accept(path)
        assert ctx.n_past() == 0
    with pytest.raises(UsageError, match="not a path"):
        ctx.accept([0])


def test_an_ordinary_decode_under_an_open_tree_is_refused(tiny_q4: Models, make_patched: MakePatched) -> None:
    ctx = make_patched(tiny_q4["llama"])
    ctx.prefill([7, 8])
    ctx.decode([5, 6], [-1, 0])
    token = (ctypes.c_int32 * 1)(9)
    assert L.llama_decode(ctx.ctx, L.llama_batch_get_one(token, 1)) == -1
    ctx.accept([0, 1])
    assert L.llama_decode(ctx.ctx, L.llama_batch_get_one(token, 1)) == 0


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@pytest.mark.parametrize("change", ["seq_rm", "seq_cp", "seq_keep", "seq_add", "clear"])
def test_memory_operations_close_a_tree_they_reach_into(
    tiny_q4: Models, make_patched: MakePatched, kind: str, change: str
) -> None:
    ctx = make_patched(tiny_q4[kind], n_seq_max=2)
    arguments = {
        "seq_rm": (0, 2, -1),
        "seq_cp": (0, 1, -1, -1),
        "seq_keep": (1,),
        "seq_add": (0, 0, -1, 1),
        "clear": (False,),
    }
    ctx.prefill([7, 8, 9, 10])
    ctx.decode([5, 6, 7], [-1, 0, 0])
    assert ctx.lib.llama_tree_n_nodes(ctx.ctx, 0) == 3
    getattr(L, f"llama_memory_{change}")(L.llama_get_memory(ctx.ctx), *arguments[change])
    assert ctx.lib.llama_tree_n_nodes(ctx.ctx, 0) == -1
    assert len(ctx.cells()) <= 4


def test_keeping_only_the_sequence_of_a_tree_leaves_the_tree(tiny_q4: Models, make_patched: MakePatched) -> None:
    ctx, clean = make_patched(tiny_q4["llama"], n_seq_max=2), make_patched(tiny_q4["llama"], n_seq_max=2)
    for each in (ctx, clean):
        each.prefill([7, 8, 9, 10])
        each.decode([5, 6, 7], [-1, 0, 0])
    L.llama_memory_seq_keep(L.llama_get_memory(ctx.ctx), 0)
    np.testing.assert_array_equal(ctx.decode([8], [2]).logits(0), clean.decode([8], [2]).logits(0))
    ctx.accept([0, 2, 3])
    np.testing.assert_array_equal(ctx.cells(), np.arange(7))


def test_a_state_with_an_open_tree_is_not_saved(tiny_q4: Models, make_patched: MakePatched) -> None:
    ctx = make_patched(tiny_q4["llama"])
    ctx.prefill([7, 8, 9])
    size = L.llama_state_seq_get_size(ctx.ctx, 0)
    assert size > 0
    ctx.decode([5, 6], [-1, 0])
    assert L.llama_state_seq_get_size(ctx.ctx, 0) == 0
    ctx.accept([0])
    assert L.llama_state_seq_get_size(ctx.ctx, 0) > size


WITHOUT_TREES = [("mamba", "is recurrent"), ("lfm2", "has recurrent layers"), ("qwen2vl", "M-RoPE")]


@pytest.mark.parametrize(("kind", "reason"), WITHOUT_TREES)
def test_a_model_without_trees_is_refused_by_name(
    tiny_q4: Models, make_patched: MakePatched, kind: str, reason: str
) -> None:
    ctx = make_patched(tiny_q4[kind])
    assert ctx.max_nodes == 1
    assert reason in (ctx.tree_limit_reason or "")
    with pytest.raises(EngineError, match=reason):
        ctx.decode([5], [-1])
    assert ctx.n_past() == 0


@pytest.fixture(params=["auto", "patched"])
def plain(request: pytest.FixtureRequest, make_context: MakeContext) -> MakeContext:
    """`plain(model)`: the context that a user gets for it."""

    def make(model: Model, **params: object) -> TreeContext:
        chosen = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1, **F32_ATTENTION, **params}
        return make_context(model, request.param, **chosen)

    return make


@pytest.mark.parametrize(("kind", "reason"), WITHOUT_TREES)
def test_a_model_without_trees_runs_plain_and_says_why(
    tiny: Models, plain: MakeContext, kind: str, reason: str
) -> None:
    """A prompt read in one batch and one read token by token lead to the same rows; no tree is taken."""
    batched, stepped = plain(tiny[kind]), plain(tiny[kind])
    text = random_tokens(np.random.default_rng(2), 60)
    for ctx in (batched, stepped):
        assert ctx.max_nodes == 1
        assert reason in (ctx.tree_limit_reason or "")
    batched.prefill(text[:40])
    for token in text[:40]:
        stepped.decode([token], [-1])
        stepped.accept([0])
    for token in text[40:]:
        ours, theirs = batched.decode([token], [-1]).logits(0), stepped.decode([token], [-1]).logits(0)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=F32_TOLERANCE)
        batched.accept([0])
        stepped.accept([0])
    assert batched.n_past() == stepped.n_past() == 60
    with pytest.raises(UsageError, match=reason):
        batched.decode([5, 6], [-1, 0])


@pytest.mark.parametrize("kind", [kind for kind, _ in WITHOUT_TREES])
@pytest.mark.parametrize("after", ["drop", "trim"])
def test_stepping_back_in_a_model_without_trees_leaves_what_it_reports(
    tiny: Models, plain: MakeContext, kind: str, after: str
) -> None:
    """A state that cannot step back is emptied, which `n_past` tells; reading on from there is a fresh context."""
    ctx, fresh = plain(tiny[kind]), plain(tiny[kind])
    text = random_tokens(np.random.default_rng(3), 50)
    ctx.prefill(text)
    if after == "drop":
        ctx.decode([5], [-1])
        ctx.drop()
        n = ctx.n_past()
        assert n == (50 if kind == "qwen2vl" else 0)
    else:
        n = ctx.trim(30)
        assert n == ctx.n_past() == (30 if kind == "qwen2vl" else 0)
    ctx.prefill(text[n:])
    fresh.prefill(text)
    assert ctx.n_past() == 50
    ours, theirs = ctx.decode([9], [-1]).logits(0), fresh.decode([9], [-1]).logits(0)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=F32_TOLERANCE)


def test_the_interface_version_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings, "ABI", 99)
    bindings.library.cache_clear()
    try:
        assert bindings.library() is None
    finally:
        monkeypatch.undo()
        bindings.library.cache_clear()
    assert bindings.library() is not None
