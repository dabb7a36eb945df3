"""What the server tells of itself: whether it is well, what it is, what it does right now."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from localspec import __version__
from localspec.serving.api import Host

router = APIRouter()

_HEALTHY = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
_HEALTH: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": _HEALTHY}}},
    503: {"description": "Loading, degraded or closing", "content": {"application/json": {"schema": _HEALTHY}}},
}


def health_of(host: Host) -> tuple[int, dict[str, Any]]:
    """Status and body of /health: 200 only when answers can be had."""
    state = host.state()
    stuck = [seconds for engine in host.loaded() if (seconds := engine.stuck()) is not None]
    if state == "ready" and stuck:
        state = "degraded"
    if state == "ready":
        return 200, {"status": "ok"}
    words = {"loading": "Loading model", "closing": "Shutting down", "degraded": "A model does not answer"}
    body: dict[str, Any] = {
        "status": state,
        "error": {"code": 503, "message": words[state], "type": "unavailable_error"},
    }
    loading = host.loading()
    if loading is not None:
        body["stage"], body["progress"] = loading[0], round(loading[1], 3)
    if stuck:
        body["stuck_seconds"] = round(max(stuck), 1)
    return 503, body


@router.head("/health", include_in_schema=False)
@router.get("/health", responses=_HEALTH, tags=["server"])
@router.get("/v1/health", responses=_HEALTH, tags=["server"])
async def health(request: Request) -> Response:
    """Whether answers can be had. Needs no key."""
    status, body = health_of(request.app.state.host)
    return JSONResponse(body, status)


@router.head("/", include_in_schema=False)
@router.get("/", tags=["server"])
async def root(request: Request) -> dict[str, Any]:
    """What this is."""
    host: Host = request.app.state.host
    models = [engine.facts.name for engine in host.loaded()]
    return {"name": "localspec", "version": __version__, "status": host.state(), "models": models, "api": "/v1"}


@router.get("/localspec/live", tags=["server"])
async def live(request: Request) -> Response:
    """The newest picture of speculation, for `localspec top`."""
    host: Host = request.app.state.host
    for engine in host.loaded():
        return Response(engine.live(), media_type="application/json")
    from localspec.tui.feed import to_json
    from localspec.tui.snapshot import Snapshot

    return Response(to_json(Snapshot()), media_type="application/json")
