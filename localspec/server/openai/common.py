"""What the routes of OpenAI's API share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel

from localspec import __version__
from localspec.server.answers import Answers, End
from localspec.server.settings import Settings
from localspec.server.sse import Stream


def header(answers: Answers, prefix: str, kind: str) -> dict[str, Any]:
    """How every object of an answer begins."""
    return {
        "id": f"{prefix}{answers.id}",
        "object": kind,
        "created": answers.created,
        "model": answers.model,
        "system_fingerprint": f"localspec-{__version__}",
    }


def report(end: End) -> dict[str, Any]:
    """How an answer was made."""
    return {"timings": end.timings, "speculation": end.speculation}


def stream(request: Request, answers: Answers, chunks: AsyncIterator[bytes]) -> Response:
    """The response that sends `chunks` as events."""
    settings: Settings = request.app.state.settings
    return Stream(chunks, answers.close, every=settings.keep_alive, write_timeout=settings.write_timeout)


def ok_or_stream(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The description of a reply that comes whole or as events."""
    return {200: {"model": model, "content": {"text/event-stream": {"schema": {"type": "string"}}}}}
