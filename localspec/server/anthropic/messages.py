"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from localspec.chat_format.api import ChatRequest
from localspec.server import limits
from localspec.server.answers import Answers, Ask, End, Piece, chat_tokens, model_name, start
from localspec.server.anthropic import convert, events, schemas
from localspec.server.fields import max_tokens
from localspec.server.settings import Settings
from localspec.server.sse import Stream

router = APIRouter(tags=["anthropic"])

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse, "description": words}
    for status, words in {400: "Not a request that can be answered", 404: "No such model", 503: "No room"}.items()
}
_STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
    **_ERRORS,
}


@router.post("/v1/messages", response_model=schemas.MessageResponse, responses=_STREAMED)
async def messages(request: Request, body: schemas.MessagesRequest) -> Response:
    """Answer a conversation, whole or with `stream` as named events."""
    settings: Settings = request.app.state.settings
    answers = await start(request, _ask(body, settings))
    message = _Message(body, answers)
    if not body.stream:
        return JSONResponse(await message.whole(request))
    return Stream(
        message.events(),
        answers.close,
        on_error=events.error_event,
        keep_alive=events.PING,
        every=settings.keep_alive,
        write_timeout=settings.write_timeout,
    )


@router.post("/v1/messages/count_tokens", responses=_ERRORS)
async def count_tokens(request: Request, body: schemas.CountRequest) -> schemas.CountResponse:
    """How many tokens the prompt of a request has."""
    host, settings = request.app.state.host, request.app.state.settings
    chat = _chat(body, settings)
    async with host.use(model_name(body.model, host, settings)) as engine:
        tokens = await asyncio.to_thread(lambda: chat_tokens(engine, engine.chat.apply(chat)))
    return schemas.CountResponse(input_tokens=len(tokens))


def _chat(body: schemas.CountRequest, settings: Settings) -> ChatRequest:
    bounds = settings.bounds
    limits.count(body.messages, bounds.messages, "messages")
    limits.count(body.tools or (), bounds.tools, "tools")
    chat = convert.chat(body)
    limits.tree(list(chat.messages), bounds, "messages")
    limits.schema(list(chat.tools), bounds, "tools")
    limits.schema(chat.json_schema, bounds, "output_config.format")
    return chat


def _ask(body: schemas.MessagesRequest, settings: Settings) -> Ask:
    bounds = settings.bounds
    warnings = convert.warnings(body)
    method, accept = body.speculate()
    chat = replace(
        _chat(body, settings),
        **({"json_schema": limits.schema(body.json_schema, bounds, "json_schema")} if body.json_schema else {}),
        grammar=limits.grammar(body.grammar, bounds),
    )
    return Ask(
        prompts=[chat],
        model=body.model,
        sampling=body.sampling(settings.sampling, bounds),
        max_tokens=max_tokens(body.max_tokens, bounds=bounds),
        stops=limits.stops(body.stop_sequences, bounds, "stop_sequences"),
        method=method,
        accept=accept,
        ignore_eos=bool(body.ignore_eos),
        cache_prompt=body.cache_prompt is not False,
        warnings=warnings,
    )


class _Message:
    """An answer under way."""

    def __init__(self, body: schemas.MessagesRequest, answers: Answers) -> None:
        self._body, self._answers = body, answers

    def _start(self, **fields: Any) -> dict[str, Any]:
        return {
            "id": f"msg_{self._answers.id}",
            "type": "message",
            "role": "assistant",
            "model": self._body.model,
            **fields,
        }

    def _beside(self, end: End, n_cut: int) -> dict[str, Any]:
        """What a reply tells beside the answer."""
        warnings = [*self._answers.warnings, *([events.CUT_CALL] if n_cut else [])]
        told = {"speculation": end.speculation, "timings": end.timings}
        return {**told, "warnings": warnings} if warnings else told

    async def whole(self, request: Request) -> dict[str, Any]:
        [end] = await self._answers.collect(request)
        content, n_cut = events.blocks(end)
        return self._start(content=content, **self._stop(end), usage=events.usage(end), **self._beside(end, n_cut))

    async def events(self) -> AsyncIterator[bytes]:
        usage = {"input_tokens": self._answers.n_prompt, "output_tokens": 0}
        message = self._start(content=[], stop_reason=None, stop_sequence=None, usage=usage)
        yield events.named({"type": "message_start", "message": message})
        yield events.PING
        blocks = events.Blocks()
        async for item in self._answers:
            if isinstance(item, Piece):
                for each in blocks.feed(item.deltas):
                    yield each
                continue
            for each in blocks.finish():
                yield each
            last = {"type": "message_delta", "delta": self._stop(item), "usage": events.usage(item)}
            yield events.named({**last, **self._beside(item, 0)})
            yield events.named({"type": "message_stop"})

    def _stop(self, end: End) -> dict[str, Any]:
        return events.stop(end, self._body.stop_sequences or ())
