"""`localspec top`: a server that is watched from outside."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from textual.widgets import Static
from typer.testing import CliRunner

from localspec.cli import app as command_line
from localspec.errors import ServerError, UsageError
from localspec.tui.feed import to_json
from localspec.tui.remote import MOST_BODY, PATH, Remote
from localspec.tui.snapshot import Snapshot
from localspec.tui.top import BUSY, IDLE, MOST_WAIT, TopApp, pause_after
from tests.tui.test_render_panel import WRITING

GOOD = to_json(WRITING)


class Server:
    """A server on a port of its own that gives `status` and `body`, and remembers the requests."""

    def __init__(self) -> None:
        self.status, self.body = 200, GOOD
        self.headers: dict[str, str] = {}
        self.requests: list[Any] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append((self.path, dict(self.headers)))
                self.send_response(outer.status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def closed_port() -> Iterator[str]:
    """A port that nobody listens to, and that nobody else takes."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def test_the_newest_snapshot_is_asked_for(server: Server) -> None:
    assert Remote(server.url).fetch() == WRITING
    assert Remote(server.url.removeprefix("http://") + "/").fetch() == WRITING
    assert [path for path, _ in server.requests] == [PATH, PATH]
    assert "Authorization" not in server.requests[0][1]


def test_a_key_is_sent(server: Server) -> None:
    Remote(server.url, "secret").fetch()
    assert server.requests[0][1]["Authorization"] == "Bearer secret"


def test_no_proxy_stands_between_programs_of_one_machine(
    server: Server, closed_port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", closed_port)
    assert Remote(server.url).fetch() == WRITING


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "refuses"),
        (403, "refuses"),
        (404, "is no localspec server"),
        (302, "is no localspec server"),
        (503, "fails: status 503"),
    ],
)
def test_a_status_is_told(server: Server, status: int, words: str) -> None:
    server.status = status
    with pytest.raises(ServerError, match=words) as caught:
        Remote(server.url).fetch()
    assert server.url in caught.value.message
    assert caught.value.hint


def test_a_key_is_not_carried_to_another_address(server: Server) -> None:
    other = Server()
    try:
        server.status, server.headers = 302, {"Location": other.url + PATH}
        with pytest.raises(ServerError):
            Remote(server.url, "secret").fetch()
        assert other.requests == []
    finally:
        other.close()


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b" " * (MOST_BODY + 1)])
def test_an_answer_that_is_no_snapshot_is_refused(server: Server, body: bytes) -> None:
    server.body = body
    with pytest.raises(ServerError):
        Remote(server.url).fetch()


def test_a_server_that_is_not_there_or_silent_is_told(closed_port: str) -> None:
    with pytest.raises(ServerError, match="cannot be reached: Connection refused"):
        Remote(closed_port).fetch()
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ServerError, match="does not answer within"):
        Remote(f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.05).fetch()


def test_what_is_no_http_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def reply() -> None:
            caller, _ = other.accept()
            with caller:
                caller.recv(4096)
                caller.sendall(b"\x1b[2J hello\r\n")

        thread = threading.Thread(target=reply)
        thread.start()
        with pytest.raises(ServerError, match="does not answer as an HTTP server does"):
            Remote(f"127.0.0.1:{other.getsockname()[1]}").fetch()
        thread.join()


