"""The engine of a `Llama`: loaded as its options say, with what its file tells beside."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec import hub
from localspec.dropin.errors import CallError, as_llama_cpp
from localspec.dropin.options import LlamaOptions, context_params
from localspec.engine.params import DEFAULT_N_CTX
from localspec.serving.api import Engine

if TYPE_CHECKING:
    from localspec.engine.model import Model
    from localspec.serving.resident import ServedEngine

#: requests that may wait: threads of one program wait for each other, however many they are
MANY = 1 << 20


@dataclass(frozen=True)
class Card:
    """What a model file says of itself: `metadata` by key, the ids of special tokens (-1 for none), and their texts."""

    metadata: dict[str, str] = field(default_factory=dict)
    bos: int = -1
    eos: int = -1
    nl: int = -1
    n_ctx_train: int = 0
    bos_text: str = ""
    eos_text: str = ""

    @classmethod
    def of_model(cls, model: Model) -> Card:
        """That of a model that was opened, with or without its weights."""
        from llama_cpp import llama_cpp as L

        nl = int(L.llama_vocab_nl(model.vocab))
        bos, eos = (-1 if token is None else token for token in (model.bos, model.eos))
        bos_text, eos_text = (model.special_text(token) for token in (model.bos, model.eos))
        return cls(dict(model.metadata), bos, eos, nl, model.n_ctx_train, bos_text, eos_text)

    @classmethod
    def of_engine(cls, engine: Engine) -> Card:
        """What an engine knows, for one that was loaded elsewhere."""

        def token(text: str) -> int:
            ids = engine.tokenize(text, add_special=False) if text else []
            return ids[0] if len(ids) == 1 else -1

        facts = engine.facts
        metadata = {"general.name": facts.name, "general.architecture": facts.architecture}
        if facts.chat_template:
            metadata["tokenizer.chat_template"] = facts.chat_template
        bos, eos, nl = (token(text) for text in (facts.bos, facts.eos, "\n"))
        return cls(metadata, bos, eos, nl, facts.n_ctx_train, facts.bos, facts.eos)


@dataclass(frozen=True)
class Opened:
    """An engine, what its file says, and what frees it."""

    engine: Engine
    card: Card
    close: Callable[[], None]


def closer(owner: Any, opened: Opened) -> weakref.finalize[..., Any]:
    """What closes the engine once: when called, when `owner` is gone, and when the program ends."""

    def close() -> None:
        atexit.unregister(opened.close)
        opened.close()

    made = weakref.finalize(owner, close)
    # finalizers free samplers and models, which no thread may be using by then: so this comes before all of them
    made.atexit = False
    atexit.register(opened.close)
    return made


def open_engine(model_path: str | Path, options: LlamaOptions) -> Opened:
    """The engine for these options; one that was given is not closed. Raises what loading raises, as llama_cpp does."""
    with as_llama_cpp():
        if options.engine is not None:
            return Opened(options.engine, Card.of_engine(options.engine), lambda: None)
        if (options.n_ctx or 0) < 0 or options.n_parallel < 1:
            raise CallError(f"n_ctx is {options.n_ctx} and n_parallel {options.n_parallel}; they start at 0 and 1")
        from localspec.engine.weightless import open_weightless

        path = hub.find_model(model_path)
        with open_weightless(path, encoder=True) as model:
            card = Card.of_model(model)
        n_ctx = min(card.n_ctx_train, DEFAULT_N_CTX) if options.n_ctx is None else options.n_ctx or card.n_ctx_train
        engine = _load(path, options, n_ctx)
        return Opened(engine, card, engine.close)


def _load(path: Path, options: LlamaOptions, n_ctx: int) -> ServedEngine:
    from localspec.serving.opening import SessionOpener, Setup

    setup = Setup(
        default=path,
        n_slots=options.n_parallel,
        n_ctx=n_ctx,
        n_queue=MANY,
        context=context_params(options),
        method="plain" if options.speculation == "off" else None,
        heads=tuple(Path(each) for each in options.heads),
        draft=options.draft,
        n_gpu_layers=options.n_gpu_layers,
        use_mmap=options.use_mmap,
        strict=True,
    )
    return SessionOpener(setup).open(path, lambda *_: None)
