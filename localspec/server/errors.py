"""Errors as answers: what went wrong -> status, body and headers, in the shape that the API at hand gives errors.

Routes raise `LocalspecError`s; `ApiError` is for what only a server can say. The shape is OpenAI's unless a router
registers its own for its paths: `register_shape("/api/", shape)`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from localspec.engine.params import SamplingParams
from localspec.errors import ContextLengthError, LocalspecError, ModelNotFoundError, UsageError
from localspec.server.encoding import Json
from localspec.serving.api import BusyError

log = logging.getLogger(__name__)

INVALID, AUTHENTICATION, PERMISSION, UNAVAILABLE, FAILED = (
    "invalid_request_error", "authentication_error", "permission_error", "unavailable_error", "server_error",
)  # fmt: skip
_TYPES = {401: AUTHENTICATION, 403: PERMISSION, 503: UNAVAILABLE}
#: how engines begin errors about a parameter: "temperature is 3000; it is from 0 to 1000"
_PARAM = re.compile(r"([a-z][a-z_]*)(?:\[[^]]*\])? is ")
_PARAMS = frozenset(field.name for field in fields(SamplingParams))

#: how pydantic names the branches of a union, which says nothing to clients
_BRANCHES = frozenset({"str", "int", "float", "bool", "list", "dict", "none", "nullable"})


class ApiError(LocalspecError):
    """An error with all that OpenAI's body has; `retry` says whether the same request may fare better later."""

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        *,
        status: int = 400,
        type: str | None = None,
        param: str | None = None,
        code: str | None = None,
        retry: bool = False,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.http_status = status
        self.type, self.param, self.code = type, param, code
        self.retry, self.retry_after = retry, retry_after


class ParamError(ApiError):
    """A parameter that cannot be used as given."""

    def __init__(self, param: str, message: str, hint: str | None = None, code: str | None = None) -> None:
        super().__init__(message, hint, param=param, code=code)


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as HTTP tells it."""

    status: int
    message: str
    type: str
    param: str | None = None
    code: str | None = None
    retry: bool = False
    retry_after: int | None = None

    def headers(self) -> dict[str, str]:
        """Headers that tell clients whether to try again: openai's retry 409, 429 and 5xx by themselves."""
        headers = {} if self.retry else {"x-should-retry": "false"}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers


Shape = Callable[[Problem], Mapping[str, Any]]


def openai_shape(problem: Problem) -> dict[str, Any]:
    """The body that OpenAI's clients read."""
    return {
        "error": {
            "message": problem.message,
            "type": problem.type,
            "param": problem.param,
            "code": problem.code,
        }
    }


_shapes: dict[str, Shape] = {}


def register_shape(prefix: str, shape: Shape) -> None:
    """Give the errors of all paths that begin with `prefix` this shape; the longest prefix counts."""
    _shapes[prefix] = shape


def shape_of(path: str) -> Shape:
    """The shape that errors of a path have."""
    fitting = [prefix for prefix in _shapes if path.startswith(prefix)]
    return _shapes[max(fitting, key=len)] if fitting else openai_shape


def problem_of(error: BaseException) -> Problem:
    """What to tell of an error. What is no `LocalspecError` is a fault of the server: it is logged, and not told."""
    if isinstance(error, ApiError):
        kind = error.type or _TYPES.get(error.http_status, INVALID if error.http_status < 500 else FAILED)
        return Problem(error.http_status, str(error), kind, error.param, error.code, error.retry, error.retry_after)
    if not isinstance(error, LocalspecError):
        log.error("a request failed: %s: %s", type(error).__name__, error, exc_info=error)
        return Problem(500, "the server failed; its log says how", FAILED, code="internal_error", retry=True)
    if isinstance(error, BusyError):
        return Problem(503, str(error), UNAVAILABLE, code="busy", retry=True, retry_after=error.retry_after)
    if isinstance(error, ContextLengthError):
        # the words and the code are what agents and proxies look for before they shorten a conversation
        message = f"this model's maximum context length is exceeded: {error}"
        return Problem(400, message, INVALID, "messages", "context_length_exceeded")
    if isinstance(error, ModelNotFoundError):
        return Problem(404, str(error), INVALID, "model", "model_not_found")
    status = error.http_status
    if status >= 500:
        log.error("a request failed: %s", error)
    if status == 504:
        # it would take as long again
        return Problem(status, str(error), FAILED, code="timeout")
    return Problem(status, str(error), INVALID if status < 500 else FAILED, _param(error), None, status >= 500)


def _param(error: LocalspecError) -> str | None:
    match = _PARAM.match(error.message) if isinstance(error, UsageError) else None
    return match[1] if match and match[1] in _PARAMS else None


def response_for(path: str, problem: Problem) -> Response:
    """The whole answer to a request for `path` that failed."""
    return Json(shape_of(path)(problem), problem.status, problem.headers())


def validation_problem(errors: Sequence[Mapping[str, Any]], content_type: str) -> Problem:
    """What to tell of a body that does not have the form that it should have: the first of the errors."""
    first = errors[0]
    place = [str(part) for part in first.get("loc", ()) if part not in ("body", "query", "path")]
    if first.get("type") == "json_invalid":
        return Problem(400, f"the body is not JSON: {first.get('ctx', {}).get('error', '')}", INVALID)
    if not place and "json" not in content_type:
        message = f"the content type is {content_type or 'missing'} (send the body as application/json)"
        return Problem(415, message, INVALID)
    param = _place(place) or None
    message = f"{param or 'the body'}: {first.get('msg', 'not valid')}"
    return Problem(400, message, INVALID, param, "invalid_value")


def http_problem(error: HTTPException, method: str, path: str) -> Problem:
    """What to tell of an error of the framework, or of one raised while a body was read."""
    codes = {404: "not_found", 405: "method_not_allowed", 408: "timeout", 413: "body_too_large"}
    words = {404: f"there is nothing at {path[:200]}", 405: f"{path[:200]} does not do {method[:20]}"}
    status = error.status_code
    message = words.get(status, str(error.detail))
    return Problem(status, message, INVALID if status < 500 else FAILED, code=codes.get(status))


def _place(parts: Sequence[str]) -> str:
    """Where in the body something is, as "messages[0].content"."""
    place = ""
    for part in parts:
        if part.isdecimal():
            place += f"[{part}]"
        elif part.isidentifier() and part not in _BRANCHES and not part[0].isupper():
            place += f".{part}" if place else part
    return place


def install(app: FastAPI) -> None:
    """Make every error of the app an answer of the right shape."""

    @app.exception_handler(LocalspecError)
    async def told(request: Request, error: LocalspecError) -> Response:
        return response_for(request.url.path, problem_of(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        content_type = request.headers.get("content-type", "")
        return response_for(request.url.path, validation_problem(error.errors(), content_type))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        response = response_for(request.url.path, http_problem(error, request.method, request.url.path))
        response.headers.update(error.headers or {})
        return response
