"""The one place that runs generations for HTTP, whichever API they are asked for by.

A router makes an `Ask` of its request and calls `start`, which loads the model, applies the chat format, and submits;
what is wrong with the request is raised here, before the first byte of the reply. Then one of two:

    answers = await start(request, ask)
    ends = await answers.collect(request)          # the whole answers, an `End` each; closes by itself

    return Stream(chunks(answers), answers.close)  # chunks: an async generator of the router's own, over
    async for item in answers:                     # `Piece`s as they are written, an `End` for each answer

Both end within a step when the client goes. An iteration ends with all its `End`s or with a `LocalspecError`, never
without: an answer that was cancelled, timed out, or cut off by the end of the server is an error. `usage`, `timings`
and `speculation` of `End`s are dicts ready to be sent.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fastapi import Request

from localspec.chat_format.api import ChatPrompt, ChatRequest, Delta, Reply, ReplyReader
from localspec.engine.params import SamplingParams
from localspec.errors import EngineError, LocalspecError
from localspec.server import reports, speculation
from localspec.server.disconnect import watched
from localspec.server.errors import ApiError, ParamError
from localspec.server.metrics import Metrics, Pace
from localspec.server.settings import DEFAULT_NAMES, Settings
from localspec.serving import api
from localspec.serving.api import Begun, Ended, Engine, Generation, Host, TokenLogprob, Written

FinishReason = Literal["stop", "length", "tool_calls"]
#: a function makes the tokens when the model is there
Prompt = str | Sequence[int] | ChatRequest | Callable[[Engine], Sequence[int]]

#: beyond the time that the engine has for an answer: whoever does not keep to it is stuck
_PATIENCE = 5.0


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
    user: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """More of the answer `index`: its parts, and its text and tokens as the model wrote them."""

    index: int
    deltas: tuple[Delta, ...]
    text: str = ""
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class End:
    """A whole answer. `text` is as the model wrote it, `reply` its parts; `prompt` are the tokens that it follows."""

    index: int
    finish_reason: FinishReason
    text: str
    reply: Reply
    ended: Ended
    prompt: Sequence[int]
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    requested: str | None

    @property
    def timings(self) -> dict[str, Any]:
        return reports.timings(self.ended)

    @property
    def speculation(self) -> dict[str, Any]:
        return speculation.told(self.ended.speculation, self.requested)


class _PlainReader:
    """The reader of texts that are no chat: all of it is content."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def feed(self, text: str) -> list[Delta]:
        self._parts.append(text)
        return [Delta(content=text)] if text else []

    def finish(self) -> list[Delta]:
        return []

    @property
    def reply(self) -> Reply:
        return Reply("".join(self._parts))


class _Choice:
    """One answer under way."""

    def __init__(
        self, index: int, request: api.Request, reader: ReplyReader, generation: Generation, pace: Pace
    ) -> None:
        self.pace = pace
        self.index, self.request, self.reader, self.generation = index, request, reader, generation
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._cut = False

    def cut(self) -> None:
        self._cut = True
        self.generation.cancel()

    def written(self, update: Written) -> Piece:
        self._text.append(update.text)
        self._tokens += update.tokens
        self._logprobs += update.logprobs
        deltas = tuple(self.reader.feed(update.text)) if update.text else ()
        return Piece(self.index, deltas, update.text, update.tokens, update.logprobs)

    def finished(self) -> Piece:
        """What the end of the text makes certain."""
        return Piece(self.index, tuple(self.reader.finish()))

    def end(self, ended: Ended, requested: str | None) -> End:
        reply = self.reader.reply
        if ended.reason == "cancelled" and self._cut:
            ended = replace(ended, reason="length")
        if ended.reason == "cancelled":
            raise ApiError("the answer was cancelled before its end", status=503, code="cancelled", retry=True)
        reason: FinishReason = "tool_calls" if reply.tools and ended.reason == "stop" else ended.reason
        return End(
            self.index, reason, "".join(self._text), reply, ended, self.request.prompt, tuple(self._tokens),
            tuple(self._logprobs), requested,
        )  # fmt: skip


