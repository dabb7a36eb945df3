"""Streams: server-sent events, and the response that sends them as long as somebody reads.

`Stream` is for line-wise formats as well (`application/x-ndjson`): a router gives it an asynchronous iterator of bytes,
what closes the work behind it, and how an error looks in the middle of the stream.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from localspec.server.disconnect import ClientGoneError, watched
from localspec.server.errors import Problem, openai_shape, problem_of

log = logging.getLogger(__name__)

SSE, NDJSON = "text/event-stream; charset=utf-8", "application/x-ndjson"
#: a comment: every reader of events skips it
KEEP_ALIVE = b": keep-alive\n\n"
#: what ends a line for readers that split at more than newlines; in JSON it stands in texts alone, which may escape it
_LINE_ENDS = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}
DONE = b"data: [DONE]\n\n"


def dumps(data: Any) -> str:
    """JSON on one line, as clients get it. NaN and infinities have no place in it: they raise `ValueError`."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_LINE_ENDS)


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
        try:
            await watched(receive, self._send_all(send))
        except ClientGoneError:
            log.debug("a client went away during its answer")
        finally:
            await self._close()

    async def _send_all(self, send: Send) -> None:
        sender = _Sender(send, self._write_timeout)
        await sender({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        beating = asyncio.ensure_future(self._beat(sender))
        try:
            try:
                async for chunk in self._chunks:
                    await sender.body(chunk)
            except ClientGoneError:
                raise
            except Exception as error:
                await sender.body(self._on_error(problem_of(error)))
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            if isinstance(self._chunks, AsyncGenerator):
                await self._chunks.aclose()
        await sender.body(b"", more=False)

    async def _beat(self, sender: _Sender) -> None:
        if self._keep_alive is None:
            return
        while True:
            await asyncio.sleep(max(0.01, sender.last + self._every - sender.now()))
            if sender.now() - sender.last >= self._every:
                await sender.body(self._keep_alive)


class _Sender:
    """`send`, one at a time and not for ever. Raises `ClientGoneError` when nobody reads."""

    def __init__(self, send: Send, timeout: float) -> None:
        self._send, self._timeout = send, timeout
        self._lock = asyncio.Lock()
        self.now = asyncio.get_running_loop().time
        self.last = self.now()

    async def __call__(self, message: dict[str, Any]) -> None:
        async with self._lock:
            try:
                # not `wait_for`: before Python 3.12 it loses a cancellation that comes just as its work ends
                with anyio.fail_after(self._timeout):
                    await self._send(message)
            except OSError:
                raise ClientGoneError from None
            self.last = self.now()

    async def body(self, chunk: bytes, more: bool = True) -> None:
        await self({"type": "http.response.body", "body": chunk, "more_body": more})
