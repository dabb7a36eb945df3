"""/v1/completions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response

from localspec.server import fields, limits
from localspec.server.answers import Answers, Ask, Piece, start
from localspec.server.encoding import Json
from localspec.server.errors import ParamError
from localspec.server.openai import replies
from localspec.server.openai.common import header, ok_or_stream, report, stream
from localspec.server.openai.logprobs import CompletionLogprobs
from localspec.server.openai.requests import CompletionRequest
from localspec.server.settings import Bounds, Settings
from localspec.server.sse import DONE, event

router = APIRouter(tags=["openai"])


def ask_of(body: CompletionRequest, settings: Settings) -> Ask:
    """What a request asks for. Raises `ParamError`."""
    bounds = settings.bounds
    n = body.n or 1
    if body.best_of not in (None, n):
        raise ParamError("best_of", "answers are not chosen among others", "leave it out, or make it equal to n")
    if body.suffix:
        raise ParamError("suffix", "a text that follows is not supported here", "POST /infill takes one")
    if body.echo and body.logprobs is not None:
        raise ParamError("echo", "the prompt has no log-probabilities here", "leave out echo or logprobs")
    method, accept = body.speculate()
    sampling = body.sampling(settings.sampling, bounds)
    grammar = limits.grammar(body.grammar, bounds)
    if body.json_schema is not None:
        limits.schema(body.json_schema, bounds, "json_schema")
        if grammar is not None:
            raise ParamError("grammar", "json_schema and grammar exclude each other")
    return Ask(
        prompts=prompts_of(body.prompt, bounds),
        model=body.model,
        n=n,
        sampling=replace(sampling, grammar=grammar, json_schema=body.json_schema),
        max_tokens=fields.max_tokens(body.max_tokens, bounds=bounds),
        stops=limits.stops(body.stop, bounds),
        method=method,
        accept=accept,
        top_logprobs=body.logprobs,
        ignore_eos=bool(body.ignore_eos),
        cache_prompt=body.cache_prompt is not False,
        warnings=body.warnings(),
    )


def prompts_of(prompt: Any, bounds: Bounds, param: str = "prompt") -> list[str | list[int]]:
    """The texts, or texts as tokens, that a field of either kind, or of lists of them, holds. Raises `ParamError`."""
    many = isinstance(prompt, list) and not (prompt and isinstance(prompt[0], int))
    prompts: list[str | list[int]] = prompt if many else [prompt]
    if not prompts or any(not each for each in prompts):
        raise ParamError(param, f"{param} is empty" if not many else f"a text of {param} is empty")
    if len(prompts) > bounds.prompts:
        raise ParamError(param, f"{param} has {len(prompts)} texts; it is at most {bounds.prompts}")
    for each in prompts:
        if isinstance(each, str):
            limits.text(each, param)
    return prompts


@router.post("/completions", response_model=None, responses=ok_or_stream(replies.Completion))
async def completions(body: CompletionRequest, request: Request) -> Response:
    """Go on with a text."""
    settings: Settings = request.app.state.settings
    answers = await start(request, ask_of(body, settings))
    echoes = _echoes(answers) if body.echo else [""] * len(answers.ask.prompts)
    if body.stream:
        return stream(request, answers, _chunks(answers, echoes, body.include_usage))
    ends = await answers.collect(request)
    choices = []
    for end in ends:
        logprobs = None if body.logprobs is None else CompletionLogprobs().add(end.logprobs)
        text = echoes[end.index // answers.ask.n] + end.text
        choice = {"index": end.index, "text": text, "logprobs": logprobs, "finish_reason": end.finish_reason}
        choices.append(choice if len(ends) == 1 else {**choice, **report(end)})
    made = {**header(answers, "cmpl-", "text_completion"), "choices": choices, "usage": answers.usage(ends)}
    if len(ends) == 1:
        made |= report(ends[0])
    if answers.warnings:
        made["warnings"] = answers.warnings
    return Json(made)


def _echoes(answers: Answers) -> list[str]:
    """The prompts as texts."""
    piece = answers.engine.piece
    return [
        prompt if isinstance(prompt, str) else b"".join([piece(token) for token in prompt]).decode("utf-8", "replace")
        for prompt in answers.ask.prompts
        if isinstance(prompt, str | list)
    ]


async def _chunks(answers: Answers, echoes: Sequence[str], include_usage: bool) -> AsyncIterator[bytes]:
    head = header(answers, "cmpl-", "text_completion")
    asked = answers.ask.top_logprobs is not None
    logprobs = [CompletionLogprobs() for _ in range(answers.n_choices)]

    def chunk(index: int, text: str, told: Any = None, reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": index, "text": text, "logprobs": told, "finish_reason": reason}
        return event({**head, "choices": [choice], **more})

    for index in range(answers.n_choices):
        if echo := echoes[index // answers.ask.n]:
            yield chunk(index, echo)
    ends = []
    async for item in answers:
        if isinstance(item, Piece):
            told = logprobs[item.index].add(item.logprobs) if asked and item.logprobs else None
            if item.text or told:
                yield chunk(item.index, item.text, told)
            continue
        ends.append(item)
        warnings = {"warnings": answers.warnings} if answers.warnings else {}
        yield chunk(item.index, "", reason=item.finish_reason, **report(item), **warnings)
    if include_usage:
        last = report(ends[0]) if len(ends) == 1 else {}
        yield event({**head, "choices": [], "usage": answers.usage(ends), **last})
    yield DONE
