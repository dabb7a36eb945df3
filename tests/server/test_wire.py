"""What only shows on real connections: clients that go, that do not read or do not write, and the end of the server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.server import answers
from localspec.server.app import create_app
from localspec.server.run import Server, listen
from localspec.server.settings import Bounds, Settings
from tests.server.client import events_of, raw
from tests.server.fake import FakeEngine, FakeHost

PATH = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]


@contextmanager
def running(host: FakeHost, **settings: Any) -> Iterator[tuple[int, Server]]:
    """The port of a server as `localspec serve` runs it, and the server."""
    server = Server(create_app(host, Settings(**settings)))
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1], server
        finally:
            server.handle_exit(signal.SIGTERM, None)
            thread.join(20)
            assert not thread.is_alive()


def request(path: str, body: Any, *, close: bool = True) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    )
    return (head + ("Connection: close\r\n" if close else "") + "\r\n").encode() + data


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def read_all(connection: socket.socket) -> str:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts).decode()


def body_of(answer: str) -> str:
    """The body of an answer in chunks."""
    rest, parts = answer.partition("\r\n\r\n")[2], []
    while rest:
        size, _, rest = rest.partition("\r\n")
        data = rest.encode()[: int(size, 16)]
        parts.append(data)
        rest = rest.encode()[len(data) + 2 :].decode()
    return b"".join(parts).decode()


def soon(condition: Callable[[], object], seconds: float = 1.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def slow(pause: float = 0.05, **options: Any) -> FakeHost:
    return FakeHost(FakeEngine(script=lambda prompt: "x" * 900, pause=pause, **options))


def engine_of(host: FakeHost) -> FakeEngine:
    return next(iter(host.engines.values()))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("when", ["while the prompt is read", "while it is written"])
def test_a_client_that_goes_frees_its_slot(stream: bool, api: str, when: str) -> None:
    reading = when == "while the prompt is read"
    host = slow(pause=1.5 if reading else 0.02)
    engine = engine_of(host)
    fields = {"messages": HELLO} if api == "chat" else {"input": "hello"}
    path = PATH if api == "chat" else "/v1/responses"
    with running(host) as (port, server):
        with connect(port) as connection:
            connection.sendall(request(path, {**fields, "stream": stream}))
            assert soon(lambda: engine.generations if reading else engine.busy)
            if stream and not reading:
                assert connection.recv(10)
        assert soon(lambda: engine.generations[0].cancelled)
        assert soon(lambda: not server._app.state.running)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_while_it_waits_leaves_the_queue(stream: bool) -> None:
    host = slow(n_slots=1)
    engine = engine_of(host)
    with running(host) as (port, _), connect(port) as first:
        first.sendall(request(PATH, {"messages": HELLO, "stream": True}))
        assert soon(lambda: engine.busy)
        with connect(port) as second:
            second.sendall(request(PATH, {"messages": HELLO, "stream": stream}))
            assert soon(lambda: len(engine.generations) == 2)
        assert soon(lambda: engine.generations[1].cancelled)
        assert not engine.generations[0].cancelled


def test_a_client_that_goes_while_the_model_is_loaded() -> None:
    class Loading(FakeHost):
        left = False

        @asynccontextmanager
        async def use(self, name: str | None) -> Any:
            try:
                await asyncio.sleep(60)
                yield engine_of(self)
            except asyncio.CancelledError:
                self.left = True
                raise

    host = Loading()
    with running(host) as (port, server):
        with connect(port) as connection:
            connection.sendall(request(PATH, {"messages": HELLO}))
            assert soon(lambda: server._app.state.running)
        assert soon(lambda: host.left)


def test_streams_are_kept_alive_while_nothing_is_written() -> None:
    with running(slow(pause=0.4), keep_alive=0.05) as (port, _), connect(port) as connection:
        connection.sendall(request(PATH, {"messages": HELLO, "stream": True, "max_tokens": 1}))
        text = body_of(read_all(connection))
    assert ": keep-alive\n\n" in text
    events = events_of(text)
    assert (events[-1], events[-2]["choices"][0]["finish_reason"]) == ("[DONE]", "length")


def test_a_client_that_does_not_read_is_left() -> None:
    host = FakeHost(FakeEngine(script=lambda prompt: "x" * 20_000, n_ctx=1_000_000))
    engine = engine_of(host)
    with running(host, write_timeout=0.2) as (port, _), connect(port) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # much to send for each token
        connection.sendall(request(PATH, {"messages": HELLO, "stream": True, "logprobs": True, "top_logprobs": 20}))
        assert soon(lambda: engine.generations and engine.generations[0].cancelled, 10)


def test_two_streams_at_once_are_both_whole() -> None:
    with running(slow(pause=0.002)) as (port, _), connect(port) as one, connect(port) as other:
        for connection in (one, other):
            connection.sendall(request(PATH, {"messages": HELLO, "stream": True}))
        for connection in (one, other):
            events = events_of(body_of(read_all(connection)))
            assert sum(len(event["choices"][0]["delta"].get("content") or "") for event in events[:-1]) == 900


def test_headers_and_bodies_that_do_not_come() -> None:
    with running(FakeHost(), header_timeout=0.3, body_timeout=0.3) as (port, _):
        with connect(port) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: local")
            assert read_all(connection) == ""
        with connect(port) as connection:
            connection.sendall(request(PATH, {"messages": HELLO})[:-10])
            answer = read_all(connection)
        assert answer.startswith("HTTP/1.1 408")


def test_a_body_that_is_too_large() -> None:
    with running(FakeHost(), bounds=Bounds(body=1000)) as (port, _):
        with connect(port) as connection:
            connection.sendall(request(PATH, {"messages": HELLO, "user": "x" * 1000}))
            assert read_all(connection).startswith("HTTP/1.1 413")
        chunked = f"POST {PATH} HTTP/1.1\nHost: localhost\nContent-Type: application/json\nConnection: close\n"
        chunked += "Transfer-Encoding: chunked\n\n" + "1f4\n" + "x" * 500 + "\n1f4\n" + "x" * 500 + "\n1f4\n"
        assert raw(port, chunked + "x" * 500 + "\n0\n\n").startswith("HTTP/1.1 413")


def test_answers_under_way_may_end_when_the_server_is_asked_to() -> None:
    with running(slow(pause=0.01)) as (port, server), connect(port) as connection:
        connection.sendall(request(PATH, {"messages": HELLO, "stream": True, "max_tokens": 40}))
        first = connection.recv(10)
        server.handle_exit(signal.SIGTERM, None)
        events = events_of(body_of(first.decode() + read_all(connection)))
        assert (events[-2]["choices"][0]["finish_reason"], events[-1]) == ("length", "[DONE]")
        assert soon(lambda: not listens(port))


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), connect(port):
        return True
    return False


def test_answers_that_do_not_end_in_time_are_told_so() -> None:
    with running(slow(), grace=0.2) as (port, server), connect(port) as connection:
        connection.sendall(request(PATH, {"messages": HELLO, "stream": True}))
        first = connection.recv(10)
        server.handle_exit(signal.SIGTERM, None)
        answer = first.decode() + read_all(connection)
    last = events_of(body_of(answer))[-1]
    assert last["error"]["code"] == "shutting_down"


def test_the_second_signal_ends_everything_at_once() -> None:
    with running(slow(), grace=60.0) as (port, server), connect(port) as connection:
        connection.sendall(request(PATH, {"messages": HELLO, "stream": True}))
        connection.recv(10)
        server.handle_exit(signal.SIGINT, None)
        # as wrappers do, which is one signal to their users
        server.handle_exit(signal.SIGINT, None)
        assert not server.force_exit
        time.sleep(0.6)
        server.handle_exit(signal.SIGINT, None)
        with contextlib.suppress(OSError):
            read_all(connection)


def test_an_address_that_cannot_be_had() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port}"):
            listen("127.0.0.1", port)
    with pytest.raises(UsageError):
        listen("256.0.0.1", 8080)
    with listen("127.0.0.1", port):
        pass


@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_that_is_stuck_takes_no_longer_than_the_time_for_an_answer(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_PATIENCE", 0.0)
    with running(slow(pause=30.0), timeout=0.5) as (port, _), connect(port) as connection:
        connection.sendall(request(PATH, {"messages": HELLO, "stream": stream}))
        answer = read_all(connection)
    assert answer.startswith(f"HTTP/1.1 {200 if stream else 504}")
    assert '"code":"timeout"' in answer
