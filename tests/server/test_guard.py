"""Who may ask the server at all: names, pages, keys, sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.server.hosts import HostRule, check_origin, is_loopback
from tests.server.client import Client, raw, served

KEY = {"Authorization": "Bearer secret"}


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8080", "LOCALHOST", "localhost.", "127.0.0.1:1", "[::1]:8080", "192.168.1.7",
     "10.0.0.1:80", "app.localhost", "box.local:8080", "host.docker.internal", "chat.example:9"],
)  # fmt: skip
def test_names_of_this_machine_are_let_pass(host: str) -> None:
    assert HostRule(["chat.example"]).allows(host)


@pytest.mark.parametrize(
    "host",
    ["", "evil.com", "localhost.evil.com", "127.0.0.1.nip.io", "8.8.8.8", "local", "evil.com:8080", "localhost:80:80",
     "user@localhost", "localhost/..", "[::1", "[2606:4700::1111]", " localhost", "xlocalhost", "evil.com#.local",
     "localhost\n", "localhost:x"],
)  # fmt: skip
def test_foreign_names_are_not(host: str) -> None:
    assert not HostRule(["chat.example"]).allows(host)


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD", "DELETE", "PUT", "BREW"])
@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/chat/completions", "/nowhere", "/openapi.json"])
def test_a_foreign_name_is_refused_on_every_route_and_method(method: str, path: str) -> None:
    headers = {"Host": "evil.com", "Origin": "http://evil.com", "Access-Control-Request-Method": "POST"}
    response = Client(origins=("http://evil.com",))(method, path, headers=headers)
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers


def test_a_foreign_name_is_refused_on_the_wire() -> None:
    with served(Client().app) as port:
        assert raw(port, "GET /health HTTP/1.1\nHost: evil.com\nConnection: close\n\n").startswith("HTTP/1.1 403")
        assert raw(port, "GET /health HTTP/1.1\nHost: localhost\nConnection: close\n\n").startswith("HTTP/1.1 200")
        # an absolute address does not stand in for the header
        both = "GET http://localhost/health HTTP/1.1\nHost: evil.com\nConnection: close\n\n"
        assert not raw(port, both).startswith("HTTP/1.1 200")
        twice = "GET /health HTTP/1.1\nHost: localhost\nHost: evil.com\nConnection: close\n\n"
        assert raw(port, twice).split()[1] in ("400", "403")
        assert raw(port, "GET /health HTTP/1.0\n\n").startswith("HTTP/1.1 403")


@pytest.mark.parametrize("origin", ["http://evil.com", "null", "http://localhost:3000", "https://localhost"])
def test_pages_of_elsewhere_are_refused(origin: str) -> None:
    client = Client()
    response = client.post("/v1/chat/completions", {"messages": []}, headers={"Origin": origin})
    assert (response.status_code, response.json()["error"]["code"]) == (403, "origin_not_allowed")
    assert "access-control-allow-origin" not in response.headers


def test_pages_that_are_listed_may_call_and_never_with_credentials() -> None:
    client = Client(origins=("app://obsidian.md",), api_keys=("secret",))
    headers = {"Origin": "app://obsidian.md"}
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    preflight = client("OPTIONS", "/v1/chat/completions", headers={**headers, **asked})
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-headers"] == "authorization,content-type"
    for response in (
        preflight,
        client.get("/v1/health", headers=headers),
        client.get("/", headers=headers),
        client.get("/nowhere", headers={**headers, **KEY}),
    ):
        assert response.headers["access-control-allow-origin"] == "app://obsidian.md"
        assert "origin" in response.headers["vary"].lower()
        assert "access-control-allow-credentials" not in response.headers


def test_a_page_of_the_server_itself_may_call() -> None:
    assert Client().get("/health", headers={"Origin": "http://localhost:8080"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}, {"x-api-key": ""},
     {"x-api-key": "secret2"}, {"Authorization": "secret"}],
)  # fmt: skip
def test_without_the_key_there_is_nothing_but_health(headers: dict[str, str]) -> None:
    client = Client(api_keys=("secret", "other"))
    response = client.get("/v1/models", headers=headers)
    assert response.status_code == 401
    assert response.json()["error"]["type"] == "authentication_error"
    assert response.headers["x-should-retry"] == "false"
    assert client.get("/nowhere", headers=headers).status_code == 401
    assert client.get("/openapi.json", headers=headers).status_code == 401
    assert client.get("/health", headers=headers).status_code == 200


@pytest.mark.parametrize("headers", [KEY, {"x-api-key": "secret"}, {"Authorization": "bearer other"}])
def test_the_key_comes_either_way(headers: dict[str, str]) -> None:
    assert Client(api_keys=("secret", "other")).get("/", headers=headers).status_code == 200


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded"])
def test_a_body_is_json_also_when_curl_says_otherwise(kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    client = Client()
    body = b'{"prompt": "x"}'
    assert client("POST", "/v1/completions", content=body, headers=headers).status_code == 200
    foreign = {**headers, "Origin": "http://evil.com"}
    assert client("POST", "/v1/completions", content=body, headers=foreign).status_code == 403


def test_what_is_an_origin() -> None:
    assert check_origin("HTTP://Localhost:3000/") == "http://localhost:3000"
    assert check_origin("app://obsidian.md") == "app://obsidian.md"
    for wrong in ("localhost", "http://*.example", "http://x/y", "http://user@x", "", "null"):
        with pytest.raises(UsageError):
            check_origin(wrong)


def test_what_is_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.2", "example.com", "")))


def test_errors_that_nobody_expected_are_told_without_details(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()

    @client.app.get("/broken")
    async def broken() -> None:
        raise RuntimeError(str(Path.home()))

    response = client.get("/broken")
    assert response.status_code == 500
    assert str(Path.home()) not in response.text
    assert str(Path.home()) in caplog.text
