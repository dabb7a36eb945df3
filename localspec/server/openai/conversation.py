"""From the messages, tools and formats of OpenAI's API to a `ChatRequest`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from localspec.chat_format.api import ChatRequest
from localspec.server import limits
from localspec.server.errors import ParamError
from localspec.server.openai.requests import (
    ChatCompletionRequest,
    ContentPart,
    Message,
    NamedTool,
    ResponseFormat,
    Tool,
)
from localspec.server.settings import Bounds

ANY_OBJECT: dict[str, Any] = {"type": "object"}


def chat_request(body: ChatCompletionRequest, bounds: Bounds) -> ChatRequest:
    """The conversation of a request. Raises `ParamError`."""
    if len(body.messages) > bounds.messages:
        raise ParamError("messages", f"there are {len(body.messages)} messages; it is at most {bounds.messages}")
    tools, choice, function = tools_of(body.tools, body.tool_choice, bounds)
    schema, grammar = constraint(body, bounds)
    if tools and choice == "required" and (schema is not None or grammar is not None):
        raise ParamError("tool_choice", "a tool call is required, and a format for the text of the answer is given")
    values = dict(limits.tree(body.chat_template_kwargs or {}, bounds, "chat_template_kwargs"))
    thinking = values.pop("enable_thinking", body.reasoning_effort != "none")
    if not isinstance(thinking, bool):
        raise ParamError("chat_template_kwargs", "enable_thinking is true or false")
    if body.reasoning_effort is not None:
        values.setdefault("reasoning_effort", limits.text(body.reasoning_effort, "reasoning_effort"))
    return ChatRequest(
        messages=[message_of(message, f"messages[{i}]", bounds) for i, message in enumerate(body.messages)],
        tools=tools,
        tool_choice=choice,
        function=function,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        json_schema=schema,
        grammar=grammar,
        reasoning_format=body.reasoning_format or "auto",
        enable_thinking=thinking,
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final_message=bool(body.continue_final_message),
        template_values=values,
    )


def message_of(message: Message, param: str, bounds: Bounds) -> dict[str, Any]:
    """One message with the fields that templates know, its content a text."""
    role = "system" if message.role == "developer" else message.role
    content = _content(message.content, f"{param}.content")
    made: dict[str, Any] = {"role": role, "content": content or ""}
    if message.name is not None:
        made["name"] = limits.text(message.name, f"{param}.name")
    if message.role == "assistant" and message.reasoning_content:
        made["reasoning_content"] = limits.text(message.reasoning_content, f"{param}.reasoning_content")
    if message.tool_calls:
        if message.role != "assistant":
            raise ParamError(f"{param}.tool_calls", f"{param} has tool_calls, which only the assistant makes")
        made["content"] = content or None
        made["tool_calls"] = [_call(call, f"{param}.tool_calls[{k}]") for k, call in enumerate(message.tool_calls)]
        limits.tree(made["tool_calls"], bounds, f"{param}.tool_calls")
    if message.role == "tool":
        made["tool_call_id"] = limits.text(message.tool_call_id or "", f"{param}.tool_call_id")
    return made


def _content(content: str | Sequence[ContentPart] | None, param: str) -> str | None:
    if content is None or isinstance(content, str):
        return content if content is None else limits.text(content, param)
    texts = []
    for k, part in enumerate(content):
        if part.type in ("image_url", "input_audio", "file", "video_url"):
            raise ParamError(
                f"{param}[{k}]", f"{param}[{k}] is of the type {part.type}", "this server reads text alone",
                "unsupported_content",
            )  # fmt: skip
        if part.type not in ("text", "refusal") or not (isinstance(part.text, str) or part.type == "refusal"):
            raise ParamError(f"{param}[{k}]", f"{param}[{k}] is no text", 'write {"type": "text", "text": "..."}')
        texts.append(limits.text(part.text or "", f"{param}[{k}].text"))
    return "\n".join(texts)


def _call(call: Any, param: str) -> dict[str, Any]:
    arguments = call.function.arguments
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    if not arguments.strip():
        arguments = "{}"
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        raise ParamError(f"{param}.function.arguments", f"{param}.function.arguments is not JSON text") from None
    function = {"name": call.function.name, "arguments": arguments}
    return {"id": call.id or "", "type": "function", "function": function}


def tools_of(
    tools: Sequence[Tool] | None, choice: str | NamedTool | None, bounds: Bounds
) -> tuple[list[dict[str, Any]], str, str | None]:
    """The tools, how to choose among them, and the one that was chosen by name. Raises `ParamError`."""
    made: list[dict[str, Any]] = []
    for k, tool in enumerate(tools or ()):
        function = tool.function
        parameters = {} if function.parameters is None else function.parameters
        limits.schema(parameters, bounds, f"tools[{k}].function.parameters")
        fields = {"name": function.name, "description": function.description or "", "parameters": parameters}
        limits.tree(fields, bounds, f"tools[{k}].function")
        made.append({"type": "function", "function": fields})
    if len(made) > bounds.tools:
        raise ParamError("tools", f"there are {len(made)} tools; it is at most {bounds.tools}")
    names = [tool["function"]["name"] for tool in made]
    if len(set(names)) != len(names):
        raise ParamError("tools", "two tools have the same name")
    if isinstance(choice, NamedTool):
        name = choice.function.name
        if name not in names:
            raise ParamError("tool_choice", f"tool_choice names {name[:64]!r}, which is none of the tools")
        return [made[names.index(name)]], "required", name
    if choice == "required" and not made:
        raise ParamError("tool_choice", "a tool call is required, and there are no tools")
    return made, choice or "auto", None


def constraint(body: ChatCompletionRequest, bounds: Bounds) -> tuple[dict[str, Any] | None, str | None]:
    """The JSON schema or the grammar of the answer. Raises `ParamError`, also for both."""
    grammar = limits.grammar(body.grammar, bounds)
    schemas = [
        format_schema(body.response_format, bounds),
        None if body.json_schema is None else limits.schema(body.json_schema, bounds, "json_schema"),
    ]
    given = [schema for schema in schemas if schema is not None]
    if len(given) + (grammar is not None) > 1:
        raise ParamError("response_format", "response_format, json_schema and grammar exclude each other")
    return (given[0] if given else None), grammar


def format_schema(wanted: ResponseFormat | None, bounds: Bounds) -> dict[str, Any] | None:
    """The schema that a response format asks for; None for text."""
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        # an empty schema would allow texts and numbers as well
        return limits.schema(wanted.schema_ or ANY_OBJECT, bounds, "response_format.schema")
    inner = wanted.json_schema
    found = wanted.schema_ if inner is None else inner.schema_
    if found is None:
        param = "response_format.json_schema.schema"
        raise ParamError(param, f"{param} is missing", 'write {"type": "json_schema", "json_schema": {"schema": {}}}')
    return limits.schema(found, bounds, "response_format.json_schema.schema")
