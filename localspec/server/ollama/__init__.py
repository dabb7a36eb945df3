"""Ollama's API, as its clients use it."""

from fastapi import APIRouter

from localspec.server.errors import register_shape
from localspec.server.ollama import chat, embed, generate, models, pull
from localspec.server.ollama.run import error_shape

__all__ = ["router"]

router = APIRouter(tags=["ollama"])
for part in (chat, generate, embed, models, pull):
    router.include_router(part.router)
register_shape("/api/", error_shape)
