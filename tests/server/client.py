"""What tests of the server share: a client in the process, and a server on a port."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from localspec.server.app import create_app
from localspec.server.settings import Settings
from tests.server.fake import FakeEngine, FakeHost


class Client:
    """Requests to an app, answered in the process; a stream comes as a whole."""

    def __init__(self, *engines: FakeEngine, host: FakeHost | None = None, **settings: Any) -> None:
        self.host = host or FakeHost(*engines)
        self.app = create_app(self.host, Settings(**settings))

    @property
    def engine(self) -> FakeEngine:
        return next(iter(self.host.engines.values()))

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as client:
                return await client.request(method, path, **options)

        return asyncio.run(ask())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self("GET", path, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        return self("POST", path, content=json.dumps(body), headers=headers, **options)

    def events(self, path: str, body: Any) -> list[Any]:
        """The data of all events of a stream, the `[DONE]` at its end as a text."""
        response = self.post(path, body)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return events_of(response.text)


def events_of(text: str) -> list[Any]:
    """The data of events, as strict readers take them: a blank line ends each."""
    assert text.endswith("\n\n")
    data = []
    for block in text[:-2].split("\n\n"):
        lines = [line for line in block.split("\n") if not line.startswith((":", "event: "))]
        assert all(line.startswith("data: ") for line in lines), block
        data += [line[len("data: ") :] for line in lines]
    return [each if each == "[DONE]" else json.loads(each) for each in data]


@contextmanager
def served(app: FastAPI) -> Iterator[int]:
    """The port of a real server for an app."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(10)


def raw(port: int, request: str, *, read: bool = True) -> str:
    """What a server answers to these very bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(request.replace("\n", "\r\n").encode())
        parts = []
        while read and (part := connection.recv(65536)):
            parts.append(part)
    return b"".join(parts).decode()
