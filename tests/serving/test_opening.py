"""How a server opens models: with slots, and without what they were to draft with where that cannot be used."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec import session as session_module
from localspec.calibrate.obtain import Outcome
from localspec.engine.params import ContextParams
from localspec.errors import ContextLengthError, ModelError, UsageError
from localspec.serving.api import Engine, Request
from localspec.serving.facts import facts_of
from localspec.serving.host import HostSettings, ModelHost
from localspec.serving.opening import SessionOpener, Setup
from localspec.session import Session
from tests.serving.fake_opener import FakeOpener, OpenedEngine
from tests.tiny_encoder import N_CTX_TRAIN as ENCODER_N_CTX
from tests.tiny_encoder import write_tiny_encoder
from tests.tiny_models import write_tiny
from tests.with_model import FLAT

CONTEXT = ContextParams(n_threads=1)


class Sessions(FakeOpener):
    """Makes fake engines of real sessions, and keeps those."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: list[Session] = []

    def make(self, session: Session, n_queue: int) -> OpenedEngine:
        self.sessions.append(session)
        engine = OpenedEngine(session.name, self)
        engine.facts = facts_of(session)
        return engine


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(session_module, "find", lambda key: Outcome(FLAT, "stored", "flat"))
    sessions = Sessions()
    yield sessions
    for session in sessions.sessions:
        session.close()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "target.gguf")


def opener(made: Sessions, default: Path, **setup: object) -> SessionOpener:
    return SessionOpener(
        Setup(**{"default": default, "context": CONTEXT, "n_ctx": 256, "n_slots": 2, **setup}), made.make
    )


def open_it(opener: SessionOpener, path: Path) -> list[str]:
    """Open a model; the stages that were told."""
    stages: list[str] = []
    opener.open(path, lambda stage, share: stages.append(stage))
    return stages


def test_a_model_has_slots_and_facts(made: Sessions, target: Path) -> None:
    stages = open_it(opener(made, target), target)
    assert {"loading the library", "loading the model"} <= set(stages)
    [session] = made.sessions
    assert session.ctx.n_seq_max == 2
    facts = facts_of(session)
    assert (facts.name, facts.path, facts.n_slots, facts.n_ctx) == ("target", target, 2, session.ctx.n_ctx)
    assert facts.n_ctx == 256 and facts.n_ctx_train == 4096
    assert facts.created == int(target.stat().st_mtime)
    assert facts.method == "auto" and "plain" in facts.methods and "draft" not in facts.methods
    assert facts.eos == "<|im_end|>" and facts.architecture == "llama"


def test_the_context_is_what_the_model_was_trained_for_at_most(made: Sessions, target: Path) -> None:
    open_it(opener(made, target, n_ctx=None, method="plain"), target)
    assert facts_of(made.sessions[0]).n_ctx == 4096


def test_a_draft_model_that_can_be_used_is_used(made: Sessions, target: Path, tmp_path: Path) -> None:
    draft = write_tiny(tmp_path / "draft.gguf", seed=2)
    with_draft = opener(made, target, draft=draft)
    open_it(with_draft, target)
    assert made.sessions[0].draft is not None and facts_of(made.sessions[0]).method == "draft"
    assert with_draft.warnings == []
    assert with_draft.need(target) > opener(made, target).need(target) + draft.stat().st_size


