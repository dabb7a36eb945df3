"""A client that goes away during its answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.server.client import Client


def leave(client: Client, path: str, body: Any, after: int) -> list[bytes]:
    """What a client gets that goes after so many parts of a body; 0 is before the first. Ends when the app does."""

    async def run() -> list[bytes]:
        gone = asyncio.Event()
        got: list[bytes] = []
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if not sent:
                sent = True
                if not after:
                    gone.set()
                return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.body" and message.get("body"):
                got.append(message["body"])
                if len(got) >= after:
                    gone.set()

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8080),
        }  # fmt: skip
        await asyncio.wait_for(client.app(scope, receive, send), 10)
        return got

    return asyncio.run(run())
