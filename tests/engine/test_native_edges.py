"""Edges of the native interface that the engine itself does not walk, but another user of the library might."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest
from llama_cpp import llama_cpp as native

from localspec.engine import bindings, patched
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.engine.patched import PatchedContext
from tests.tiny_models import write_tiny

pytestmark = [
    pytest.mark.patched,
    pytest.mark.skipif(not patched.available(), reason="llama-cpp-python is not patched"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Model]]:
    folder = tmp_path_factory.mktemp("models")
    loaded = {kind: Model.load(write_tiny(folder / f"{kind}.gguf", kind)) for kind in ("llama", "gemma3")}
    yield loaded
    for model in loaded.values():
        model.close()


def context(model: Model, n_seq_max: int = 1, **settings: object) -> PatchedContext:
    params = ContextParams(n_ctx=256 * n_seq_max, n_threads=1, n_ubatch=64, n_batch=256, n_seq_max=n_seq_max)
    return PatchedContext(model, params, **settings)


def stock_row(ctx: PatchedContext, i: int) -> np.ndarray:
    return np.ctypeslib.as_array(native.llama_get_logits_ith(ctx.ctx, i), (ctx.n_vocab,)).copy()


@pytest.mark.parametrize("unified", [True, False])
def test_the_stock_getters_give_the_rows_of_a_tree_whatever_is_asked_first(
    models: dict[str, Model], unified: bool
) -> None:
    growths = [([5, 6, 7], [-1, 0, 0], 0), ([8, 9], [-1, 0], 1)]
    reference = context(models["llama"], 2, kv_unified=unified)
    rows = reference.decode_many(growths)
    expected = [rows.logits(i).copy() for i in range(5)]
    ctx = context(models["llama"], 2, kv_unified=unified)
    ctx.decode_many(growths)
    native.llama_get_embeddings(ctx.ctx)  # puts the rows of the output buffer in order
    for i in range(5):
        np.testing.assert_array_equal(stock_row(ctx, i), expected[i])
        np.testing.assert_array_equal(
            np.ctypeslib.as_array(ctx.lib.llama_tree_logits(ctx.ctx, i), (ctx.n_vocab,)), expected[i]
        )
    ctx.close()
    reference.close()


def test_rows_of_a_tree_survive_a_new_reservation_and_are_gone_after_an_ordinary_decode(
    models: dict[str, Model],
) -> None:
    ctx = context(models["llama"])
    rows = ctx.decode([5, 6], [-1, 0])
    expected = rows.logits(1).copy()
    native.llama_set_warmup(ctx.ctx, True)  # drops the cached graphs
    native.llama_set_warmup(ctx.ctx, False)
    np.testing.assert_array_equal(rows.logits(1), expected)
    ctx.drop()
    token = (ctypes.c_int32 * 1)(9)
    assert native.llama_decode(ctx.ctx, native.llama_batch_get_one(token, 1)) == 0
    assert not ctx.lib.llama_tree_logits(ctx.ctx, 1)
    ctx.close()


def test_a_shift_of_a_sequence_that_shares_cells_closes_the_tree(models: dict[str, Model]) -> None:
    ctx = context(models["llama"], 2)
    memory = native.llama_get_memory(ctx.ctx)
    ctx.prefill([7, 8, 9, 10])
    native.llama_memory_seq_cp(memory, 0, 1, 0, 4)
    ctx.decode([5, 6], [-1, 0])
    native.llama_memory_seq_add(memory, 1, 0, -1, 50)
    assert ctx.lib.llama_tree_n_nodes(ctx.ctx, 0) == -1
    ctx.close()


def test_a_copy_of_the_chain_leaves_the_tree_alone(models: dict[str, Model]) -> None:
    ctx = context(models["llama"], 2)
    ctx.prefill([7, 8, 9, 10])
    ctx.decode([5, 6], [-1, 0])
    native.llama_memory_seq_cp(native.llama_get_memory(ctx.ctx), 0, 1, 0, 4)
    ctx.accept([0, 1])
    assert len(ctx.cells(0)) == 6
    assert len(ctx.cells(1)) == 4
    ctx.close()


def test_a_partial_state_closes_the_tree_in_both_caches(models: dict[str, Model]) -> None:
    partial_only = 1
    ctx = context(models["gemma3"])
    ctx.prefill(list(range(20, 40)))
    size = native.llama_state_seq_get_size_ext(ctx.ctx, 0, partial_only)
    state = (ctypes.c_uint8 * size)()
    assert native.llama_state_seq_get_data_ext(ctx.ctx, state, size, 0, partial_only) == size
    ctx.decode([5, 6, 7], [-1, 0, 0])
    assert native.llama_state_seq_set_data_ext(ctx.ctx, state, size, 0, partial_only) == size
    assert ctx.lib.llama_tree_n_nodes(ctx.ctx, 0) == -1
    np.testing.assert_array_equal(ctx.cells(), np.arange(20))
    ctx.close()


def test_backend_samplers_are_refused_by_name(models: dict[str, Model]) -> None:
    ctx = context(models["llama"])
    chain = native.llama_sampler_chain_init(native.llama_sampler_chain_default_params())
    native.llama_sampler_chain_add(chain, native.llama_sampler_init_greedy())
    if not native.llama_set_sampler(ctx.ctx, 0, chain):
        pytest.skip("this build has no backend samplers")
    assert b"sampler" in ctx.lib.llama_tree_unsupported(ctx.ctx)
    assert ctx.lib.llama_tree_begin(ctx.ctx, 0) == bindings.UNSUPPORTED
    native.llama_set_sampler(ctx.ctx, 0, None)
    assert ctx.lib.llama_tree_begin(ctx.ctx, 0) == bindings.OK
    ctx.close()


def test_attention_that_is_no_longer_causal_refuses_the_next_decode(models: dict[str, Model]) -> None:
    ctx = context(models["llama"])
    assert ctx.lib.llama_tree_begin(ctx.ctx, 0) == bindings.OK
    native.llama_set_causal_attn(ctx.ctx, False)
    token, parent = (ctypes.c_int32 * 1)(5), (ctypes.c_int32 * 1)(-1)
    arrays = (ctypes.addressof(token), ctypes.addressof(parent))
    assert ctx.lib.llama_tree_decode(ctx.ctx, 1, *arrays, None, None) == bindings.UNSUPPORTED
    native.llama_set_causal_attn(ctx.ctx, True)
    assert ctx.lib.llama_tree_decode(ctx.ctx, 1, *arrays, None, None) == bindings.OK
    ctx.close()


def test_small_arguments_do_no_harm(models: dict[str, Model]) -> None:
    ctx = context(models["llama"])
    ctx.prefill([7, 8, 9])
    cells = np.full(4, -7, dtype=np.int32)
    assert ctx.lib.llama_tree_cells(ctx.ctx, 0, cells.ctypes.data, -1) == 3
    np.testing.assert_array_equal(cells, np.full(4, -7))
    ctx.decode([5], [-1])
    row, sums = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.float32)
    only_one = (ctx.ctx, 1, row.ctypes.data, 0, None, None, sums.ctypes.data, None)
    assert ctx.lib.llama_tree_stats(*only_one) == bindings.INVALID
    ctx.close()


def test_many_sizes_keep_few_graphs(models: dict[str, Model]) -> None:
    """Graphs of 60 sizes do not all stay in memory: a size of long ago is built again."""
    ctx = context(models["llama"])
    for n in range(1, 61):
        ctx.decode([5] * n, list(range(-1, n - 1)))
        ctx.drop()
    before = ctx.graph_builds
    ctx.decode([5] * 60, list(range(-1, 59)))
    ctx.drop()
    assert ctx.graph_builds == before
    ctx.decode([5], [-1])
    assert ctx.graph_builds == before + 1
    ctx.close()