@pytest.mark.parametrize("kind", ["missing", "damaged", "recurrent", "other vocabulary"])
def test_a_draft_model_that_cannot_be_used_is_left_out_with_a_warning(
    kind: str, made: Sessions, target: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draft = tmp_path / "draft.gguf"
    if kind == "damaged":
        draft.write_bytes(b"GGUF and nothing else that is sound")
    elif kind == "recurrent":
        write_tiny(draft, "mamba")
    elif kind == "other vocabulary":
        write_tiny(draft, tokens={9: ("nine", gguf.TokenType.NORMAL)}, eos=2)
    lenient = opener(made, target, draft=draft, method="draft")
    with caplog.at_level(logging.WARNING):
        open_it(lenient, target)
    assert made.sessions[0].draft is None and made.sessions[0].method_name == "auto"
    assert len(lenient.warnings) == 1 and "without the draft model" in lenient.warnings[0]
    assert lenient.warnings[0] in caplog.text
    with pytest.raises(ModelError):
        open_it(opener(made, target, draft=draft, strict=True), target)
    assert lenient.need(target) > 0


def test_heads_that_cannot_be_used_are_left_out_with_a_warning(made: Sessions, target: Path, tmp_path: Path) -> None:
    heads, draft = tmp_path / "heads.gguf", write_tiny(tmp_path / "draft.gguf")
    heads.write_bytes(b"no heads")
    lenient = opener(made, target, draft=draft, heads=(heads,))
    open_it(lenient, target)
    assert made.sessions[0].draft is not None, "the draft model is not to blame"
    assert len(lenient.warnings) == 1 and lenient.warnings[0].startswith("without the heads heads.gguf: ")
    with pytest.raises(ModelError):
        open_it(opener(made, target, heads=(heads,), strict=True), target)


def test_what_is_wrong_with_the_model_itself_is_raised(made: Sessions, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"nothing")
    draft = write_tiny(tmp_path / "draft.gguf")
    lenient = opener(made, damaged, draft=draft)
    with pytest.raises(ModelError, match="damaged"):
        open_it(lenient, damaged)
    with pytest.raises(ModelError, match="damaged"):
        lenient.need(damaged)
    assert lenient.warnings == []


def test_other_models_than_the_default_one_draft_with_what_they_have(
    made: Sessions, target: Path, tmp_path: Path
) -> None:
    other, draft = write_tiny(tmp_path / "other.gguf", seed=5), write_tiny(tmp_path / "draft.gguf")
    open_it(opener(made, target, draft=draft, method="draft"), other)
    assert made.sessions[0].draft is None and made.sessions[0].method_name == "auto"


def test_whoever_stops_a_load_is_obeyed(made: Sessions, target: Path, tmp_path: Path) -> None:
    def stop(stage: str, share: float) -> None:
        if stage == "loading the model":
            raise InterruptedError

    with pytest.raises(InterruptedError):
        opener(made, target, draft=write_tiny(tmp_path / "draft.gguf")).open(target, stop)
    assert made.sessions == []


def test_an_encoder_is_an_engine_that_only_embeds(made: Sessions, target: Path, tmp_path: Path) -> None:
    path = write_tiny_encoder(tmp_path / "encoder.gguf")
    assert opener(made, target).need(path) > path.stat().st_size
    served = opener(made, target).open(path, lambda *_: None)
    engine: Engine = served
    try:
        assert engine.facts.mode == "encoder" and engine.facts.quant == "F32" and engine.facts.n_ctx == ENCODER_N_CTX
        tokens = engine.tokenize("the tree of words")
        pooled = engine.embed([tokens, tokens[:3]]).result(60)
        assert pooled.n_tokens == len(tokens) + 3
        assert np.linalg.norm(pooled.vectors, axis=1) == pytest.approx(1.0, abs=1e-6)
        with pytest.raises(ContextLengthError):
            engine.embed([[4] * 2 * ENCODER_N_CTX]).result(60)
        with pytest.raises(UsageError, match="writes none"):
            engine.submit(Request(prompt=tokens))
        assert engine.stuck() is None and engine.n_waiting() == 0
        assert b"".join(map(engine.piece, tokens[1:-1])).decode().split() == ["the", "tree", "of", "words"]
    finally:
        served.close()
        served.close()


@pytest.mark.asyncio
async def test_a_host_opens_what_it_needs(made: Sessions, target: Path, tmp_path: Path) -> None:
    """The parts together: names, estimate, memory of this machine, sessions."""
    session_opener = opener(made, target)
    async with ModelHost(session_opener, HostSettings(default=target)) as host:
        await host.ready()
        assert host.state() == "ready"
        async with host.use(None) as engine:
            assert engine.facts.path == target
        assert [model.quant for model in host.available() if model.name == "target"] == [""]
    assert (session_opener.free() or 1) > 0 and (session_opener.used() or 1) > 0
