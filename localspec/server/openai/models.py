"""/v1/models."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from localspec.errors import ModelNotFoundError
from localspec.server.anthropic import models as anthropic
from localspec.server.encoding import Json
from localspec.server.openai import replies
from localspec.serving.api import Available, Host

router = APIRouter(tags=["openai"])


def _model(model: Available, host: Host) -> dict[str, Any]:
    made = {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "localspec",
        "loaded": model.loaded,
        "size": model.size,
        "quant": model.quant,
        "role": model.role,
    }
    for engine in host.loaded():
        facts = engine.facts
        if facts.name == model.name:
            meta = ("n_params", "size", "n_ctx", "n_ctx_train", "n_embd", "n_vocab", "description")
            made["meta"] = {name: getattr(facts, name) for name in meta}
    return made


@router.get("/models", response_model=replies.Models, response_model_exclude_none=True)
async def models(request: Request) -> Any:
    """The models on this machine."""
    host: Host = request.app.state.host
    if anthropic.wanted(request):
        return Json(anthropic.listed(host.available()).model_dump())
    return {"object": "list", "data": [_model(model, host) for model in host.available()]}


@router.get("/models/{name:path}", response_model=replies.Model, response_model_exclude_none=True)
async def model(name: str, request: Request) -> Any:
    """One of them."""
    host: Host = request.app.state.host
    wanted = anthropic.wanted(request)
    for each in host.available():
        if each.name == name:
            return Json(anthropic.described(each).model_dump()) if wanted else _model(each, host)
    raise ModelNotFoundError(f"there is no model {name[:100]!r}", "GET /v1/models lists them")
