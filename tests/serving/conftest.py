"""An engine with SmolLM2 behind it, and short ways to ask it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localspec.engine.params import ContextParams, SamplingParams
from localspec.serving.api import Begun, Ended, Facts, Request, TokenLogprob, Update, Written
from localspec.serving.engine import BatchEngine
from localspec.session import Session
from tests.with_model import calibrated_home

N_SLOTS, N_CTX = 4, 768


@dataclass(frozen=True)
class Answered:
    """What came of a request."""

    begun: Begun | None
    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    end: Ended


def collect(updates: list[Update]) -> Answered:
    written = [update for update in updates if isinstance(update, Written)]
    begun = next((update for update in updates if isinstance(update, Begun)), None)
    assert isinstance(updates[-1], Ended)
    return Answered(
        begun,
        "".join(part.text for part in written),
        tuple(token for part in written for token in part.tokens),
        tuple(item for part in written for item in part.logprobs),
        updates[-1],
    )


def facts_for(session: Session, n_slots: int) -> Facts:
    model = session.model
    return Facts(
        name=session.name,
        path=model.path,
        description=model.description,
        size=model.size_bytes,
        n_params=model.n_params,
        n_vocab=model.n_vocab,
        n_embd=model.n_embd,
        n_ctx=session.ctx.n_ctx,
        n_ctx_train=model.n_ctx_train,
        n_slots=n_slots,
        architecture=model.arch,
        quant="",
        created=0,
        mode=session.ctx.mode,
        device=session.device,
        method=session.method_name,
        methods=("auto", "ptd", "ptd-published", "ptd+heads", "heads", "lookup", "plain"),
        bos="",
        eos="",
        chat_template="",
    )


def open_engine(path: Path, *, n_slots: int = N_SLOTS, mode: str = "auto", n_queue: int = 64) -> BatchEngine:
    params = ContextParams(n_ctx=N_CTX * n_slots, n_seq_max=n_slots, n_threads=1, partitioned=True, mode=mode)  # type: ignore[arg-type]
    session = Session.open(path, context=params, method="ptd")
    return BatchEngine(session, facts_for(session, n_slots), None, n_queue=n_queue)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with calibrated_home(tmp_path_factory.mktemp("home")) as path:
        yield path


@pytest.fixture(scope="session")
def engine(home: Path) -> Iterator[BatchEngine]:
    made = open_engine(home)
    yield made
    made.close()


def chat(engine: BatchEngine, text: str) -> list[int]:
    return engine.session.chat_prompt([{"role": "user", "content": text}])


def ask(engine: BatchEngine, prompt: list[int], **more: Any) -> Answered:
    more.setdefault("max_tokens", 24)
    more.setdefault("sampling", SamplingParams(temperature=0.0))
    return collect(list(engine.submit(Request(prompt=prompt, **more))))
