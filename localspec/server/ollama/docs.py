"""What the OpenAPI file says of Ollama's routes beside their schemas."""

from __future__ import annotations

from typing import Any

from localspec.server.ollama.schemas import ErrorResponse

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": words}
    for status, words in {
        400: "Not a request that can be answered",
        404: "No such model",
        503: "No room: try again after `Retry-After` seconds",
    }.items()
}
#: one object, or with `stream` many of them, a line each
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}},
    **ERRORS,
}
