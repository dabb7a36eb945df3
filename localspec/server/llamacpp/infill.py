"""POST /infill: the text between two texts."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from localspec.server import fim, limits
from localspec.server.any_type import AnyTypeRoute
from localspec.server.llamacpp import convert, schemas
from localspec.server.llamacpp.completion import STREAMED, write
from localspec.server.settings import Settings
from localspec.serving.api import Engine

router = APIRouter(route_class=AnyTypeRoute)


@router.post("/infill", response_model=schemas.Completion, responses=STREAMED)
async def infill(request: Request, body: schemas.InfillRequest) -> Response:
    """Write between `input_prefix`, with `prompt` at its end, and `input_suffix`. `input_extra` are other files."""
    settings: Settings = request.app.state.settings
    for i, extra in enumerate(body.input_extra or ()):
        limits.text(extra.text + (extra.filename or ""), f"input_extra[{i}]")
    before = limits.text(body.prompt or "", "prompt")

    def prompt(engine: Engine) -> Sequence[int]:
        return fim.tokens(
            engine,
            _plain(engine, body.input_prefix),
            _plain(engine, body.input_suffix),
            begun=before,
            extra=[fim.Extra(extra.text, extra.filename or "tmp") for extra in body.input_extra or ()],
            room=max(0, body.n_predict or 0),
        )

    return await write(request, body, convert.ask(body, [prompt], settings))


def _plain(engine: Engine, given: schemas.Mixed) -> Sequence[int]:
    """Tokens of texts in which nothing is special, and of tokens, in turn."""
    made: list[int] = []
    for part in [given] if isinstance(given, str) else given:
        made += [part] if isinstance(part, int) else engine.tokenize(part, add_special=False, parse_special=False)
    return made
