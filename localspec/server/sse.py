"""Streams: server-sent events, and the response that sends them as long as somebody reads.

`Stream` is for line-wise formats as well (`application/x-ndjson`): a router gives it an asynchronous iterator of bytes,
what closes the work behind it, and how an error looks in the middle of the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from localspec.server.disconnect import ClientGoneError, gone
from localspec.server.encoding import dumps
from localspec.server.errors import Problem, openai_shape, problem_of

log = logging.getLogger(__name__)

SSE, NDJSON = "text/event-stream; charset=utf-8", "application/x-ndjson"
#: a comment: every reader of events skips it
KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """One event; OpenAI's have no name."""
    first = f"event: {name}\n" if name else ""
    return f"{first}data: {dumps(data)}\n\n".encode("utf-8", "replace")


def line(data: Mapping[str, Any]) -> bytes:
    """One line of NDJSON."""
    return f"{dumps(data)}\n".encode("utf-8", "replace")


def error_event(problem: Problem) -> bytes:
    """An error in the middle of OpenAI's stream: the last that is sent, so that nobody takes the text for whole."""
    return event(openai_shape(problem))


class Stream(Response):
    """Sends what `chunks` yields. Afterwards, however it ends, `close` is awaited.

    It ends at once when the client goes, or when it has not read for `write_timeout` seconds. An error that `chunks`
    raises is sent as `on_error` makes it. When nothing was sent for `every` seconds `keep_alive` is, unless it is None.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        close: Callable[[], Awaitable[None]],
        *,
        media_type: str = SSE,
        on_error: Callable[[Problem], bytes] = error_event,
        keep_alive: bytes | None = KEEP_ALIVE,
        every: float = 15.0,
        write_timeout: float = 60.0,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self.media_type = media_type
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._chunks, self._close, self._on_error = chunks, close, on_error
        self._keep_alive, self._every, self._write_timeout = keep_alive, every, write_timeout

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        super().init_headers(headers)
        # the length is not known
        self.raw_headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = _Sender(send)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._until_gone, receive, group.cancel_scope)
                group.start_soon(self._until_stuck, sender, group.cancel_scope)
                if self._keep_alive is not None:
                    group.start_soon(self._beat, sender, self._keep_alive)
                with contextlib.suppress(ClientGoneError):
                    await self._send_all(sender)
                group.cancel_scope.cancel()
        finally:
            await self._close()

    async def _send_all(self, sender: _Sender) -> None:
        await sender({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for chunk in self._chunks:
                await sender.body(chunk)
        except ClientGoneError:
            raise
        except Exception as error:
            await sender.body(self._on_error(problem_of(error)))
        finally:
            if isinstance(self._chunks, AsyncGenerator):
                await self._chunks.aclose()
        sender.ended = True
        await sender({"type": "http.response.body", "body": b"", "more_body": False})

    async def _until_gone(self, receive: Receive, work: anyio.CancelScope) -> None:
        await gone(receive)
        log.debug("a client went away during its answer")
        work.cancel()

    async def _until_stuck(self, sender: _Sender, work: anyio.CancelScope) -> None:
        """One look at times is far cheaper than a time limit for each event."""
        while sender.waited < self._write_timeout:
            await asyncio.sleep(max(0.01, self._write_timeout - sender.waited) / 2)
        log.warning("a client that did not read its answer was left")
        work.cancel()

    async def _beat(self, sender: _Sender, keep_alive: bytes) -> None:
        with contextlib.suppress(ClientGoneError):
            while True:
                await asyncio.sleep(max(0.01, self._every - sender.silent))
                if sender.silent >= self._every and not sender.ended:
                    await sender.body(keep_alive)


class _Sender:
    """`send`, and for how long it has not. Raises `ClientGoneError` when there is nobody to send to."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._now = asyncio.get_running_loop().time
        self._last = self._now()
        self._begun: float | None = None
        self.ended = False

    @property
    def silent(self) -> float:
        """Seconds since something was sent."""
        return self._now() - self._last

    @property
    def waited(self) -> float:
        """Seconds that the client has not read what is being sent."""
        return 0.0 if self._begun is None else self._now() - self._begun

    async def __call__(self, message: dict[str, Any]) -> None:
        self._last = self._now()
        self._begun = self._begun or self._last
        try:
            await self._send(message)
        except OSError:
            raise ClientGoneError from None
        self._begun = None

    async def body(self, chunk: bytes) -> None:
        await self({"type": "http.response.body", "body": chunk, "more_body": True})
