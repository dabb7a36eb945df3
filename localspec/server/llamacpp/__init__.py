"""llama.cpp's server, what of it is not OpenAI's."""

from fastapi import APIRouter

from localspec.server.llamacpp import completion, infill, state, tokens

__all__ = ["router"]

router = APIRouter(tags=["llama.cpp"])
for part in (completion, infill, tokens, state):
    router.include_router(part.router)
