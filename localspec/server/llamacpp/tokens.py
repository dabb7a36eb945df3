"""Texts and tokens: POST /tokenize, /detokenize, /apply-template."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request

from localspec.server import limits
from localspec.server.answers import model_name
from localspec.server.any_type import AnyTypeRoute
from localspec.server.llamacpp import schemas
from localspec.server.llamacpp.completion import text_of
from localspec.server.openai.conversation import chat_request
from localspec.server.openai.requests import ChatCompletionRequest
from localspec.serving.api import Engine

router = APIRouter(route_class=AnyTypeRoute)


def _use(request: Request, model: str | None) -> Any:
    host = request.app.state.host
    return host.use(model_name(model, host, request.app.state.settings))


@router.post("/tokenize")
async def tokenize(request: Request, body: schemas.TokenizeRequest) -> schemas.TokenizeResponse:
    """The tokens of a text, with `with_pieces` also what each stands for."""
    text = limits.text(body.content, "content")
    async with _use(request, body.model) as engine:
        tokens = await asyncio.to_thread(
            engine.tokenize, text, add_special=bool(body.add_special), parse_special=body.parse_special is not False
        )
        if not body.with_pieces:
            return schemas.TokenizeResponse(tokens=tokens)
        return schemas.TokenizeResponse(tokens=[_piece(engine, token) for token in tokens])


def _piece(engine: Engine, token: int) -> schemas.Piece:
    piece = engine.piece(token)
    try:
        return schemas.Piece(id=token, piece=piece.decode())
    except UnicodeDecodeError:
        return schemas.Piece(id=token, piece=list(piece))


@router.post("/detokenize")
async def detokenize(request: Request, body: schemas.DetokenizeRequest) -> schemas.DetokenizeResponse:
    """The text of tokens."""
    async with _use(request, body.model) as engine:
        return schemas.DetokenizeResponse(content=await asyncio.to_thread(text_of, engine, body.tokens))


@router.post("/apply-template")
async def apply_template(request: Request, body: ChatCompletionRequest) -> schemas.TemplateResponse:
    """The prompt that a conversation is for the model; nothing is written."""
    chat = chat_request(body, request.app.state.settings.bounds)
    async with _use(request, body.model) as engine:
        prompt = await asyncio.to_thread(engine.chat.apply, chat)
    return schemas.TemplateResponse(prompt=prompt.text)
