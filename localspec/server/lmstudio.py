"""LM Studio's own API: /api/v0. Answers are OpenAI's, with its `stats` where they come whole."""

from __future__ import annotations

import json
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from localspec.errors import ModelNotFoundError
from localspec.server import about
from localspec.server.about import About
from localspec.server.errors import openai_shape, register_shape
from localspec.server.openai import chat, completions, embeddings, replies
from localspec.server.openai.common import ok_or_stream
from localspec.server.openai.requests import ChatCompletionRequest, CompletionRequest, EmbeddingRequest
from localspec.serving.api import Host

router = APIRouter(prefix="/api/v0", tags=["lmstudio"])
register_shape("/api/v0/", openai_shape)

#: LM Studio's words for why an answer ended
_STOPS = {"stop": "eosFound", "length": "maxPredictedTokensReached", "tool_calls": "toolCalls"}


class Model(BaseModel):
    """A model. `loaded_context_length` is what a request can have, which is known once it is loaded."""

    id: str
    object: Literal["model"] = "model"
    type: Literal["llm"] = "llm"
    publisher: str
    arch: str
    compatibility_type: Literal["gguf"] = "gguf"
    quantization: str
    state: Literal["loaded", "loading", "not-loaded"]
    max_context_length: int
    loaded_context_length: int | None = None
    capabilities: list[str]


class Models(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


class Stats(BaseModel):
    """How fast an answer was; times in seconds."""

    tokens_per_second: float
    time_to_first_token: float
    generation_time: float
    stop_reason: Literal["eosFound", "maxPredictedTokensReached", "toolCalls"]


class ChatCompletion(replies.ChatCompletion):
    stats: Stats | None = None


class Completion(replies.Completion):
    stats: Stats | None = None


@router.get("/models", response_model_exclude_none=True)
async def models(request: Request) -> Models:
    """The models on this machine."""
    return Models(data=await _models(request))


@router.get("/models/{name:path}", response_model_exclude_none=True)
async def model(name: str, request: Request) -> Model:
    """One of them."""
    for each in await _models(request):
        if each.id == name:
            return each
    raise ModelNotFoundError(f"there is no model {name[:100]!r}", "GET /api/v0/models lists them")


@router.post("/chat/completions", response_model=None, responses=ok_or_stream(ChatCompletion))
async def chat_completions(body: ChatCompletionRequest, request: Request) -> Response:
    """Go on with a conversation."""
    return _with_stats(await chat.chat_completions(body, request))


@router.post("/completions", response_model=None, responses=ok_or_stream(Completion))
async def text_completions(body: CompletionRequest, request: Request) -> Response:
    """Go on with a text."""
    return _with_stats(await completions.completions(body, request))


@router.post("/embeddings", response_model=replies.Embeddings, response_model_exclude_none=True)
async def vectors(body: EmbeddingRequest, request: Request) -> Any:
    """Vectors of texts, of length 1."""
    return await embeddings.embeddings(body, request)


async def _models(request: Request) -> list[Model]:
    host: Host = request.app.state.host
    return [_model(each) for each in await about.models(host) if each.role != "heads"]


def _model(model: About) -> Model:
    publisher = model.metadata.get("general.organization") or (model.name.split("/")[0] if "/" in model.name else "")
    return Model(
        id=model.name,
        publisher=str(publisher or "localspec"),
        arch=model.architecture,
        quantization=model.quant,
        state="loaded" if model.loaded else "not-loaded",
        max_context_length=model.n_ctx_train or model.n_ctx or 0,
        loaded_context_length=model.n_ctx,
        capabilities=["tool_use"] if model.can_call_tools else [],
    )


def _with_stats(response: Response) -> Response:
    """A whole reply with LM Studio's numbers, which are those of `timings` in other units."""
    if not isinstance(response, JSONResponse):
        return response
    reply = json.loads(bytes(response.body))
    timings = reply.get("timings")
    if timings is None:
        return response
    prompt, predicted = timings["prompt_ms"] / 1000, timings["predicted_ms"] / 1000
    reply["stats"] = {
        "tokens_per_second": timings["predicted_per_second"],
        "time_to_first_token": round(prompt, 6),
        "generation_time": round(predicted, 6),
        "stop_reason": _STOPS[reply["choices"][0]["finish_reason"]],
    }
    return JSONResponse(reply)