class Answers:
    """The answers to one request, under way; see the module. `id` is fresh, `created` Unix time."""

    engine: Engine

    def __init__(self, ask: Ask, settings: Settings, metrics: Metrics) -> None:
        self.ask, self.settings = ask, settings
        self.id = secrets.token_hex(12)
        self.created = int(time.time())
        self.n_prompt = 0
        self.warnings = list(ask.warnings)
        self._metrics = metrics
        self._choices: list[_Choice] = []
        self._queue: asyncio.Queue[tuple[_Choice | None, api.Update | Exception]] = asyncio.Queue()
        self._pumps: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()

    @property
    def model(self) -> str:
        """The name of the model that answers."""
        return self.engine.facts.name

    @property
    def n_choices(self) -> int:
        """How many answers there will be: `ask.n` for each prompt in turn."""
        return len(self._choices)

    async def open(self, host: Host, owner: str) -> None:
        """Load, prepare and submit. Raises `LocalspecError`; `close` is to be awaited even then."""
        self.engine = await self._stack.enter_async_context(host.use(model_name(self.ask.model, host, self.settings)))
        # templates, grammars and long texts take their time
        prepared = await asyncio.to_thread(self._prepare, owner)
        loop = asyncio.get_running_loop()
        for request, chat in prepared:
            for i in range(self.ask.n):
                reader = _PlainReader() if chat is None else self.engine.chat.reader(chat)
                seeded = _seeded(request, i)
                pace = self._metrics.pace()
                self._choices.append(_Choice(len(self._choices), seeded, reader, self.engine.submit(seeded), pace))
        self._pumps = [asyncio.ensure_future(self._pump(choice)) for choice in self._choices]
        if self.settings.timeout is not None:
            late = ApiError(f"the answer took longer than {self.settings.timeout:g} s", status=504, code="timeout")
            timer = loop.call_later(self.settings.timeout + _PATIENCE, self.abort, late)
            self._stack.callback(timer.cancel)

    def _prepare(self, owner: str) -> list[tuple[api.Request, ChatPrompt | None]]:
        """The requests to the engine, one a prompt, and the chat prompts that they are of."""
        ask = self.ask
        method, accept = speculation.asked(ask.method, ask.accept, self.engine.facts)
        before = check_tokens(list(ask.before), self.engine, "context")
        prepared = []
        for prompt in ask.prompts:
            chat = self.engine.chat.apply(prompt) if isinstance(prompt, ChatRequest) else None
            request = api.Request(
                prompt=[*before, *(self._tokens(prompt) if chat is None else chat_tokens(self.engine, chat))],
                sampling=ask.sampling if chat is None else constrained(ask.sampling, chat),
                max_tokens=ask.max_tokens,
                stops=ask.stops if chat is None else tuple(dict.fromkeys((*ask.stops, *chat.stops))),
                method=method,
                accept=accept,
                top_logprobs=ask.top_logprobs,
                preserved=frozenset() if chat is None else chat.preserved,
                ignore_eos=ask.ignore_eos,
                cache_prompt=ask.cache_prompt,
                owner=owner,
                timeout=self.settings.timeout,
            )
            self.n_prompt += len(request.prompt)
            prepared.append((request, chat))
        return prepared

    def _tokens(self, prompt: Any) -> Sequence[int]:
        if callable(prompt):
            prompt = prompt(self.engine)
        if isinstance(prompt, str):
            return self.engine.tokenize(prompt, add_special=not self.ask.before)
        return check_tokens(list(prompt), self.engine, "prompt")

    async def _pump(self, choice: _Choice) -> None:
        try:
            async for update in choice.generation:
                self._queue.put_nowait((choice, update))
                if isinstance(update, Ended):
                    return
        except Exception as error:
            self._queue.put_nowait((choice, error))
        else:
            self._queue.put_nowait((choice, EngineError("the engine left the answer without an end")))

    def abort(self, error: LocalspecError) -> None:
        """End all of them with an error."""
        self._queue.put_nowait((None, error))

    async def __aiter__(self) -> AsyncIterator[Piece | End]:
        left = len(self._choices)
        while left:
            choice, update = await self._queue.get()
            if isinstance(update, Exception):
                raise update
            if choice is None or isinstance(update, Begun):
                continue
            if isinstance(update, Written):
                piece = choice.written(update)
                choice.pace.wrote(len(update.tokens))
            else:
                piece = choice.finished()
            if piece.deltas or piece.text or piece.tokens:
                yield piece
            if isinstance(update, Ended):
                left -= 1
                self._metrics.ended(update)
                yield choice.end(update, self.ask.method)

    def request(self, index: int) -> api.Request:
        """What the engine was asked for."""
        return self._choices[index].request

    def slot(self, index: int) -> int | None:
        """The slot that an answer has, None while it waits for one."""
        return self._choices[index].generation.slot

    def cut(self, index: int) -> None:
        """End an answer within a step, as if that were all the tokens that it may have."""
        self._choices[index].cut()

    async def collect(self, request: Request) -> list[End]:
        """All whole answers, in order; closes. Raises what an iteration does, `ClientGoneError` when nobody waits."""
        try:
            return await watched(request.receive, self._collect())
        finally:
            await self.close()

    async def _collect(self) -> list[End]:
        ends = [item async for item in self if isinstance(item, End)]
        return sorted(ends, key=lambda end: end.index)

    def usage(self, ends: Sequence[End]) -> dict[str, Any]:
        """The usage of the whole request."""
        ordered = sorted(ends, key=lambda end: end.index)
        return reports.usage([end.ended for end in ordered], len(self.ask.prompts))

    async def close(self) -> None:
        """Cancel what is still under way and let go of the model. Idempotent."""
        for choice in self._choices:
            choice.generation.cancel()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await self._stack.aclose()


