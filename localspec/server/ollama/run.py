"""How /api/chat and /api/generate answer: by the line as it is written, or whole."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from localspec.errors import ModelNotFoundError
from localspec.server.answers import Answers, End, Piece, Prompt, model_name, start
from localspec.server.errors import Problem
from localspec.server.ollama import answer, convert, durations, schemas
from localspec.server.settings import Settings
from localspec.server.sse import NDJSON, Stream, line
from localspec.serving.api import Host


class Form(Protocol):
    """The fields that hold a piece of an answer, or all of it."""

    def __call__(self, content: str, thinking: str, calls: Sequence[dict[str, Any]]) -> dict[str, Any]: ...


#: fields of the last object, from the whole answer
Last = Callable[[End], Mapping[str, Any]]


def error_shape(problem: Problem) -> dict[str, Any]:
    """An error as Ollama's clients read it, in a body as in a line."""
    return {"error": problem.message}


@dataclass
class Run:
    """An answer under way, as one of the two APIs gives it."""

    body: schemas.Generating
    form: Form
    answers: Answers
    begun: float
    load_seconds: float
    warnings: list[str]
    last: Last

    def chunk(self, **fields: Any) -> dict[str, Any]:
        return {"model": self.body.model, "created_at": answer.now(), "done": False, **fields}

    def piece(self, content: str, thinking: str, calls: Sequence[dict[str, Any]], logprobs: Any = ()) -> dict[str, Any]:
        fields = self.form(content, thinking, calls)
        if logprobs:
            fields["logprobs"] = answer.logprobs(logprobs, bool(self.body.top_logprobs))
        return self.chunk(**fields)

    def final(self, end: End) -> Mapping[str, Any]:
        seconds = time.monotonic() - self.begun
        return {**answer.final(end, self.load_seconds, seconds, self.warnings), **self.last(end)}

    async def lines(self) -> AsyncIterator[bytes]:
        calls = answer.Calls()
        async for item in self.answers:
            if isinstance(item, Piece):
                content = "".join(delta.content or "" for delta in item.deltas)
                thinking = "".join(delta.reasoning or "" for delta in item.deltas)
                whole = calls.feed(item.deltas)
                if content or thinking or whole or item.logprobs:
                    yield line(self.piece(content, thinking, whole, item.logprobs))
                continue
            rest = calls.finish()
            if rest:
                yield line(self.piece("", "", rest))
            if calls.n_cut:
                self.warnings.append(answer.CUT_CALL)
            yield line({**self.piece("", "", ()), **self.final(item)})

    async def whole(self, request: Request) -> dict[str, Any]:
        [end] = await self.answers.collect(request)
        calls = [answer.whole_call(call, i) for i, call in enumerate(end.reply.tools)]
        if None in calls:
            self.warnings.append(answer.CUT_CALL)
        made = self.piece(
            end.reply.content, end.reply.reasoning, [call for call in calls if call is not None], end.logprobs
        )
        return {**made, **self.final(end)}


async def respond(
    request: Request,
    body: schemas.Generating,
    prompt: Prompt,
    form: Form,
    last: Last = lambda end: {},
    before: Sequence[int] = (),
) -> Response:
    """Answer a prompt that follows the tokens of `before`. Raises what `start` and `collect` do."""
    settings: Settings = request.app.state.settings
    begun = time.monotonic()
    answers = await start(request, convert.ask(body, prompt, settings, before))
    load_seconds = time.monotonic() - begun
    facts = answers.engine.facts
    if body.keep_alive is not None:
        request.app.state.host.keep(facts.name, durations.parse(body.keep_alive))
    told = [*answers.warnings, *convert.warnings_of_model(body, facts)]
    run = Run(body, form, answers, begun, load_seconds, told, last)
    if body.stream is False:
        return JSONResponse(await run.whole(request))
    return Stream(
        run.lines(),
        answers.close,
        media_type=NDJSON,
        on_error=lambda problem: line(error_shape(problem)),
        # ollama-python reads every line as an object: there are no comments, but pieces of no text
        keep_alive=line(run.piece("", "", ())),
        every=settings.keep_alive,
        write_timeout=settings.write_timeout,
    )


async def load_or_unload(request: Request, body: schemas.Generating, form: Form) -> Response:
    """Nothing to write is how clients ask to load a model, or with `keep_alive` 0 to unload it."""
    host: Host = request.app.state.host
    name = model_name(convert.untagged(body.model), host, request.app.state.settings)
    seconds = durations.parse(body.keep_alive) if body.keep_alive is not None else None
    begun = time.monotonic()
    if seconds == 0 and body.keep_alive is not None:
        await host.unload(known(host, name))
        reason = "unload"
    else:
        async with host.use(name) as engine:
            if body.keep_alive is not None:
                host.keep(engine.facts.name, seconds)
        reason = "load"
    took = answer.ns(time.monotonic() - begun)
    empty = {"model": body.model, "created_at": answer.now(), **form("", "", ())}
    return JSONResponse({**empty, "done": True, "done_reason": reason, "total_duration": took, "load_duration": took})


def known(host: Host, name: str | None) -> str:
    """The name of a model that is on this machine. Raises `ModelNotFoundError`."""
    names = [model.name for model in host.available()]
    if name is None and names:
        return next((engine.facts.name for engine in host.loaded()), names[0])
    if name not in names:
        raise ModelNotFoundError(f"model '{name}' not found", "see GET /api/tags")
    return name
