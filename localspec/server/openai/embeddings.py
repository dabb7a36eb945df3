"""/v1/embeddings."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import numpy as np
from fastapi import APIRouter, Request

from localspec.server import fields
from localspec.server.answers import check_tokens, model_name
from localspec.server.disconnect import watched
from localspec.server.errors import ParamError
from localspec.server.openai import replies
from localspec.server.openai.completions import prompts_of
from localspec.server.openai.requests import EmbeddingRequest

router = APIRouter(tags=["openai"])


@router.post("/embeddings", response_model=replies.Embeddings, response_model_exclude_none=True)
async def embeddings(body: EmbeddingRequest, request: Request) -> Any:
    """Vectors of texts, of length 1."""
    return await watched(request.receive, _embeddings(body, request))


async def _embeddings(body: EmbeddingRequest, request: Request) -> dict[str, Any]:
    state = request.app.state
    inputs = prompts_of(body.input, state.settings.bounds, "input")
    warnings = fields.unknown(body.model_extra)
    async with state.host.use(model_name(body.model, state.host, state.settings)) as engine:
        if body.dimensions not in (None, engine.facts.n_embd):
            raise ParamError("dimensions", f"the vectors of {engine.facts.name} have {engine.facts.n_embd} dimensions")

        def tokens() -> list[list[int]]:
            return [engine.tokenize(each) if isinstance(each, str) else each for each in inputs]

        read = await asyncio.to_thread(tokens)
        for each in read:
            check_tokens(each, engine, "input")
        pooled = await asyncio.wrap_future(engine.embed(read))
        name = engine.facts.name
    as_text = body.encoding_format == "base64"
    data = [
        {"object": "embedding", "index": i, "embedding": _base64(vector) if as_text else vector}
        for i, vector in enumerate(pooled.vectors)
    ]
    usage = {"prompt_tokens": pooled.n_tokens, "total_tokens": pooled.n_tokens}
    made = {"object": "list", "data": data, "model": name, "usage": usage}
    return {**made, "warnings": list(warnings)} if warnings else made


def _base64(vector: list[float]) -> str:
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()
