"""The snapshots of a running server, over HTTP."""

from __future__ import annotations

import http.client
import ipaddress
import urllib.error
import urllib.request
from typing import IO
from urllib.parse import urlsplit

from localspec.errors import ServerError, UsageError
from localspec.tui.feed import from_json
from localspec.tui.snapshot import Snapshot

PATH = "/localspec/live"
#: bytes of an answer at most, and seconds to wait for one
MOST_BODY, TIMEOUT = 1 << 20, 3.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Another address was not asked for, and an API key is not for it."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        return None


class Remote:
    """A localspec server at `url`, such as http://127.0.0.1:8080; `api_key` is sent as a bearer token.

    Raises `UsageError` for a URL or a key that cannot be one.
    """

    def __init__(self, url: str, api_key: str | None = None, timeout: float = TIMEOUT) -> None:
        self.url = _checked(url)
        self._timeout = timeout
        self._request = urllib.request.Request(self.url + PATH, headers={"Accept": "application/json"})
        if api_key:
            if not (api_key.isascii() and api_key.isprintable()):
                raise UsageError("the API key has characters that a request cannot carry", "check --api-key")
            self._request.add_header("Authorization", f"Bearer {api_key}")
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if _is_loopback(urlsplit(self.url).hostname or ""):
            # no proxy leads to this machine
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def fetch(self) -> Snapshot:
        """The newest snapshot. Raises `ServerError` when there is none to be had."""
        try:
            with self._opener.open(self._request, timeout=self._timeout) as response:
                body = response.read(MOST_BODY + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error.code) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._unreachable(error) from None
        if len(body) > MOST_BODY:
            raise ServerError(f"the answer of {self.url} is longer than {MOST_BODY} bytes", "it may be another server")
        return from_json(body)

    def _refused(self, status: int) -> ServerError:
        if status in (401, 403):
            return ServerError(f"{self.url} refuses: status {status}", "give the key of the server with --api-key")
        if status == 404 or 300 <= status < 400:
            return ServerError(
                f"{self.url} is no localspec server: status {status} for {PATH}", "check the address with --url"
            )
        return ServerError(f"{self.url} fails: status {status}", "see what the server says")

    def _unreachable(self, error: Exception) -> ServerError:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            return ServerError(f"{self.url} does not answer within {self._timeout:g} s", "it may be busy: try again")
        if isinstance(reason, http.client.HTTPException):
            return ServerError(f"{self.url} does not answer as an HTTP server does", "check the address with --url")
        words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        return ServerError(f"{self.url} cannot be reached: {words}", "start the server, or give its address with --url")


def _checked(url: str) -> str:
    """The URL with a scheme, without a slash at the end."""
    full = url.strip() if "://" in url else f"http://{url.strip()}"
    try:
        parts = urlsplit(full)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or not full.isascii() or any(char.isspace() for char in full):
        raise UsageError(f"{url!r} is not the address of a server", "write it like http://127.0.0.1:8080")
    return full.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
