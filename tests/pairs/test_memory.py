"""Memory of a target and its draft model, counted before loading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from localspec.engine.memory import Shape
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.engine.weightless import open_weightless
from localspec.errors import EngineError
from localspec.pairs import memory
from localspec.pairs.memory import Need, judged_memory, refuse_oversized
from tests import tiny_models
from tests.tiny_models import N_CTX_TRAIN, write_tiny

GIB = 2**30
SHAPE = Shape(n_vocab=32000, n_embd=2048, n_layer=24, n_head=16, n_head_kv=8, d_k=128, d_v=128, n_ff=8192)
TARGET = Need("target.gguf", 4 * GIB, SHAPE, ContextParams(), 32768)
DRAFT = Need("draft.gguf", GIB, SHAPE, ContextParams(), 8192)


def check_memory(target: Path, target_params: ContextParams, draft: Path, draft_params: ContextParams) -> None:
    with open_weightless(target) as ours, open_weightless(draft) as theirs:
        memory.check_memory(ours, target_params, theirs, draft_params)


def refused(available: int) -> EngineError:
    with pytest.raises(EngineError) as caught:
        refuse_oversized(TARGET, DRAFT, available)
    return caught.value


def test_just_enough_memory_is_enough() -> None:
    need = TARGET.total() + DRAFT.total()
    refuse_oversized(TARGET, DRAFT, need)
    assert refused(need - 1)


def test_the_refusal_names_what_each_part_takes() -> None:
    error = refused(6 * GIB)
    assert "target.gguf with the draft model draft.gguf needs" in error.message
    assert "4.0 GiB of weights" in error.message
    assert "n_ctx=32768" in error.message
    assert "for the draft 1.0 GiB of weights" in error.message
    assert "6.0 GiB are free" in error.message


@pytest.mark.parametrize("spare", [1, GIB // 4, GIB, 3 * GIB // 2])
def test_the_context_that_is_offered_fits_and_no_larger_one(spare: int) -> None:
    available = TARGET.total(256) + DRAFT.total(256) + spare
    n_ctx = int(re.search(r"n_ctx=(\d+)", str(refused(available).hint))[1])
    assert n_ctx % 256 == 0
    assert TARGET.total(n_ctx) + DRAFT.total(n_ctx) <= available
    assert TARGET.total(n_ctx + 256) + DRAFT.total(n_ctx + 256) > available


def test_a_way_out_is_offered_only_where_it_leads_out() -> None:
    assert "without a draft model" in str(refused(TARGET.total()).hint)
    assert "without a draft model" not in str(refused(TARGET.total() - 1).hint)
    assert "smaller models" in str(refused(5 * GIB).hint)


def test_files_are_judged_before_they_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, draft = write_tiny(tmp_path / "target.gguf"), write_tiny(tmp_path / "draft.gguf", "gemma3")
    params = ContextParams(n_ctx=1024), ContextParams(n_ctx=256)
    monkeypatch.setattr(memory, "judged_memory", lambda n_gpu_layers: GIB)
    check_memory(target, params[0], draft, params[1])
    with Model.load(target) as ours, Model.load(draft) as theirs:
        need = Need.of(ours, params[0]).total() + Need.of(theirs, params[1]).total()
        assert need > ours.size_bytes + theirs.size_bytes
    monkeypatch.setattr(memory, "judged_memory", lambda n_gpu_layers: need - 1)
    with pytest.raises(EngineError, match=r"target\.gguf with the draft model draft\.gguf"):
        check_memory(target, params[0], draft, params[1])
    monkeypatch.setattr(memory, "judged_memory", lambda n_gpu_layers: need)
    check_memory(target, params[0], draft, params[1])


def test_a_draft_model_is_counted_with_no_longer_context_than_it_was_trained_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny(tmp_path / "tiny.gguf")
    long, longest = ContextParams(n_ctx=2 * N_CTX_TRAIN), ContextParams(n_ctx=N_CTX_TRAIN)
    with Model.load(path) as model:
        need = Need.of(model, long).total() + Need.of(model, longest).total()
    monkeypatch.setattr(memory, "judged_memory", lambda n_gpu_layers: need)
    check_memory(path, long, path, long)


def test_without_a_size_the_draft_has_the_context_of_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = write_tiny(tmp_path / "draft.gguf")
    monkeypatch.setattr(tiny_models, "N_CTX_TRAIN", N_CTX_TRAIN // 4)
    target = write_tiny(tmp_path / "target.gguf")
    with Model.load(target) as model:
        assert model.n_ctx_train == N_CTX_TRAIN // 4
        need = 2 * Need.of(model, ContextParams()).total()
    monkeypatch.setattr(memory, "judged_memory", lambda n_gpu_layers: need)
    check_memory(target, ContextParams(), draft, ContextParams())


def test_memory_of_a_gpu_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: GIB)
    monkeypatch.setattr(memory.L, "llama_supports_gpu_offload", lambda: True)
    assert judged_memory(-1) is None
    assert judged_memory(0) == GIB
    monkeypatch.setattr(memory.L, "llama_supports_gpu_offload", lambda: False)
    assert judged_memory(-1) == GIB
