"""POST /api/generate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from localspec.server import fim, limits
from localspec.server.answers import End, Prompt
from localspec.server.any_type import AnyTypeRoute
from localspec.server.errors import ParamError
from localspec.server.ollama import convert, schemas
from localspec.server.ollama.docs import STREAMED
from localspec.server.ollama.run import load_or_unload, respond
from localspec.server.settings import Bounds

router = APIRouter(route_class=AnyTypeRoute)


def form(content: str, thinking: str, calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A piece of a text. There are no tools here, so no calls."""
    return {"response": content, **({"thinking": thinking} if thinking else {})}


@router.post("/api/generate", response_model=schemas.GenerateResponse, responses=STREAMED)
async def generate(request: Request, body: schemas.GenerateRequest) -> Response:
    """Continue a prompt, by the line unless `stream` is false.

    Without `raw` the prompt is what a user says; with `suffix` the text between the two is written. No prompt: load
    the model, or unload it.
    """
    if body.images:
        raise ParamError("images", *convert.NO_IMAGES)
    if body.template:
        raise ParamError("template", "template is not supported", "send the finished prompt with raw=true")
    if (body.raw or body.suffix) and (body.system or body.context):
        raise ParamError("raw", "raw and suffix exclude system and context", "write them into the prompt")
    if not body.prompt and not body.suffix:
        return await load_or_unload(request, body, form)
    last = (lambda end: {}) if body.raw or body.suffix else context
    return await respond(
        request, body, _prompt(body, request.app.state.settings.bounds), form, last, before=body.context or ()
    )


def _prompt(body: schemas.GenerateRequest, bounds: Bounds) -> Prompt:
    text, suffix = limits.text(body.prompt or "", "prompt"), limits.text(body.suffix or "", "suffix")
    if suffix:
        return lambda engine: fim.tokens(engine, text, suffix)
    return text if body.raw else convert.prompt_chat(body, bounds)


def context(end: End) -> dict[str, Any]:
    """The tokens so far, for the next request to follow on."""
    return {"context": [*end.prompt, *end.tokens]}
