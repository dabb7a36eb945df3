"""The models of this machine: /api/tags, /api/ps, /api/show; and /api/version."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from typing import Any

from fastapi import APIRouter, Request, Response

from localspec import __version__
from localspec.errors import ModelNotFoundError
from localspec.server import about
from localspec.server.about import About
from localspec.server.answers import model_name
from localspec.server.any_type import AnyTypeRoute
from localspec.server.ollama import convert, schemas
from localspec.server.ollama.answer import rfc3339
from localspec.server.ollama.docs import ERRORS
from localspec.serving.api import Engine, Host

#: the version of Ollama whose API this is: clients ask for features by it
API_VERSION = "0.12.6"
#: when a model is unloaded that is kept: never, as far as clients can tell
NEVER = "9999-12-31T23:59:59Z"
#: clients take a model for one that inserts when they find this in its template, as in those of Ollama's own
INSERT_MARK = "{# .Suffix: text can be inserted, see `suffix` of /api/generate #}"

router = APIRouter(route_class=AnyTypeRoute)


@router.head("/", include_in_schema=False)
async def head() -> Response:
    """Whether there is a server."""
    return Response()


@router.get("/api/version")
async def version() -> schemas.VersionResponse:
    """The version of Ollama whose API this is, and that of localspec."""
    return schemas.VersionResponse(version=API_VERSION, localspec=__version__)


@router.get("/api/tags")
async def tags(request: Request) -> schemas.TagsResponse:
    """The models that can be asked for."""
    known = await about.models(request.app.state.host)
    return schemas.TagsResponse(models=[_listed(model) for model in known])


@router.get("/api/ps")
async def ps(request: Request) -> schemas.PsResponse:
    """The models that are loaded."""
    host: Host = request.app.state.host
    known = {model.name: model for model in await about.models(host)}
    loaded = [engine for engine in host.loaded() if engine.facts.name in known]
    return schemas.PsResponse(models=[_running(host, engine, known[engine.facts.name]) for engine in loaded])


@router.post("/api/show", responses=ERRORS)
async def show(request: Request, body: schemas.ShowRequest) -> schemas.ShowResponse:
    """What there is to know of a model. Does not load it."""
    host: Host = request.app.state.host
    known = await about.models(host)
    name = model_name(convert.untagged(body.model), host, request.app.state.settings)
    for model in known:
        if name is None or model.name == name:
            return _shown(model)
    raise ModelNotFoundError(f"model '{body.model}' not found", "see GET /api/tags")


def tagged(name: str) -> str:
    """The name as Ollama writes it: clients add the tag where it is missing, and then look for that."""
    return name if ":" in name else name + convert.LATEST


def _details(model: About) -> schemas.Details:
    return schemas.Details(
        family=model.architecture,
        families=[model.architecture] if model.architecture else [],
        parameter_size=about.size_label(model.n_params),
        quantization_level=model.quant,
    )


def _listed(model: About) -> schemas.Listed:
    name = tagged(model.name)
    return schemas.Listed(
        name=name,
        model=name,
        modified_at=_time(model.created),
        size=model.size,
        digest=model.digest,
        details=_details(model),
    )


def _running(host: Host, engine: Engine, model: About) -> schemas.Running:
    facts = engine.facts
    expires = host.expires(facts.name)
    return schemas.Running(
        name=tagged(facts.name),
        model=tagged(facts.name),
        size=facts.size,
        digest=model.digest,
        details=_details(model),
        expires_at=NEVER if expires is None else _time(expires),
        size_vram=0 if "cpu" in facts.device.lower() else facts.size,
        context_length=facts.n_ctx,
    )


def _shown(model: About) -> schemas.ShowResponse:
    licence = model.metadata.get("general.license", "")
    return schemas.ShowResponse(
        modelfile=f"FROM {tagged(model.name)}\n",
        parameters="" if model.n_ctx is None else f"num_ctx {model.n_ctx}",
        template=(INSERT_MARK + "\n" if model.can_insert else "") + model.template,
        details=_details(model),
        model_info=_info(model),
        capabilities=_capabilities(model),
        modified_at=_time(model.created),
        license=licence if isinstance(licence, str) else "",
    )


def _capabilities(model: About) -> list[str]:
    having = {"tools": model.can_call_tools, "insert": model.can_insert, "thinking": model.can_think}
    return ["completion", *(name for name, has in having.items() if has)]


def _info(model: About) -> dict[str, Any]:
    """The metadata of the file. Its context length is what a request can have here, as clients fill it up."""
    arch = model.architecture
    info: dict[str, Any] = {
        **model.metadata,
        "general.architecture": arch,
        "general.parameter_count": model.n_params,
        "localspec.trained_context_length": model.n_ctx_train,
        f"{arch}.context_length": model.context,
        f"{arch}.embedding_length": model.n_embd,
    }
    # a file may say infinity, which JSON cannot
    return {key: value for key, value in info.items() if value is not None and _sayable(value)}


def _sayable(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _time(seconds: float) -> str:
    return rfc3339(datetime.fromtimestamp(seconds, timezone.utc))
