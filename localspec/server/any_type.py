"""Routes that read a body as JSON whatever its content type says.

Ollama and llama.cpp do not look at the type, and so their clients leave it out, or send what curl sends by itself. That
pages of other origins could send such a body without asking first is no way in: the guard refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute


class AnyTypeRoute(APIRoute):
    """See the module."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            kept = [(name, value) for name, value in request.scope["headers"] if name != b"content-type"]
            headers = [*kept, (b"content-type", b"application/json")]
            return await handler(Request({**request.scope, "headers": headers}, request.receive))

        return handle
