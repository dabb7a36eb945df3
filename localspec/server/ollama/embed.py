"""Embeddings: POST /api/embed, and the older /api/embeddings."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request

from localspec.errors import ContextLengthError
from localspec.server.answers import model_name
from localspec.server.any_type import AnyTypeRoute
from localspec.server.disconnect import watched
from localspec.server.errors import ParamError
from localspec.server.ollama import answer, convert, durations, schemas
from localspec.server.ollama.docs import ERRORS
from localspec.serving.api import Engine, Host, Pooled

router = APIRouter(route_class=AnyTypeRoute)


@router.post("/api/embed", responses=ERRORS, response_model_exclude_none=True)
async def embed(request: Request, body: schemas.EmbedRequest) -> schemas.EmbedResponse:
    """Embeddings of length 1, one a text. Texts beyond the context are cut unless `truncate` is false."""
    begun = time.monotonic()
    texts = [body.input] if isinstance(body.input, str) else body.input
    most = request.app.state.settings.bounds.inputs
    if len(texts) > most:
        raise ParamError("input", f"input has {len(texts)} texts; at most {most} are read at once")
    made = await watched(request.receive, _embed(request, body, texts, body.truncate is not False, normalize=True))
    vectors, warnings = made.pooled.vectors, []
    if body.dimensions is not None:
        if vectors and body.dimensions > len(vectors[0]):
            raise ParamError("dimensions", f"dimensions is {body.dimensions}; the model has {len(vectors[0])}")
        vectors = [_shortened(vector, body.dimensions) for vector in vectors]
    if made.n_cut:
        warnings.append(f"{made.n_cut} of {len(texts)} texts were cut to the context of the model")
    return schemas.EmbedResponse(
        model=body.model,
        embeddings=vectors,
        total_duration=answer.ns(time.monotonic() - begun),
        load_duration=answer.ns(made.load_seconds),
        prompt_eval_count=made.pooled.n_tokens,
        warnings=warnings or None,
    )


@router.post("/api/embeddings", responses=ERRORS)
async def embeddings(request: Request, body: schemas.EmbeddingsRequest) -> schemas.EmbeddingsResponse:
    """The embedding of one text, as long as the model made it."""
    texts = [body.prompt] if body.prompt else []
    made = await watched(request.receive, _embed(request, body, texts, truncate=True, normalize=False))
    return schemas.EmbeddingsResponse(embedding=made.pooled.vectors[0] if texts else [])


@dataclass(frozen=True, slots=True)
class _Made:
    """Embeddings, how many texts were cut for them, and how long the model took to load."""

    pooled: Pooled
    n_cut: int
    load_seconds: float


async def _embed(
    request: Request,
    body: schemas.EmbedRequest | schemas.EmbeddingsRequest,
    texts: Sequence[str],
    truncate: bool,
    normalize: bool,
) -> _Made:
    host: Host = request.app.state.host
    begun = time.monotonic()
    async with host.use(model_name(convert.untagged(body.model), host, request.app.state.settings)) as engine:
        load_seconds = time.monotonic() - begun
        if body.keep_alive is not None:
            host.keep(engine.facts.name, durations.parse(body.keep_alive))
        if not texts:
            return _Made(Pooled([], 0), 0, load_seconds)
        inputs = await asyncio.to_thread(_tokens, engine, texts)
        n_cut = sum(len(tokens) > engine.facts.n_ctx for tokens in inputs)
        if n_cut and not truncate:
            most = max(map(len, inputs))
            raise ContextLengthError(f"an input has {most} tokens, more than the context of {engine.facts.n_ctx}")
        cut = [tokens[: engine.facts.n_ctx] for tokens in inputs]
        return _Made(await asyncio.wrap_future(engine.embed(cut, normalize)), n_cut, load_seconds)


def _tokens(engine: Engine, texts: Sequence[str]) -> list[list[int]]:
    return [engine.tokenize(text) for text in texts]


def _shortened(vector: list[float], n: int) -> list[float]:
    """The first `n` numbers of a vector, made length 1 again."""
    first = vector[:n]
    length = math.hypot(*first)
    return [value / length for value in first] if length else first
