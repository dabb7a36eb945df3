"""The guard in front of all routes: Host, Origin, key, size and time of the body, and errors that nobody caught.

It is pure ASGI, so that it sees every request, known path or not, and the answers of all that is behind it.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Iterable

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localspec.server.disconnect import ClientGoneError
from localspec.server.errors import ApiError, http_problem, problem_of, response_for
from localspec.server.hosts import HostRule, OriginRule
from localspec.server.settings import Settings

log = logging.getLogger(__name__)

#: paths that need no key
PUBLIC = frozenset({"/health", "/v1/health"})
#: key of a scope: what is awaited when its request is over, a list of functions
AFTER = "localspec.after"
_METHODS = "GET, POST, DELETE, HEAD, OPTIONS"
_HEADERS = "authorization, content-type, x-api-key"
_EXPOSED = "retry-after, x-should-retry"


class Guard:
    """ASGI middleware; the outermost."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._hosts, self._origins = HostRule(settings.host_names), OriginRule(settings.origins)
        self._keys = [key.encode() for key in settings.api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        started = False
        begun = time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._mark(headers, message)
                status, seconds = message["status"], time.perf_counter() - begun
                log.info("%s %s: %d after %.3f s", scope["method"], ascii(scope["path"])[1:-1][:200], status, seconds)
            await send(message)

        try:
            self._check_host(scope, headers)
            if _is_preflight(scope, headers):
                await _preflight(headers)(scope, receive, noting)
                return
            self._check_key(scope, headers)
            body = _Body(receive, headers, self._settings)
            await self._inside(_as_json(scope, headers), body, noting)
        except ClientGoneError:
            if not started:
                # nobody hears it, but it ends the request as the protocol wants it
                await Response(status_code=499)(scope, receive, noting)
        except HTTPException as error:
            await response_for(scope["path"], http_problem(error, scope["method"], scope["path"]))(
                scope, receive, noting
            )
        except Exception as error:
            if started:
                raise
            await response_for(scope["path"], problem_of(error))(scope, receive, noting)

    async def _inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[AFTER] = []
        try:
            await self._app(scope, receive, send)
        finally:
            for close in scope[AFTER]:
                await close()

    def _check_host(self, scope: Scope, headers: Headers) -> None:
        """Raise `ApiError` for names that are not this server's, and for pages that may not call it."""
        names = headers.getlist("host")
        if len(names) != 1 or not self._hosts.allows(names[0]):
            shown = names[0][:100] if names else ""
            raise ApiError(
                f"this server does not go by the name {shown!r}",
                "start it with --host-name NAME if it does",
                status=403, code="host_not_allowed",
            )  # fmt: skip
        origin = headers.get("origin")
        if origin is not None and not self._origins.allows(origin, names[0]):
            raise ApiError(
                f"pages of {origin[:100]!r} may not call this server",
                "start it with --origin ORIGIN to let them",
                status=403, code="origin_not_allowed",
            )  # fmt: skip

    def _check_key(self, scope: Scope, headers: Headers) -> None:
        """Raise `ApiError` unless one of the keys was sent, where there are any."""
        if not self._keys or scope["path"] in PUBLIC:
            return
        kind, _, token = headers.get("authorization", "").partition(" ")
        sent = [headers.get("x-api-key", "")]
        if kind.lower() == "bearer":
            sent.append(token.strip())
        if not _any_equal(sent, self._keys):
            raise ApiError(
                "the API key is missing or wrong",
                "send it as `Authorization: Bearer KEY` or as `x-api-key: KEY`",
                status=401, code="invalid_api_key",
            )  # fmt: skip

    def _mark(self, request: Headers, message: Message) -> None:
        """Let a page read the answer that it may have."""
        headers = MutableHeaders(scope=message)
        headers["X-Content-Type-Options"] = "nosniff"
        origin = request.get("origin")
        hosts = request.getlist("host")
        if origin is None:
            return
        headers.add_vary_header("Origin")
        if len(hosts) == 1 and self._hosts.allows(hosts[0]) and self._origins.allows(origin, hosts[0]):
            # never credentials: keys are sent by the page itself
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = _EXPOSED


def _as_json(scope: Scope, headers: Headers) -> Scope:
    """The scope of a request whose body is JSON: curl says "form" of all bodies, and some clients say nothing.

    Pages could send either without asking first, but those of elsewhere have been refused by now.
    """
    if headers.get("content-type", "application/x-www-form-urlencoded").lower() != "application/x-www-form-urlencoded":
        return scope
    others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    return {**scope, "headers": [*others, (b"content-type", b"application/json")]}


def _any_equal(sent: Iterable[str], keys: Iterable[bytes]) -> bool:
    """Whether one of them is a key; it takes as long whichever it is."""
    found = [hmac.compare_digest(each.encode("utf-8", "replace"), key) for each in sent for key in keys]
    return any(found)


def _is_preflight(scope: Scope, headers: Headers) -> bool:
    return scope["method"] == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers


def _preflight(headers: Headers) -> Response:
    asked = headers.get("access-control-request-headers", "")
    usable = asked and len(asked) <= 1000 and all(char.isalnum() or char in "-_, " for char in asked)
    allowed = {
        "Access-Control-Allow-Methods": _METHODS,
        "Access-Control-Allow-Headers": asked if usable else _HEADERS,
        "Access-Control-Max-Age": "600",
    }
    return Response(status_code=204, headers=allowed)


class _Body:
    """`receive` with a limit on the size of the body and on the time that it takes."""

    def __init__(self, receive: Receive, headers: Headers, settings: Settings) -> None:
        self._receive, self._most, self._timeout = receive, settings.bounds.body, settings.body_timeout
        self._size, self._whole = 0, False
        self._deadline: float | None = None
        length = headers.get("content-length", "0")
        if length.isdecimal() and len(length) < 20 and int(length) > self._most:
            raise self._too_large()

    def _too_large(self) -> HTTPException:
        # the only kind of error that FastAPI lets through while it reads a body
        return HTTPException(413, f"the body has more than {self._most} bytes")

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._timeout
        try:
            with anyio.fail_after(max(0.0, self._deadline - now)):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, "the body did not come in time") from None
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._size > self._most:
                raise self._too_large()
        return message
