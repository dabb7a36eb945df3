"""What servers and libraries ask of an engine, and what it answers.

An `Engine` is one loaded model. Requests go in from any thread; answers come out as updates that a thread or an event
loop reads. A `Host` keeps the models of a process. Nothing here loads the native library.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from localspec.chat_format.api import ChatFormat
from localspec.engine.params import SamplingParams
from localspec.errors import EngineError
from localspec.events import FinishReason, Stats

#: most alternatives a token that log-probabilities are told of
MAX_TOP_LOGPROBS = 20


class BusyError(EngineError):
    """No room in the queue: to be tried again in `retry_after` seconds."""

    http_status = 503

    def __init__(self, message: str, hint: str | None = None, retry_after: int = 1) -> None:
        super().__init__(message, hint)
        self.retry_after = retry_after


class LoadingError(BusyError):
    """The model is not there yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One text to be written.

    `prompt` are token ids, one at least. `max_tokens` None is the end of the context, 0 only reads the prompt.
    `method` is a name of `localspec.methods.registry`, "plain" for none, None for the engine's own; `accept` the rule
    that drafts are accepted by ("strict", "typical", "loose"). `top_logprobs` None tells no log-probabilities, 0 those
    of the emitted tokens. `preserved` are special tokens whose text is part of the answer. `owner` is whom the queue is
    fair to. `timeout` is in seconds from submission.
    """

    prompt: Sequence[int]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    method: str | None = None
    accept: str | None = None
    top_logprobs: int | None = None
    preserved: frozenset[int] = frozenset()
    ignore_eos: bool = False
    cache_prompt: bool = True
    owner: str = ""
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of the answer: its id, its bytes, its natural log-probability under the model (softmax of the raw
    logits), and the most likely tokens there, best first."""

    token: int
    piece: bytes
    logprob: float
    top: tuple[tuple[int, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Begun:
    """The prompt was read; `n_cached` of its `n_prompt` tokens were in the slot's cache."""

    n_prompt: int
    n_cached: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Written:
    """Text that is certain, and the tokens that it is of: `tokens` are told when all of their text has been.

    Tokens of a stop string, and those that end a text, are told nowhere. `logprobs` has one entry a token if they were
    asked for, else none.
    """

    text: str
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Speculation:
    """What speculation did for one answer. `method` is the one that was used, "plain" for none; `reason` is why it is
    off, None when it was on. `speedup` is against plain decoding, as measured during the answer, None when not known.
    """

    method: str
    lossless: bool
    reason: str | None
    drafted: int
    accepted: int
    forgiven: int
    tokens_per_step: float
    speedup: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The last update of an answer. `stop` is the stop string that matched, if one did; `eog` says that the model ended
    the text itself. `truncated` says that the context ended before `max_tokens` did."""

    reason: FinishReason
    stop: str | None
    eog: bool
    truncated: bool
    stats: Stats
    speculation: Speculation
    seed: int


Update = Begun | Written | Ended


class Generation(Protocol):
    """One answer under way: read it with `for` in a thread, or with `async for` in an event loop, once.

    The updates are `Begun`, `Written` as often as there is text, `Ended`. They end early with a `LocalspecError`.
    """

    id: int
    slot: int | None

    def cancel(self) -> None:
        """End it within a step, also while it waits or its prompt is read. Idempotent; from any thread."""
        ...

    def __iter__(self) -> Iterator[Update]: ...

    def __aiter__(self) -> AsyncIterator[Update]: ...


@dataclass(frozen=True, slots=True)
class SlotState:
    """A slot, for people who watch. `task` is the id of the request that it serves or served last."""

    id: int
    n_ctx: int
    busy: bool
    task: int | None
    method: str
    n_prompt: int
    n_read: int
    n_cached: int
    n_decoded: int
    n_left: int | None
    params: Request | None


@dataclass(frozen=True, slots=True)
class Pooled:
    """Embeddings, float lists [n][n_embd] of length 1, and how many tokens were read."""

    vectors: list[list[float]]
    n_tokens: int


@dataclass(frozen=True)
class Facts:
    """What there is to know of a loaded model. `n_ctx` counts the tokens of one slot; `created` is Unix time; `size`
    and `n_params` are those of the tensors; `methods` are those that requests can ask for."""

    name: str
    path: Path
    description: str
    size: int
    n_params: int
    n_vocab: int
    n_embd: int
    n_ctx: int
    n_ctx_train: int
    n_slots: int
    architecture: str
    quant: str
    created: int
    mode: str
    device: str
    method: str
    methods: tuple[str, ...]
    bos: str
    eos: str
    chat_template: str


@dataclass(frozen=True, slots=True)
class FimTokens:
    """Tokens that mark the texts between which a model is to write: prefix, text, suffix, text, middle.

    `repo` and `file` begin the name of a project and of one of its files; None where the model has no such token.
    """

    prefix: int
    suffix: int
    middle: int
    repo: int | None = None
    file: int | None = None


class Engine(Protocol):
    """One loaded model, with slots. All calls are safe from any thread."""

    facts: Facts
    chat: ChatFormat

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]: ...

    def piece(self, token: int, special: bool = True) -> bytes:
        """Bytes of a token; with `special` those of special tokens too. Raises `UsageError` for an id that is none."""
        ...

    def fim(self) -> FimTokens | None:
        """The tokens for writing between two texts; None when the model was not made for it."""
        ...

    def submit(self, request: Request) -> Generation:
        """Queue a request. Raises `BusyError`, `ContextLengthError` and `UsageError` at once."""
        ...

    def embed(self, inputs: Sequence[Sequence[int]], normalize: bool = True) -> Future[Pooled]:
        """Mean-pooled (or as the model says) embeddings of texts as tokens. Raises `ContextLengthError`."""
        ...

    def slots(self) -> list[SlotState]: ...

    def n_waiting(self) -> int:
        """Requests that wait for a slot."""
        ...

    def stuck(self) -> float | None:
        """Seconds that the native call under way has taken, if that is far longer than it should; else None."""
        ...

    def live(self) -> bytes:
        """The newest snapshot for `localspec top`, as JSON (see `localspec.tui.feed`)."""
        ...


@dataclass(frozen=True)
class Available:
    """A model that can be asked for by `name`."""

    name: str
    path: Path
    size: int
    quant: str
    created: int
    loaded: bool
    role: str = ""


State = Literal["loading", "ready", "degraded", "closing"]


class Host(Protocol):
    """The models of a process. Methods that wait are coroutines; all run in the event loop of the server."""

    def state(self) -> State: ...

    def available(self) -> list[Available]:
        """The models on this machine, those that are loaded among them."""
        ...

    def loaded(self) -> list[Engine]: ...

    def loading(self) -> tuple[str, float] | None:
        """What is being loaded ("loading the model") and the share that is done."""
        ...

    def use(self, name: str | None) -> AbstractAsyncContextManager[Engine]:
        """The engine of a model (None: the default one), loaded if need be, kept while in use.

        Raises `ModelNotFoundError`, `BusyError` when there is no room for it, and what loading raises.
        """
        ...

    async def unload(self, name: str) -> bool:
        """Unload a model that nobody uses; False when it was not loaded. Raises `BusyError` when it is in use."""
        ...

    async def pull(self, name: str, progress: Callable[[str, int, int], None]) -> None:
        """Download a known model; `progress` gets (status, bytes done, bytes in all). Raises `DownloadError`."""
        ...

    def keep(self, name: str, seconds: float | None) -> None:
        """Unload the model when it has been idle for so long; None keeps it, 0 unloads after this use."""
        ...

    def expires(self, name: str) -> float | None:
        """Unix time at which it is unloaded if nobody uses it before; None for never."""
        ...
