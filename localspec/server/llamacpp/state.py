"""What the server is and does: GET /props and /slots. Asking loads no model, and keeps none loaded."""

from __future__ import annotations

import math
from typing import Any

from fastapi import APIRouter, Request

from localspec import __version__
from localspec.engine.params import SamplingParams
from localspec.errors import ModelNotFoundError
from localspec.server import about
from localspec.server.answers import model_name
from localspec.server.any_type import AnyTypeRoute
from localspec.server.errors import ApiError
from localspec.server.llamacpp import samplers, schemas
from localspec.serving import api
from localspec.serving.api import Engine, Host, LoadingError, SlotState

router = APIRouter(route_class=AnyTypeRoute)

_SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_last_n", "repeat_penalty", "presence_penalty",
    "frequency_penalty",
)  # fmt: skip


@router.get("/slots")
async def slots(request: Request, model: str | None = None, fail_on_no_slot: str = "") -> list[schemas.Slot]:
    """The slots of a model, of the default one if none is named; none when it is not loaded.

    With `fail_on_no_slot` status 503 when all of them are busy.
    """
    engine = _engine(request, model)
    states = [] if engine is None else engine.slots()
    if fail_on_no_slot and states and all(state.busy for state in states):
        raise ApiError("no slot available", status=503, retry=True, retry_after=1)
    return [_slot(state) for state in states]


@router.get("/props")
async def props(request: Request, model: str | None = None) -> schemas.Props:
    """What a model is, the default one if none is named, and how it writes when it is not told otherwise."""
    host: Host = request.app.state.host
    loading = host.loading()
    if host.state() == "loading":
        stage = f": {loading[0]}, {loading[1]:.0%}" if loading else ""
        raise LoadingError(f"Loading model{stage}")
    engine = _engine(request, model)
    if engine is not None:
        return _props(request, engine)
    return await _sleeping(request, model)


def _engine(request: Request, model: str | None) -> Engine | None:
    """A loaded model: the one that is named, else the first. Raises `ModelNotFoundError` for a name of none."""
    host: Host = request.app.state.host
    name = model_name(model, host, request.app.state.settings)
    if name is not None and all(name != available.name for available in host.available()):
        raise ModelNotFoundError(f"there is no model {name[:100]!r}", "see GET /v1/models")
    return next((engine for engine in host.loaded() if name in (None, engine.facts.name)), None)


def _props(request: Request, engine: Engine) -> schemas.Props:
    facts = engine.facts
    return _with(
        request,
        n_ctx=facts.n_ctx,
        total_slots=facts.n_slots,
        model_alias=facts.name,
        model_path=str(facts.path),
        model_ftype=facts.quant,
        chat_template=facts.chat_template,
        bos_token=facts.bos,
        eos_token=facts.eos,
        is_sleeping=False,
    )


async def _sleeping(request: Request, model: str | None) -> schemas.Props:
    """Of a model that is not loaded: what its file says."""
    host: Host = request.app.state.host
    name = model_name(model, host, request.app.state.settings)
    known = await about.models(host)
    paths = {available.name: str(available.path) for available in host.available()}
    for each in known:
        if name in (None, each.name):
            return _with(
                request,
                n_ctx=each.context or 0,
                total_slots=0,
                model_alias=each.name,
                model_path=paths.get(each.name, ""),
                model_ftype=each.quant,
                chat_template=each.template,
                bos_token="",
                eos_token="",
                is_sleeping=True,
            )
    raise ModelNotFoundError("there is no model on this machine", "see GET /v1/models")


def _with(request: Request, *, n_ctx: int, chat_template: str, **facts: Any) -> schemas.Props:
    default = api.Request(prompt=(), sampling=request.app.state.settings.sampling)
    return schemas.Props(
        default_generation_settings=schemas.DefaultSettings(n_ctx=n_ctx, params=generation_settings(default)),
        modalities={"vision": False, "audio": False, "video": False},
        endpoint_slots=True,
        endpoint_props=False,
        endpoint_metrics=True,
        chat_template=chat_template,
        chat_template_caps={"supports_tools": "tools" in chat_template},
        build_info=f"localspec-{__version__}",
        **facts,
    )


def _slot(state: SlotState) -> schemas.Slot:
    return schemas.Slot(
        id=state.id,
        id_task=-1 if state.task is None else state.task,
        n_ctx=state.n_ctx,
        speculative=state.method != "plain",
        is_processing=state.busy,
        n_prompt_tokens=state.n_prompt,
        # the last token of a prompt is read with the first step of the answer, and watchers take less for reading
        n_prompt_tokens_processed=state.n_prompt if state.n_read >= state.n_prompt - 1 else state.n_read,
        n_prompt_tokens_cache=state.n_cached,
        params={} if state.params is None else generation_settings(state.params),
        next_token=[
            schemas.NextToken(
                has_next_token=state.busy,
                has_new_line=False,
                n_remain=-1 if state.n_left is None else state.n_left,
                n_decoded=state.n_decoded,
            )
        ],
    )


def generation_settings(request: api.Request) -> dict[str, Any]:
    """How an answer is made, in llama.cpp's words. What there is not has the values that turn it off."""
    sampling: SamplingParams = request.sampling
    limit = -1 if request.max_tokens is None else request.max_tokens
    return {
        "seed": -1 if sampling.seed is None else sampling.seed,
        **{name: getattr(sampling, name) for name in _SAMPLING},
        "dynatemp_range": 0.0,
        "dynatemp_exponent": 1.0,
        "top_n_sigma": -1.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "dry_multiplier": 0.0,
        "mirostat": 0,
        "stop": list(request.stops),
        "max_tokens": limit,
        "n_predict": limit,
        "n_keep": 0,
        "n_discard": 0,
        "ignore_eos": request.ignore_eos,
        "logit_bias": [
            {"token": token, "bias": False if bias == -math.inf else bias}
            for token, bias in sampling.logit_bias.items()
        ],
        "n_probs": request.top_logprobs or 0,
        "min_keep": 0,
        "grammar": sampling.grammar or "",
        "samplers": list(samplers.CHAIN),
        "speculative.method": request.method or "auto",
        "timings_per_token": False,
        "post_sampling_probs": False,
    }
