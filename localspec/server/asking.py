"""From what a router wants to what the engine is asked: models by name, chat formats, tokens, seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

from localspec.chat_format.api import ChatPrompt, ChatRequest, ReplyReader
from localspec.chat_format.reader import ContentReader
from localspec.engine.params import SamplingParams
from localspec.server import speculation
from localspec.server.errors import ParamError
from localspec.server.settings import DEFAULT_NAMES, Settings
from localspec.serving.api import Engine, Host, Request

#: a function makes the tokens when the model is there
Prompt = str | Sequence[int] | ChatRequest | Callable[[Engine], Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A checked request, whichever API it came by.

    `prompts` are texts, tokens or conversations; each gets `n` answers, whose seeds follow each other. The tokens of
    `before` stand before each prompt. `model` is the name that the client gave. `method` and `accept` are those of its
    `speculation` object. `warnings` are what the reply is to tell beside the answer. Else as `serving.api.Request`.
    """

    prompts: Sequence[Prompt]
    model: str | None = None
    before: Sequence[int] = ()
    n: int = 1
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    method: str | None = None
    accept: str | None = None
    top_logprobs: int | None = None
    ignore_eos: bool = False
    cache_prompt: bool = True
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request to the engine, and a maker of readers for its answers."""

    request: Request
    reader: Callable[[], ReplyReader]


def model_name(name: str | None, host: Host, settings: Settings) -> str | None:
    """The name to give to `Host.use` for one that a client gave."""
    if name is None or name in DEFAULT_NAMES:
        return None
    if settings.any_model and all(name != model.name for model in host.available()):
        return None
    return name


def prepare(ask: Ask, engine: Engine, settings: Settings, owner: str) -> list[Prepared]:
    """The requests to the engine, `ask.n` for each prompt in turn. Takes its time: not for an event loop.

    Raises `LocalspecError` for what this model cannot do.
    """
    method, accept = speculation.asked(ask.method, ask.accept, engine.facts)
    before = check_tokens(ask.before, engine, "context")
    prepared: list[Prepared] = []
    for prompt in ask.prompts:
        chat = engine.chat.apply(prompt) if isinstance(prompt, ChatRequest) else None
        request = Request(
            prompt=[*before, *(_tokens(prompt, chat, engine, bool(before)))],
            sampling=ask.sampling,
            max_tokens=ask.max_tokens,
            stops=ask.stops,
            method=method,
            accept=accept,
            top_logprobs=ask.top_logprobs,
            ignore_eos=ask.ignore_eos,
            cache_prompt=ask.cache_prompt,
            owner=owner,
            timeout=settings.timeout,
        )
        reader: Callable[[], ReplyReader] = ContentReader
        if chat is not None:
            request = _chatting(request, chat)
            reader = partial(engine.chat.reader, chat)
        prepared += [Prepared(_seeded(request, i), reader) for i in range(ask.n)]
    return prepared


def _chatting(request: Request, chat: ChatPrompt) -> Request:
    """The request with all that the chat format wants of it."""
    return replace(
        request,
        sampling=chat.constrained(request.sampling),
        stops=tuple(dict.fromkeys((*request.stops, *chat.stops))),
        preserved=chat.preserved,
    )


def _tokens(prompt: Prompt, chat: ChatPrompt | None, engine: Engine, after_others: bool) -> Sequence[int]:
    if chat is not None:
        return chat_tokens(engine, chat)
    if isinstance(prompt, str):
        return engine.tokenize(prompt, add_special=not after_others)
    tokens = prompt(engine) if callable(prompt) else cast("Sequence[int]", prompt)
    return check_tokens(tokens, engine, "prompt")


def chat_tokens(engine: Engine, chat: ChatPrompt) -> list[int]:
    """The tokens of a conversation."""
    bos = engine.facts.bos
    # templates often write it themselves
    return engine.tokenize(chat.text, add_special=not (bos and chat.text.startswith(bos)))


def check_tokens(tokens: Sequence[int], engine: Engine, param: str) -> Sequence[int]:
    """The tokens, all of which the model has. Raises `ParamError`."""
    n_vocab = engine.facts.n_vocab
    for token in tokens:
        if not 0 <= token < n_vocab:
            raise ParamError(param, f"{param} has the token {token}; the model has those from 0 to {n_vocab - 1}")
    return tokens


def _seeded(request: Request, i: int) -> Request:
    """The request for the answer number `i` to one prompt."""
    seed = request.sampling.seed
    if not i or seed is None or seed < 0:
        return request
    return replace(request, sampling=replace(request.sampling, seed=(seed + i) % 2**64))
