"""A host over real engines: SmolLM2 and a tiny model in one process, asked, embedded and unloaded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from localspec.engine.params import ContextParams, SamplingParams
from localspec.serving.api import Ended, Engine, Request, Written
from localspec.serving.host import HostSettings, ModelHost
from localspec.serving.opening import SessionOpener, Setup
from tests.serving.test_footprint import PARAMS
from tests.tiny_models import write_tiny

pytestmark = [pytest.mark.model, pytest.mark.asyncio]


async def answer(engine: Engine, text: str) -> str:
    request = Request(prompt=engine.tokenize(text), sampling=SamplingParams(temperature=0.0), max_tokens=16)
    updates = [update async for update in engine.submit(request)]
    assert isinstance(updates[-1], Ended)
    return "".join(update.text for update in updates if isinstance(update, Written))


async def test_models_come_and_go_within_a_limit(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = tmp_path / "models"
    models.mkdir()
    tiny = write_tiny(models / "tiny.gguf")
    monkeypatch.setenv("LOCALSPEC_MODELS", str(models))
    context = ContextParams(n_threads=PARAMS.n_threads)
    opener = SessionOpener(Setup(default=home, n_slots=2, n_ctx=512, context=context, method="plain"))
    # the tiny model decides for itself, which would measure this machine
    monkeypatch.setattr(Setup, "without_drafts", lambda setup: setup)
    need = opener.need(home)
    assert opener.need(tiny) < need
    async with ModelHost(opener, HostSettings(default=home, memory_limit=need + 1)) as host:
        await host.ready()
        async with host.use(None) as engine:
            fact = "The capital of France is"
            vector = await asyncio.wrap_future(engine.embed([engine.tokenize(fact)]))
            alone = await answer(engine, fact)
            embedding = asyncio.wrap_future(engine.embed([engine.tokenize(fact)] + [engine.tokenize(fact * 20)] * 3))
            texts = await asyncio.gather(answer(engine, fact), answer(engine, fact))
            assert texts == [alone, alone] and alone.startswith(" Paris")
            assert (await embedding).vectors[0] == vector.vectors[0]
        async with host.use("tiny") as engine:
            await answer(engine, "a tree")
            assert [each.facts.name for each in host.loaded()] == ["tiny"]
        async with host.use(None) as engine:
            assert await answer(engine, fact) == alone
        assert host.state() == "ready" and opener.warnings == []
