"""Training data made by a tiny model: the same in every run, whatever interrupts it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from localspec.engine.base import TreeContext
from localspec.engine.model import Model
from localspec.errors import ContextLengthError, ModelError
from localspec.train import data as making
from localspec.train.answers import Answer, Job, Stopped, answer_all, new_answering_context
from localspec.train.base import BaseMatrices
from localspec.train.data import DataMaker, TokenizedPrompts, check_lengths, shard_jobs, to_shard
from localspec.train.shards import Shard, ShardFolder
from localspec.train.work import DataOptions
from tests.tiny_models import N_EMBD, write_tiny

TEXTS = [f"prompt number {i}" for i in range(7)]
OPTIONS = DataOptions("0" * 16, "0" * 16, 400, 24, 0.8, 3, 4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = write_tiny(tmp_path_factory.mktemp("tiny") / "llama.gguf", "llama", quantised=False)
    with Model.load(path, n_gpu_layers=0) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def prompts(model: Model) -> TokenizedPrompts:
    return TokenizedPrompts(TEXTS, [model.tokenize(text, add_special=True) for text in TEXTS])


def _context(model: Model, n_parallel: int = 4) -> TreeContext:
    return new_answering_context(model, n_parallel, 64, n_threads=1)


def _make(
    model: Model, prompts: TokenizedPrompts, folder: Path, stop_at: int | None = None, **change: int
) -> list[Shard]:
    maker = DataMaker(replace(OPTIONS, **change), prompts, ShardFolder(folder, N_EMBD), model.eog)  # type: ignore[arg-type]
    return maker.make(lambda: _context(model), lambda n, _: stop_at is None or n < stop_at)


def _same(a: list[Shard], b: list[Shard]) -> bool:
    names = ("hidden", "tokens", "best_ids", "best_logits", "lengths", "prompts")
    return len(a) == len(b) and all(
        np.array_equal(getattr(x, name), getattr(y, name)) for x, y in zip(a, b, strict=True) for name in names
    )


def test_hidden_states_are_those_that_tokens_were_drawn_from(model, prompts):
    jobs = [Job(tokens, [1, i]) for i, tokens in enumerate(prompts.tokens)]
    with_ctx = _context(model)
    answers = answer_all(with_ctx, jobs, end_tokens=model.eog, max_tokens=12, temperature=0.8)
    with_ctx.close()
    ctx = _context(model, 1)
    for job, answer in zip(jobs, answers, strict=True):
        ctx.trim(0)
        ctx.prefill(job.prompt[:-1])
        for i, token in enumerate([job.prompt[-1], *answer.tokens[:-1]]):
            rows = ctx.decode([token], [-1])
            assert np.abs(rows.hidden(0) - answer.hidden[i]).max() < 1e-3
            ids, logits = rows.top_k(0, 16)
            assert answer.best_logits[i] == pytest.approx(logits[0], abs=1e-3)
            assert answer.tokens[i] in ids
            ctx.accept([0])
    ctx.close()


def test_an_answer_depends_on_its_own_seed_alone(model, prompts):
    jobs = [Job(tokens, [1, i]) for i, tokens in enumerate(prompts.tokens)]

    def tokens(some: list[Job], n_parallel: int) -> list[list[int]]:
        ctx = _context(model, n_parallel)
        answers = answer_all(ctx, some, end_tokens=model.eog, max_tokens=12, temperature=0.8)
        ctx.close()
        return [answer.tokens for answer in answers]

    together = tokens(jobs, 4)
    assert together == tokens(jobs, 2)
    assert together[3:5] == tokens(jobs[3:5], 4)
    assert together != tokens([Job(job.prompt, [2, *job.seed]) for job in jobs], 4)
    assert all(1 <= len(answer) <= 12 for answer in together)


def test_end_tokens_end_an_answer(model, prompts):
    ctx = _context(model)
    jobs = [Job(prompts.tokens[0], [0])]
    (answer,) = answer_all(ctx, jobs, end_tokens=model.eog, max_tokens=12, temperature=0.0)
    third = answer.tokens[2]
    (cut,) = answer_all(ctx, jobs, end_tokens=frozenset([third]), max_tokens=12, temperature=0.0)
    ctx.close()
    assert cut.tokens == answer.tokens[: answer.tokens.index(third) + 1]
    assert len(cut.hidden) == len(cut.best_ids) == len(cut.tokens)
    assert answer.best_ids == answer.tokens


def test_runs_make_the_same_data(model, prompts, tmp_path, monkeypatch):
    monkeypatch.setattr(making, "MIN_SHARDS", 4)
    whole = _make(model, prompts, tmp_path / "a")
    assert len(whole) > 2
    assert sum(len(shard.tokens) for shard in whole) >= OPTIONS.tokens
    assert not _same(whole, _make(model, prompts, tmp_path / "other", seed=4))
    with pytest.raises(Stopped):
        _make(model, prompts, tmp_path / "b", stop_at=250)
    made = sorted(path.name for path in (tmp_path / "b").iterdir())
    assert made and len(made) < len(whole)
    assert _same(whole, _make(model, prompts, tmp_path / "b"))
    # one in the middle is lost: it is made again, and nothing else
    shutil.rmtree(tmp_path / "b" / "shard-00001")
    times = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "b").iterdir()}
    assert _same(whole, _make(model, prompts, tmp_path / "b"))
    assert times["shard-00000"] == (tmp_path / "b" / "shard-00000").stat().st_mtime_ns


def test_finished_data_need_no_model(model, prompts, tmp_path):
    made = _make(model, prompts, tmp_path)
    maker = DataMaker(OPTIONS, prompts, ShardFolder(tmp_path, N_EMBD), model.eog)
    again = maker.make(lambda: pytest.fail("a context was made"), lambda n, total: True)
    assert _same(made, again)


def test_every_round_has_all_prompts(monkeypatch):
    jobs = [job for number in range(8) for job in shard_jobs(OPTIONS, 7, number)]
    rounds = [sorted(prompt for prompt, which in jobs if which == n) for n in range(len(jobs) // 7)]
    assert rounds and all(found == list(range(7)) for found in rounds)
    orders = [[prompt for prompt, which in jobs if which == n] for n in range(2)]
    assert orders[0] != orders[1]


def test_prompts_that_are_too_long_are_named(prompts):
    check_lengths(prompts, 24, 4096)
    with pytest.raises(ContextLengthError, match="prompt number 0"):
        check_lengths(prompts, 24, 30)


def test_states_beyond_half_precision_are_refused():
    answer = Answer([1], [np.full(4, 1e5, dtype=np.float32)], [1], [0.0])
    with pytest.raises(ModelError, match="do not fit float16"):
        to_shard([answer], [0])


def test_the_matrices_give_the_logits_of_the_engine(model, prompts, tmp_path):
    shard = _make(model, prompts, tmp_path)[0]
    matrices = BaseMatrices(model.path)
    matrices.check_logits(shard)
    assert matrices.embeddings(np.array([3, 1], dtype=np.int32)).shape == (2, N_EMBD)
    with pytest.raises(ModelError, match="scale or cap"):
        matrices.check_logits(replace(shard, best_logits=shard.best_logits * np.float32(0.5)))