async def start(request: Request, ask: Ask) -> Answers:
    """Begin to answer. Raises `LocalspecError` for all that is known at once, `ClientGoneError` when nobody waits."""
    state = request.app.state
    most = state.settings.bounds.answers
    if len(ask.prompts) * ask.n > most:
        raise ParamError("n", f"{len(ask.prompts) * ask.n} answers are asked for at once; it is at most {most}")
    answers = Answers(ask, state.settings, state.metrics)
    try:
        await watched(request.receive, answers.open(state.host, _owner(request, ask)))
    except BaseException:
        await answers.close()
        raise
    state.running.add(answers)
    answers._stack.callback(state.running.discard, answers)
    return answers


def chat_tokens(engine: Engine, chat: ChatPrompt) -> list[int]:
    """The tokens of a conversation."""
    bos = engine.facts.bos
    # templates often write it themselves
    return engine.tokenize(chat.text, add_special=not (bos and chat.text.startswith(bos)))


def model_name(name: str | None, host: Host, settings: Settings) -> str | None:
    """The name to give to `Host.use` for one that a client gave."""
    if name is None or name in DEFAULT_NAMES:
        return None
    if settings.any_model and all(name != model.name for model in host.available()):
        return None
    return name


def check_tokens(tokens: list[int], engine: Engine, param: str) -> list[int]:
    """The tokens, all of which the model has. Raises `ParamError`."""
    n_vocab = engine.facts.n_vocab
    for token in tokens:
        if not 0 <= token < n_vocab:
            raise ParamError(param, f"{param} has the token {token}; the model has those from 0 to {n_vocab - 1}")
    return tokens


def constrained(sampling: SamplingParams, chat: ChatPrompt) -> SamplingParams:
    """The sampling under the grammar of a chat format."""
    if chat.grammar is None:
        return sampling
    return replace(sampling, grammar=chat.grammar)


def _seeded(request: api.Request, i: int) -> api.Request:
    """The request for the answer number `i` to one prompt."""
    seed = request.sampling.seed
    if not i or seed is None or seed < 0:
        return request
    return replace(request, sampling=replace(request.sampling, seed=(seed + i) % 2**64))


def _owner(request: Request, ask: Ask) -> str:
    """Whom the queue is fair to: an address, and who the client says that it asks for."""
    return f"{request.client.host if request.client else ''}/{ask.user[:64]}"
