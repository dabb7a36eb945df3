"""/v1/responses: the newer of OpenAI's ways to go on with a conversation. Nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response

from localspec.server import sse
from localspec.server.answers import Answers, Piece, start
from localspec.server.disconnect import watched
from localspec.server.encoding import Json
from localspec.server.openai.common import ok_or_stream
from localspec.server.openai.responses_input import ResponseRequest, ask_of
from localspec.server.openai.responses_output import Event, Writer
from localspec.server.openai.responses_reply import ResponseReply
from localspec.server.settings import Settings

router = APIRouter(tags=["openai"])


@router.post("/responses", response_model=None, responses=ok_or_stream(ResponseReply))
async def responses(body: ResponseRequest, request: Request) -> Response:
    """Go on with a conversation."""
    settings: Settings = request.app.state.settings
    answers = await start(request, ask_of(body, settings))
    writer = Writer(answers, body)
    if body.stream:
        return sse.Stream(
            _encoded(_events(answers, writer)),
            answers.close,
            on_error=lambda problem: _encode(writer.failed(problem)),
            every=settings.keep_alive,
            write_timeout=settings.write_timeout,
        )
    try:
        return Json(await watched(request.receive, _last(_events(answers, writer))))
    finally:
        await answers.close()


async def _events(answers: Answers, writer: Writer) -> AsyncIterator[Event]:
    for each in writer.begin():
        yield each
    async for item in answers:
        for each in writer.piece(item) if isinstance(item, Piece) else writer.end(item):
            yield each


async def _encoded(events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    async for each in events:
        yield _encode(each)


def _encode(event: Event) -> bytes:
    return sse.event(event, event["type"])


async def _last(events: AsyncIterator[Event]) -> dict[str, Any]:
    """The whole response."""
    response: dict[str, Any] = {}
    async for each in events:
        response = each.get("response", response)
    return response
