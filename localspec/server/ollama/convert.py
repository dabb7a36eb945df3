"""From what Ollama's clients send to what the server asks an engine for."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from localspec.chat_format.api import ChatRequest
from localspec.server import limits
from localspec.server.about import can_think
from localspec.server.answers import Ask, Prompt
from localspec.server.errors import ParamError
from localspec.server.fields import max_tokens, unknown
from localspec.server.ollama import schemas
from localspec.server.settings import Bounds, Settings
from localspec.serving.api import Facts

LATEST = ":latest"
NO_IMAGES = "images cannot be read: this server runs language models", "send text only"


def untagged(name: str) -> str:
    """The name of a model without the tag that Ollama's clients put after it."""
    return name.removesuffix(LATEST)


def ask(request: schemas.Generating, prompt: Prompt, settings: Settings, before: Sequence[int] = ()) -> Ask:
    """What to ask for. Raises `ParamError` for what is not possible."""
    options = request.chosen
    wish = request.speculation or options.speculation
    sampling = options.sampling(settings.sampling, settings.bounds)
    if not isinstance(prompt, ChatRequest):
        sampling = replace(sampling, **_constraints(request, options, settings.bounds))
    return Ask(
        prompts=[prompt],
        before=before,
        model=untagged(request.model),
        sampling=sampling,
        max_tokens=_max_tokens(options, settings.bounds),
        stops=limits.stops([stop for stop in options.stop or () if stop], settings.bounds, "options.stop"),
        method=wish.method if wish else None,
        accept=wish.accept if wish else None,
        top_logprobs=(request.top_logprobs or 0) if request.logprobs or request.top_logprobs else None,
        ignore_eos=bool(options.ignore_eos),
        cache_prompt=options.cache_prompt is not False,
        warnings=tuple(_warnings(request, options)),
    )


def _max_tokens(options: schemas.Options, bounds: Bounds) -> int | None:
    """Most tokens of an answer; -1, -2 and 0 are as many as there is room for."""
    limit = options.num_predict if options.num_predict and options.num_predict > 0 else -1
    return max_tokens(limit, bounds=bounds, param="options.num_predict")


def _warnings(request: schemas.Generating, options: schemas.Options) -> Iterator[str]:
    """What was asked for and will not be, as far as that is known without the model."""
    yield from unknown(request.model_extra)
    yield from unknown(options.model_extra, "options.")
    for name, neutral in (("mirostat", 0), ("tfs_z", 1.0), ("penalize_newline", False)):
        if getattr(options, name) not in (None, neutral):
            yield f"options.{name} is not supported and was ignored"


def warnings_of_model(request: schemas.Generating, facts: Facts) -> Iterator[str]:
    """What was asked for and is not, with this model."""
    num_ctx = request.options.num_ctx if request.options else None
    if num_ctx is not None and num_ctx > facts.n_ctx:
        yield f"options.num_ctx is {num_ctx}; the context is {facts.n_ctx} tokens, as the server was started"
    if request.think and not can_think(facts.chat_template):
        yield "think was ignored: this model has no thoughts apart from its answers"


def _constraints(request: schemas.Generating, options: schemas.Options, bounds: Bounds) -> dict[str, Any]:
    """The schema or grammar that an answer has to keep to; the format "json" is any object."""
    schema = {"type": "object"} if request.format == "json" else request.format or options.json_schema
    return {
        "json_schema": limits.schema(schema, bounds, "format"),
        "grammar": limits.grammar(options.grammar, bounds, "options.grammar"),
    }


def chat(request: schemas.ChatRequest, messages: Sequence[schemas.Message], bounds: Bounds) -> ChatRequest:
    """The conversation of /api/chat. Raises `ParamError` for images, and for too much of anything."""
    tools = request.tools or ()
    limits.count(messages, bounds.messages, "messages")
    limits.count(tools, bounds.tools, "tools")
    return _chat(request, _openai(messages), [{"type": "function", **tool} for tool in tools], bounds)


def prompt_chat(request: schemas.GenerateRequest, bounds: Bounds) -> ChatRequest:
    """The conversation that the prompt of /api/generate stands for."""
    messages = [{"role": "system", "content": request.system}] if request.system else []
    return _chat(request, [*messages, {"role": "user", "content": request.prompt or ""}], [], bounds)


def _chat(
    request: schemas.Generating, messages: list[dict[str, Any]], tools: list[dict[str, Any]], bounds: Bounds
) -> ChatRequest:
    options = request.chosen
    effort = request.think if isinstance(request.think, str) else None
    return ChatRequest(
        messages=limits.tree(messages, bounds, "messages"),
        tools=limits.schema(tools, bounds, "tools"),
        **_constraints(request, options, bounds),
        enable_thinking=request.think is not False,
        template_values={"reasoning_effort": effort} if effort else {},
    )


def _openai(messages: Sequence[schemas.Message]) -> list[dict[str, Any]]:
    """The messages as OpenAI has them: calls have ids there, and the results of tools name them."""
    made: list[dict[str, Any]] = []
    open_calls: dict[str, deque[str]] = defaultdict(deque)
    order: deque[str] = deque()
    for i, message in enumerate(messages):
        if message.images:
            raise ParamError(f"messages[{i}].images", *NO_IMAGES)
        plain: dict[str, Any] = {"role": message.role, "content": message.content or ""}
        if message.thinking:
            plain["reasoning_content"] = message.thinking
        if message.tool_calls:
            plain["tool_calls"] = [_call(call, f"call_{i}_{j}") for j, call in enumerate(message.tool_calls)]
            for call in plain["tool_calls"]:
                open_calls[call["function"]["name"]].append(call["id"])
                order.append(call["id"])
        if message.role == "tool":
            plain |= _result(message, open_calls, order)
        made.append(plain)
    return made


def _call(call: schemas.ToolCall, id: str) -> dict[str, Any]:
    arguments = json.dumps(call.function.arguments, ensure_ascii=False)
    return {"id": call.id or id, "type": "function", "function": {"name": call.function.name, "arguments": arguments}}


def _result(message: schemas.Message, open_calls: dict[str, deque[str]], order: deque[str]) -> dict[str, Any]:
    """Which call a result is of: the one it names, else the oldest open one of that function, else the oldest."""
    name = message.tool_name or (message.model_extra or {}).get("name")
    id = message.tool_call_id
    if id is None and name and open_calls[name]:
        id = open_calls[name].popleft()
    if id is None and order:
        id = order[0]
    if id is not None and id in order:
        order.remove(id)
    return {key: value for key, value in (("tool_call_id", id), ("name", name)) if value is not None}
