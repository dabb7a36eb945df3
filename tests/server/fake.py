"""An engine that writes what a test tells it to: `localspec.serving.api` without a model.

A token is a byte; `EOG` ends a text. Each update is one token, with `pause` seconds before it.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path

from localspec.chat_format.api import ChatPrompt, ChatRequest, Delta, Reply
from localspec.errors import ContextLengthError, LocalspecError, ModelNotFoundError, UsageError
from localspec.events import Stats
from localspec.serving.api import (
    Available,
    Begun,
    BusyError,
    Ended,
    Engine,
    Facts,
    FimTokens,
    Pooled,
    Request,
    SlotState,
    Speculation,
    State,
    TokenLogprob,
    Update,
    Written,
)
from localspec.text import TextStream

EOG = 256
#: what a fake engine marks texts with to write between them: control characters
FIM = FimTokens(prefix=1, suffix=2, middle=3, repo=4, file=5)

#: what is written after a prompt; an exception is raised in the stream where it comes
Script = Callable[[str], str | Sequence[str | LocalspecError]]


def echo(prompt: str) -> str:
    """The last line of the prompt that has words."""
    return next(line for line in reversed(prompt.splitlines()) if line.strip(" >")).strip()


class FakeGeneration:
    """`Generation`, made in the thread or the event loop that reads it."""

    def __init__(self, engine: FakeEngine, request: Request, number: int) -> None:
        self.engine, self.request, self.id = engine, request, number
        self.slot: int | None = None
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def __iter__(self) -> Iterator[Update]:
        for update in self._updates():
            time.sleep(self.engine.pause)
            yield update

    async def __aiter__(self) -> AsyncIterator[Update]:
        while len(self.engine.busy) >= self.engine.facts.n_slots and not self.cancelled:
            await asyncio.sleep(0.001)
        for update in self._updates():
            await asyncio.sleep(self.engine.pause)
            yield update

    def _updates(self) -> Iterator[Update]:
        engine = self.engine
        while len(engine.busy) >= engine.facts.n_slots and not self.cancelled:
            time.sleep(0.001)
        self.slot = next(i for i in itertools.count() if i not in engine.busy)
        engine.busy[self.slot] = self
        try:
            yield from self._written()
        finally:
            del engine.busy[self.slot]

    def _written(self) -> Iterator[Update]:
        engine, request = self.engine, self.request
        n_prompt = len(request.prompt)
        stats = Stats(n_prompt=n_prompt, prompt_seconds=0.01)
        yield Begun(n_prompt, 0, 0.01)
        text = bytes(token for token in request.prompt if token < 256).decode("utf-8", "replace")
        script = engine.script(text)
        room = engine.facts.n_ctx - n_prompt
        left = room if request.max_tokens is None else min(room, request.max_tokens)
        stream = TextStream(lambda token: engine.piece(token, special=False), request.stops)
        reason, eog = "stop", True
        for part in [script] if isinstance(script, str) else script:
            if isinstance(part, LocalspecError):
                raise part
            for token in engine.spelled(part):
                if self.cancelled:
                    reason, eog = "cancelled", False
                    break
                if left == 0:
                    reason, eog = "length", False
                    break
                left -= 1
                stats.n_tokens += 1
                stats.n_steps += 1
                stats.seconds += 0.01
                piece = stream.push(token)
                if stream.stopped is not None:
                    eog = False
                    if piece:
                        yield Written(piece)
                    break
                logprobs = () if request.top_logprobs is None else (engine.logprob(token, request.top_logprobs),)
                yield Written(piece, (token,), logprobs)
            else:
                continue
            break
        rest = stream.flush()
        if rest:
            yield Written(rest)
        method = request.method or engine.facts.method
        on = method != "plain"
        stats.n_drafted, stats.n_accepted = (stats.n_tokens, stats.n_tokens // 2) if on else (0, 0)
        reason_off = None if on else "plain decoding was asked for"
        report = Speculation(method, True, reason_off, stats.n_drafted, stats.n_accepted, 0, 1.0, 1.5 if on else None)
        yield Ended(reason, stream.stopped, eog, False, stats, report, request.sampling.seed or 0)


class FakeReader:
    """Replies are content as they are."""

    def __init__(self) -> None:
        self.reply = Reply()

    def feed(self, text: str) -> list[Delta]:
        self.reply = Reply(self.reply.content + text)
        return [Delta(content=text)] if text else []

    def finish(self) -> list[Delta]:
        return []


class FakeFormat:
    """One line a message; it refuses two messages of one role in a row."""

    def apply(self, request: ChatRequest) -> ChatPrompt:
        roles = [message["role"] for message in request.messages]
        if any(a == b for a, b in itertools.pairwise(roles)):
            raise UsageError("the model's chat template refuses these messages: roles must alternate")
        lines = [f"{message['role']}: {message.get('content') or ''}" for message in request.messages]
        return ChatPrompt("\n".join([*lines, ">"]))

    def reader(self, prompt: ChatPrompt) -> FakeReader:
        return FakeReader()


class FakeEngine:
    """`Engine`. `script` says what is written; `full` makes it refuse requests as busy."""

    def __init__(
        self, name: str = "fake", script: Script = echo, *, n_ctx: int = 1024, n_slots: int = 2, pause: float = 0.0
    ) -> None:
        self.script, self.pause, self.full = script, pause, False
        self.fim_tokens: FimTokens | None = FIM
        self.requests: list[Request] = []
        self.busy: dict[int, FakeGeneration] = {}
        self.generations: list[FakeGeneration] = []
        self.chat = FakeFormat()
        self.facts = Facts(
            name=name,
            path=Path(f"/models/{name}.gguf"),
            description="fake 1M Q8_0",
            size=1_000_000,
            n_params=1_000_000,
            n_vocab=EOG + 1,
            n_embd=4,
            n_ctx=n_ctx,
            n_ctx_train=4096,
            n_slots=n_slots,
            architecture="llama",
            quant="Q8_0",
            created=1_700_000_000,
            mode="patched",
            device="CPU",
            method="ptd",
            methods=("auto", "ptd", "lookup", "plain"),
            bos="",
            eos="",
            chat_template="{{ messages }}",
        )

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        return list(text.encode())

    def spelled(self, text: str) -> list[int]:
        """The tokens that the model writes a text with."""
        return list(text.encode())

    def fim(self) -> FimTokens | None:
        return self.fim_tokens

    def piece(self, token: int, special: bool = True) -> bytes:
        if not 0 <= token <= EOG:
            raise UsageError(f"there is no token {token}")
        return b"" if token == EOG else bytes([token])

    def logprob(self, token: int, top: int) -> TokenLogprob:
        others = [(other % 256, bytes([other % 256]), -2.0 - i) for i, other in enumerate(range(token + 1, token + 20))]
        best = (token, bytes([token]), -0.25)
        return TokenLogprob(token, bytes([token]), -0.25, (best, *others)[:top])

    def submit(self, request: Request) -> FakeGeneration:
        if self.full:
            raise BusyError("the queue is full", "try again later", retry_after=2)
        if not request.prompt:
            raise UsageError("the prompt is empty")
        if len(request.prompt) >= self.facts.n_ctx:
            raise ContextLengthError(
                f"the prompt has {len(request.prompt)} tokens, which leaves no room in the context of "
                f"{self.facts.n_ctx}"
            )
        request.sampling.validate()
        self.requests.append(request)
        generation = FakeGeneration(self, request, len(self.requests))
        self.generations.append(generation)
        return generation

    def embed(self, inputs: Sequence[Sequence[int]], normalize: bool = True) -> Future[Pooled]:
        future: Future[Pooled] = Future()
        vectors = [[math.cos(sum(tokens)), math.sin(sum(tokens)), 0.0, 0.0] for tokens in inputs]
        threading.Timer(0.001, future.set_result, [Pooled(vectors, sum(map(len, inputs)))]).start()
        return future

    def slots(self) -> list[SlotState]:
        states = []
        for i in range(self.facts.n_slots):
            generation = self.busy.get(i)
            request = generation.request if generation else None
            n_prompt = len(request.prompt) if request else 0
            task = generation.id if generation else None
            states.append(
                SlotState(
                    i, self.facts.n_ctx, generation is not None, task, "ptd", n_prompt, n_prompt, 0, 0, None, request
                )
            )
        return states

    def n_waiting(self) -> int:
        return 0

    def stuck(self) -> float | None:
        return None

    def live(self) -> bytes:
        return b"{}"


class FakeHost:
    """`Host` over fake engines; the first is the default."""

    def __init__(self, *engines: FakeEngine) -> None:
        self.engines = {engine.facts.name: engine for engine in engines or (FakeEngine(),)}
        self.unloaded: set[str] = set()
        self.keeps: dict[str, float | None] = {}
        self.now: State = "ready"

    def state(self) -> State:
        return self.now

    def available(self) -> list[Available]:
        asyncio.get_running_loop()  # a host is of its event loop alone
        return [
            Available(
                name, engine.facts.path, engine.facts.size, "Q8_0", engine.facts.created, name not in self.unloaded
            )
            for name, engine in self.engines.items()
        ]

    def loaded(self) -> list[Engine]:
        asyncio.get_running_loop()
        return [engine for name, engine in self.engines.items() if name not in self.unloaded]

    def loading(self) -> tuple[str, float] | None:
        return ("loading the model", 0.5) if self.now == "loading" else None

    @asynccontextmanager
    async def use(self, name: str | None) -> AsyncIterator[Engine]:
        name = name or next(iter(self.engines))
        if name not in self.engines:
            raise ModelNotFoundError(f"there is no model {name!r}", "see GET /v1/models")
        self.unloaded.discard(name)
        yield self.engines[name]

    async def unload(self, name: str) -> bool:
        was = name in self.engines and name not in self.unloaded
        self.unloaded.add(name)
        return was

    async def pull(self, name: str, progress: Callable[[str, int, int], None]) -> None:
        if name not in self.engines:
            raise ModelNotFoundError(f"there is no model {name!r}")
        for done in (0, 50, 100):
            progress("downloading", done, 100)
            await asyncio.sleep(0)

    def keep(self, name: str, seconds: float | None) -> None:
        self.keeps[name] = seconds

    def expires(self, name: str) -> float | None:
        return None
