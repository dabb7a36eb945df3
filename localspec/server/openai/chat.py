"""/v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from localspec.chat_format.api import Delta, Reply
from localspec.server import fields, limits
from localspec.server.answers import Answers, Ask, End, Piece, start
from localspec.server.encoding import Json
from localspec.server.errors import ParamError
from localspec.server.openai import replies
from localspec.server.openai.common import header, ok_or_stream, report, stream
from localspec.server.openai.conversation import chat_request
from localspec.server.openai.logprobs import of_chat
from localspec.server.openai.requests import ChatCompletionRequest
from localspec.server.settings import Settings
from localspec.server.sse import DONE, event

router = APIRouter(tags=["openai"])


def ask_of(body: ChatCompletionRequest, settings: Settings) -> Ask:
    """What a request asks for. Raises `ParamError`."""
    bounds = settings.bounds
    if body.top_logprobs is not None and not body.logprobs:
        raise ParamError("top_logprobs", "top_logprobs goes with logprobs", "set logprobs to true")
    method, accept = body.speculate()
    return Ask(
        prompts=[chat_request(body, bounds)],
        model=body.model,
        n=body.n or 1,
        sampling=body.sampling(settings.sampling, bounds),
        max_tokens=fields.max_tokens(body.max_completion_tokens, body.max_tokens, bounds=bounds),
        stops=limits.stops(body.stop, bounds),
        method=method,
        accept=accept,
        top_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        ignore_eos=bool(body.ignore_eos),
        cache_prompt=body.cache_prompt is not False,
        warnings=body.warnings(),
    )


@router.post("/chat/completions", response_model=None, responses=ok_or_stream(replies.ChatCompletion))
async def chat_completions(body: ChatCompletionRequest, request: Request) -> Response:
    """Go on with a conversation."""
    settings: Settings = request.app.state.settings
    answers = await start(request, ask_of(body, settings))
    if body.reasoning_effort not in (None, "none") and "reasoning_effort" not in answers.engine.facts.chat_template:
        answers.warnings.append("reasoning_effort: the model's chat template does not know it")
    if body.stream:
        return stream(request, answers, _chunks(answers, bool(body.tools), body.include_usage))
    ends = await answers.collect(request)
    return Json(_completion(answers, ends))


def _completion(answers: Answers, ends: Sequence[End]) -> dict[str, Any]:
    choices = []
    for end in ends:
        logprobs = None if answers.ask.top_logprobs is None else of_chat(end.logprobs)
        choice = {
            "index": end.index,
            "message": message_of(end.reply),
            "logprobs": logprobs,
            "finish_reason": end.finish_reason,
        }
        choices.append(choice if len(ends) == 1 else {**choice, **report(end)})
    made = {**header(answers, "chatcmpl-", "chat.completion"), "choices": choices, "usage": answers.usage(ends)}
    if len(ends) == 1:
        made |= report(ends[0])
    if answers.warnings:
        made["warnings"] = answers.warnings
    return made


def message_of(reply: Reply) -> dict[str, Any]:
    """A whole reply as a message."""
    content = (reply.content or None) if reply.tools else reply.content
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tools:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.tools
        ]
    return message


def delta_of(deltas: Sequence[Delta]) -> dict[str, Any]:
    """Pieces of a reply as one delta."""
    made: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        if delta.content:
            made["content"] = made.get("content", "") + delta.content
        if delta.reasoning:
            made["reasoning_content"] = made.get("reasoning_content", "") + delta.reasoning
        if delta.tool is not None:
            tool = delta.tool
            function = {"arguments": tool.arguments}
            call: dict[str, Any] = {"index": tool.index, "type": "function", "function": function}
            if tool.id is not None:
                call["id"] = tool.id
            if tool.name is not None:
                function["name"] = tool.name
            calls.append(call)
    if calls:
        made["tool_calls"] = calls
    return made


async def _chunks(answers: Answers, with_tools: bool, include_usage: bool) -> AsyncIterator[bytes]:
    head = header(answers, "chatcmpl-", "chat.completion.chunk")
    asked = answers.ask.top_logprobs is not None

    def chunk(index: int, delta: dict[str, Any], logprobs: Any = None, reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return event({**head, "choices": [choice], **more})

    # an answer of calls alone has no content, not an empty one
    first = {"role": "assistant", "content": None if with_tools else ""}
    for index in range(answers.n_choices):
        yield chunk(index, first)
    ends = []
    async for item in answers:
        if isinstance(item, Piece):
            delta = delta_of(item.deltas)
            logprobs = of_chat(item.logprobs) if asked and item.logprobs else None
            if delta or logprobs:
                yield chunk(item.index, delta, logprobs)
            continue
        ends.append(item)
        warnings = {"warnings": answers.warnings} if answers.warnings else {}
        yield chunk(item.index, {}, reason=item.finish_reason, **report(item), **warnings)
    if include_usage:
        last = report(ends[0]) if len(ends) == 1 else {}
        yield event({**head, "choices": [], "usage": answers.usage(ends), **last})
    yield DONE
