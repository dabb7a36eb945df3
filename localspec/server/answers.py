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
from dataclasses import dataclass, replace
from typing import Any, Literal

from fastapi import Request

from localspec.chat_format.api import Delta, Reply, ReplyReader
from localspec.errors import EngineError, LocalspecError
from localspec.server import reports, speculation
from localspec.server.asking import Ask, Prompt, chat_tokens, check_tokens, model_name, prepare
from localspec.server.disconnect import watched
from localspec.server.errors import ApiError, ParamError
from localspec.server.metrics import Metrics, Pace
from localspec.server.security import AFTER
from localspec.server.settings import Settings
from localspec.serving import api
from localspec.serving.api import Begun, Ended, Engine, Generation, Host, TokenLogprob, Written

__all__ = [
    "Answers",
    "Ask",
    "End",
    "FinishReason",
    "Piece",
    "Prompt",
    "chat_tokens",
    "check_tokens",
    "model_name",
    "start",
]

FinishReason = Literal["stop", "length", "tool_calls"]

#: seconds that a reply waits for a sign that the engine has taken the request: what is wrong with it is told with a
#: status then, not in the middle of a stream
_SETTLE = 0.25
#: beyond the time that the engine has for an answer: whoever does not keep to it is stuck
_PATIENCE = 5.0


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
        #: tokens of all prompts, cached or not
        self.n_prompt = 0
        self.warnings = list(ask.warnings)
        self._metrics = metrics
        self._choices: list[_Choice] = []
        self._queue: asyncio.Queue[tuple[_Choice | None, api.Update | Exception]] = asyncio.Queue()
        self._pumps: list[asyncio.Task[None]] = []
        self._closed = False
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
        """Load, prepare and submit. Raises `LocalspecError`. `close` is to be awaited whatever happens."""
        self.engine = await self._stack.enter_async_context(host.use(model_name(self.ask.model, host, self.settings)))
        # templates, grammars and long texts take their time
        await asyncio.to_thread(self._submit, owner)
        loop = asyncio.get_running_loop()
        taken: list[asyncio.Future[Exception | None]] = [loop.create_future() for _ in self._choices]
        pairs = zip(self._choices, taken, strict=True)
        self._pumps = [asyncio.ensure_future(self._pump(choice, each)) for choice, each in pairs]
        if self.settings.timeout is not None:
            late = ApiError(f"the answer took longer than {self.settings.timeout:g} s", status=504, code="timeout")
            timer = loop.call_later(self.settings.timeout + _PATIENCE, self.abort, late)
            self._stack.callback(timer.cancel)
        await asyncio.wait(taken, timeout=_SETTLE)
        for each in taken:
            if each.done() and (error := each.result()) is not None:
                raise error

    def _submit(self, owner: str) -> None:
        prepared = prepare(self.ask, self.engine, self.settings, owner)
        self.n_prompt = sum(len(each.request.prompt) for each in prepared[:: self.ask.n])
        for index, each in enumerate(prepared):
            if self._closed:
                return
            generation = self.engine.submit(each.request)
            self._choices.append(_Choice(index, each.request, each.reader(), generation, self._metrics.pace()))
            # this thread goes on when nobody waits for it any more
            if self._closed:
                generation.cancel()

    async def _pump(self, choice: _Choice, taken: asyncio.Future[Exception | None]) -> None:
        """Read one answer into the queue; `taken` gets the error that comes in place of its first update, else None."""
        try:
            async for update in choice.generation:
                self._queue.put_nowait((choice, update))
                if not taken.done():
                    taken.set_result(None)
                if isinstance(update, Ended):
                    return
        except Exception as error:
            failure = error
        else:
            failure = EngineError("the engine left the answer without an end")
        self._queue.put_nowait((choice, failure))
        if not taken.done():
            taken.set_result(failure)

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

    def when_closed(self, then: Callable[[], object]) -> None:
        """Call `then` once these are closed."""
        self._stack.callback(then)

    async def close(self) -> None:
        """Cancel what is still under way and let go of the model. Idempotent."""
        self._closed = True
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
    state.running.add(answers)
    # whatever becomes of the request, its generations end with it
    request.scope[AFTER].append(answers.close)
    answers.when_closed(lambda: state.running.discard(answers))
    await watched(request.receive, answers.open(state.host, _owner(request)))
    return answers


def _owner(request: Request) -> str:
    """Whom the queue is fair to: an address and a key, which unlike names cannot be made up."""
    address = request.client.host if request.client else ""
    keyed = bool(request.app.state.settings.api_keys)
    key = request.headers.get("authorization") or request.headers.get("x-api-key") if keyed else None
    return f"{address}/{key or ''}"