@pytest.mark.parametrize(
    "url",
    ["", "http://", "ftp://host", "http://host:port", "http://host:99999", "http://a b", "http://host?x=1", "http://é"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a server"):
        Remote(url)


def test_a_key_that_would_break_the_request_is_refused() -> None:
    with pytest.raises(UsageError, match="API key"):
        Remote("http://127.0.0.1", "a\r\nX-Evil: 1")


def test_questions_are_rare_where_there_is_little_to_see() -> None:
    lost = ServerError("gone")
    assert pause_after(WRITING, 0) == BUSY
    assert pause_after(Snapshot(phase="done"), 0) == IDLE
    waits = [pause_after(lost, n) for n in range(1, 40)]
    assert waits == sorted(waits)
    assert (waits[0] < IDLE, waits[-1]) == (True, MOST_WAIT)


# the command line


def invoke(*args: str, **options: Any) -> Any:
    return CliRunner().invoke(command_line, ["top", *args], prog_name="localspec", **options)


def test_once_prints_the_panel(server: Server) -> None:
    result = invoke("--url", server.url, "--once")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[:3] == [f"tiny at {server.url}", "41.2 tok/s (mean 40.0)", "1.80× plain (measured)"]
    assert "├✓␣quick" in lines


def test_json_prints_what_the_server_tells(server: Server) -> None:
    result = invoke("--url", server.url, "--once", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == json.loads(GOOD)


def test_the_key_may_come_from_the_environment(server: Server) -> None:
    assert invoke("--url", server.url, "--json", env={"LOCALSPEC_API_KEY": "hidden"}).exit_code == 0
    assert server.requests[0][1]["Authorization"] == "Bearer hidden"


def test_failures_end_with_one_line_and_a_code(server: Server, closed_port: str) -> None:
    for args, code, words in (
        (["--url", closed_port, "--once"], 7, "cannot be reached"),
        (["--url", "ftp://x", "--json"], 2, "is not the address"),
        (["--url", server.url], 2, "top needs a terminal"),
    ):
        result = invoke(*args)
        assert (result.exit_code, result.stdout) == (code, "")
        assert words in result.stderr.splitlines()[0]


# the app


class Script:
    """What the questions of an app bring, one after the other; the last one again and again."""

    def __init__(self, *found: Snapshot | ServerError) -> None:
        self.found = list(found)

    def __call__(self) -> Snapshot:
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(found, ServerError):
            raise found
        return found


def shown(app: TopApp) -> str:
    return "\n".join(str(app.query_one(name, Static).content) for name in ("#state", "#panel"))


async def until(app: TopApp, right: Callable[[str], bool]) -> str:
    """The screen once it is right."""
    for _ in range(500):
        if right(shown(app)):
            return shown(app)
        await asyncio.sleep(0.01)
    raise AssertionError(shown(app))


@pytest.mark.asyncio
async def test_the_app_shows_the_panel() -> None:
    app = TopApp(Script(WRITING), "http://here")
    async with app.run_test(size=(80, 24)):
        text = await until(app, lambda text: "tok/s" in text)
        assert text.splitlines()[0].startswith("live  tiny at http://here")
        assert "\n├✓␣quick " in text


@pytest.mark.asyncio
async def test_a_lost_server_is_told_and_found_again() -> None:
    lost = ServerError("http://here cannot be reached: Connection refused", "start the server")
    app = TopApp(Script(lost, lost, WRITING), "http://here")
    async with app.run_test(size=(80, 24)):
        text = await until(app, lambda text: "cannot be reached" in text)
        assert text.splitlines()[1] == "start the server"
        await until(app, lambda text: text.startswith("live") and "tok/s" in text)


@pytest.mark.asyncio
async def test_the_picture_stays_while_the_server_is_lost() -> None:
    app = TopApp(Script(WRITING, ServerError("gone")), "http://here")
    async with app.run_test(size=(80, 24)):
        text = await until(app, lambda text: "! gone" in text)
        assert "├✓␣quick" in text


@pytest.mark.asyncio
async def test_space_holds_the_picture() -> None:
    script = Script(WRITING)
    app = TopApp(script, "http://here")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(app, lambda text: "tok/s" in text)
        await pilot.press("space")
        script.found = [Snapshot(model="other")]
        await until(app, lambda text: text.startswith("held"))
        assert "tok/s" in shown(app)
        await pilot.press("space")
        await until(app, lambda text: "other" in text and "tok/s" not in text)


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [(50, 15), (20, 5), (200, 50)])
async def test_any_size_will_do(size: tuple[int, int]) -> None:
    app = TopApp(Script(WRITING), "http://here", ascii_only=size[0] == 50)
    async with app.run_test(size=size) as pilot:
        await until(app, lambda text: "41.2" in text)
        await pilot.resize_terminal(60, 20)
        await until(app, lambda text: "live  tiny" in text and "41.2" in text)
