"""A server in the foreground: uvicorn with a time for headers, and an end that cuts no answer silently.

The first signal closes the door; answers under way may go on for `grace` seconds and are then ended with an error, that
their clients are told of. The second one ends everything at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Protocol

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from localspec.errors import LocalspecError, UsageError
from localspec.server.errors import UNAVAILABLE, ApiError
from localspec.server.settings import Settings
from localspec.serving.api import Host

log = logging.getLogger(__name__)

#: connections at once, which takes no memory worth speaking of and leaves file descriptors for models
_CONNECTIONS = 512
#: seconds within which a second signal is the same as the first
_TWICE = 0.5
#: seconds for answers that were ended to be told so
_FAREWELL = 2.0


class _Protocol(H11Protocol):
    """Closes connections on which a request has begun, but whose headers do not come to an end."""

    header_timeout = 30.0
    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()

    def _watch_headers(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self.header_timeout, self._headers_late)

    def _headers_late(self) -> None:
        self._header_timer = None
        # uvicorn itself closes connections that are idle between two requests
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


class Server(uvicorn.Server):
    """Serves an app of `create_app`. `started` is called once requests can come."""

    def __init__(self, app: FastAPI, on_start: Callable[[], None] | None = None) -> None:
        settings: Settings = app.state.settings
        protocol = type("Protocol", (_Protocol,), {"header_timeout": settings.header_timeout})
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=round(settings.grace + _FAREWELL + 1),
        )
        super().__init__(config)
        self._app, self._grace, self._on_start = app, settings.grace, on_start
        self._asked = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self._on_start is not None:
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        timer = asyncio.get_running_loop().call_later(self._grace, self._end_answers)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Of signals: the first one asks, the second one does not."""
        now = time.monotonic()
        if self.should_exit:
            # wrappers such as `timeout` and npm send each signal twice
            if now - self._asked < _TWICE:
                return
            self.force_exit = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._end_answers)
        elif self._app.state.running:
            log.warning("%d answers may go on for %g s; once more ends them", len(self._app.state.running), self._grace)
        self.should_exit, self._asked = True, now

    def _end_answers(self) -> None:
        error = ApiError("the server is being ended", status=503, type=UNAVAILABLE, code="shutting_down", retry=True)
        for answers in list(self._app.state.running):
            answers.abort(error)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own raises the signal again at the end, which makes a failure of an end that was asked for
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in handled}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises `UsageError` when the address cannot be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # of "localhost" most clients mean the older address
        family, kind, proto, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
        listener = socket.socket(family, kind, proto)
        try:
            if os.name != "nt":  # where it would let two servers have one port
                # a server that was just ended leaves its port in a state that only this overcomes
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1024)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError, OverflowError) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot listen on {host} port {port}: {words}", "choose another --host or --port") from None
    return listener


class ServedHost(Host, Protocol):
    """A host that loads its default model when it is entered, and lets go of everything when it is left."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def ready(self) -> None:
        """Wait until the default model has been loaded. Raises what kept it from that."""
        ...


def serve(
    app: FastAPI,
    listener: socket.socket,
    *,
    on_start: Callable[[], None],
    on_ready: Callable[[], None],
    on_failure: Callable[[LocalspecError], bool],
) -> None:
    """Serve until a signal comes. `on_ready` is called once the default model is there; `on_failure` when it cannot be
    loaded: the server goes on without if that returns True, else the error is raised when it has ended.
    """
    _share_logs()
    asyncio.run(_serve(app, listener, on_start, on_ready, on_failure))


async def _serve(
    app: FastAPI,
    listener: socket.socket,
    on_start: Callable[[], None],
    on_ready: Callable[[], None],
    on_failure: Callable[[LocalspecError], bool],
) -> None:
    started = asyncio.Event()
    server = Server(app, started.set)
    host: ServedHost = app.state.host
    failures: list[LocalspecError] = []

    async def load() -> None:
        await started.wait()
        on_start()
        try:
            await host.ready()
        except LocalspecError as error:
            if not on_failure(error):
                failures.append(error)
                server.should_exit = True
        else:
            on_ready()

    async with host:
        loading = asyncio.ensure_future(load())
        try:
            await server.serve(sockets=[listener])
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
    if failures:
        raise failures[0]


def _share_logs() -> None:
    """What uvicorn logs goes where localspec's logs go; that a request was no HTTP is everyday life of a server."""
    theirs = logging.getLogger("uvicorn")
    theirs.handlers = list(logging.getLogger("localspec").handlers)
    theirs.propagate = False
    theirs.setLevel(logging.ERROR)
