"""POST /completion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from localspec.server.answers import Answers, Ask, End, Piece, start
from localspec.server.any_type import AnyTypeRoute
from localspec.server.disconnect import watched
from localspec.server.llamacpp import convert, schemas
from localspec.server.llamacpp.state import generation_settings
from localspec.server.settings import Settings
from localspec.server.sse import Stream, event
from localspec.serving.api import Engine, TokenLogprob

router = APIRouter(route_class=AnyTypeRoute)

STREAMED: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}


@router.post("/completion", response_model=schemas.Completion | list[schemas.Completion], responses=STREAMED)
async def completion(request: Request, body: schemas.CompletionRequest) -> Response:
    """Continue a text, or several; whole, or with `stream` as events, the last of which has `stop` true."""
    settings: Settings = request.app.state.settings
    return await write(request, body, convert.ask(body, convert.prompts(body, settings.bounds.prompts), settings))


async def write(request: Request, body: schemas.Writing, ask: Ask) -> Response:
    """Answer as llama.cpp does. Raises what `start` and an iteration do."""
    settings: Settings = request.app.state.settings
    writing = _Writing(body, await start(request, ask))
    if not body.stream:
        return JSONResponse(await writing.whole(request))
    every = body.sse_ping_interval or settings.keep_alive
    return Stream(
        writing.events(),
        writing.answers.close,
        every=every if every > 0 else settings.keep_alive,
        write_timeout=settings.write_timeout,
    )


class _Writing:
    """Answers under way."""

    def __init__(self, body: schemas.Writing, answers: Answers) -> None:
        self.body, self.answers = body, answers
        self._written: dict[int, int] = {}
        self._begun: dict[int, float] = {}

    async def items(self) -> AsyncIterator[Piece | End]:
        """The answers, each of which ends with the line in which its time is up."""
        most, now = self.body.t_max_predict_ms or -1, asyncio.get_running_loop().time
        async for item in self.answers:
            yield item
            if most > 0 and isinstance(item, Piece):
                begun = self._begun.setdefault(item.index, now())
                if "\n" in item.text and (now() - begun) * 1000 > most:
                    self.answers.cut(item.index)

    async def events(self) -> AsyncIterator[bytes]:
        async for item in self.items():
            yield event(self._piece(item) if isinstance(item, Piece) else self._final(item, streamed=True))

    async def whole(self, request: Request) -> Any:
        async def collect() -> list[End]:
            return [item async for item in self.items() if isinstance(item, End)]

        try:
            ends = await watched(request.receive, collect())
        finally:
            await self.answers.close()
        made = [self._final(end, streamed=False) for end in sorted(ends, key=lambda end: end.index)]
        return made[0] if len(made) == 1 else made

    def _piece(self, piece: Piece) -> dict[str, Any]:
        written = self._written[piece.index] = self._written.get(piece.index, 0) + len(piece.tokens)
        made = {
            "index": piece.index,
            "content": piece.text,
            "tokens": list(piece.tokens),
            "stop": False,
            "id_slot": self._slot(piece.index),
            "tokens_predicted": written,
            "tokens_evaluated": len(self.answers.request(piece.index).prompt),
        }
        if piece.logprobs:
            made["completion_probabilities"] = probabilities(piece.logprobs)
        return made

    def _final(self, end: End, streamed: bool) -> dict[str, Any]:
        stats, engine = end.ended.stats, self.answers.engine
        made = {
            "index": end.index,
            "content": "" if streamed else end.text,
            "tokens": list(end.tokens) if self.body.return_tokens and not streamed else [],
            "id_slot": self._slot(end.index),
            "stop": True,
            "model": self.answers.model,
            "tokens_predicted": stats.n_tokens,
            "tokens_evaluated": stats.n_prompt,
            "generation_settings": {
                **generation_settings(self.answers.request(end.index)),
                "stream": streamed,
                "seed": end.ended.seed,
            },
            "prompt": text_of(engine, end.prompt),
            "has_new_line": "\n" in end.text,
            "truncated": end.ended.truncated,
            **stop(end),
            "tokens_cached": stats.n_prompt + max(0, stats.n_tokens - 1),
            "timings": end.timings,
            "speculation": end.speculation,
        }
        if end.logprobs and not streamed:
            made["completion_probabilities"] = probabilities(end.logprobs)
        if self.answers.warnings:
            made["warnings"] = self.answers.warnings
        return fields_of(made, self.body.response_fields)

    def _slot(self, index: int) -> int:
        slot = self.answers.slot(index)
        return -1 if slot is None else slot


def stop(end: End) -> dict[str, str]:
    """Why an answer ended."""
    ended = end.ended
    if ended.stop is not None:
        return {"stop_type": "word", "stopping_word": ended.stop}
    return {"stop_type": "eos" if ended.eog else "limit", "stopping_word": ""}


def probabilities(logprobs: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """The tokens of an answer with their log-probabilities, and the most likely ones at their places."""
    return [
        {
            **_token(each.token, each.piece, each.logprob),
            "top_logprobs": [_token(token, piece, logprob) for token, piece, logprob in each.top],
        }
        for each in logprobs
    ]


def _token(token: int, piece: bytes, logprob: float) -> dict[str, Any]:
    # what is impossible has the least number of a float there, as JSON has no infinity
    finite = max(logprob, -3.4028234663852886e38)
    return {"id": token, "token": piece.decode("utf-8", "ignore"), "bytes": list(piece), "logprob": finite}


def text_of(engine: Engine, tokens: Sequence[int]) -> str:
    return b"".join(map(engine.piece, tokens)).decode("utf-8", "replace")


def fields_of(made: dict[str, Any], paths: Sequence[str] | None) -> dict[str, Any]:
    """Those fields that a client wants, "outer/inner" under that name; what is not there is left out."""
    if not paths:
        return made
    chosen = {}
    for path in paths:
        value: Any = made
        for key in path.split("/"):
            if not isinstance(value, Mapping) or key not in value:
                break
            value = value[key]
        else:
            chosen[path] = value
    return chosen
