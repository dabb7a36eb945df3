"""POST /api/chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from localspec.server.any_type import AnyTypeRoute
from localspec.server.ollama import convert, schemas
from localspec.server.ollama.docs import STREAMED
from localspec.server.ollama.run import load_or_unload, respond

router = APIRouter(route_class=AnyTypeRoute)


def form(content: str, thinking: str, calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A piece of a chat's answer."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if thinking:
        message["thinking"] = thinking
    if calls:
        message["tool_calls"] = list(calls)
    return {"message": message}


@router.post("/api/chat", response_model=schemas.ChatResponse, responses=STREAMED)
async def chat(request: Request, body: schemas.ChatRequest) -> Response:
    """Answer a conversation, by the line unless `stream` is false. No messages: load the model, or unload it."""
    if not body.messages:
        return await load_or_unload(request, body, form)
    prompt = convert.chat(body, body.messages, request.app.state.settings.bounds)
    return await respond(request, body, prompt, form)
