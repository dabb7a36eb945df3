"""The messages of a request, as chat formats take them: checked, and with texts alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from localspec.chat_format.api import ChatRequest
from localspec.errors import UsageError

#: bytes; a name is part of a grammar's rules
_MAX_TOOL_NAME = 128
_RESERVED = frozenset(("messages", "tools", "add_generation_prompt", "bos_token", "eos_token"))


def messages_of(request: ChatRequest) -> list[dict[str, Any]]:
    """The messages, with one text as content each. Raises `UsageError`, for content that is no text as well."""
    if not request.messages:
        raise UsageError("there are no messages")
    return [_message(message, f"messages[{i}]") for i, message in enumerate(request.messages)]


def tools_of(request: ChatRequest) -> tuple[list[dict[str, Any]], str]:
    """The tools that may be called, and "auto", "required" or "none". Raises `UsageError`."""
    tools = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(request.tools)]
    names = [tool["function"]["name"] for tool in tools]
    choice, function = request.tool_choice, request.function
    if function is None and choice not in ("auto", "none", "required"):
        function = choice
    if function is not None:
        if function not in names:
            raise UsageError(f"tool_choice names {function[:64]!r}, which is none of the tools")
        return [tools[names.index(function)]], "required"
    if choice == "required" and not tools:
        raise UsageError("a tool call is required, and there are no tools")
    return tools, choice


def text_of(content: Any, where: str) -> str:
    """The text of a message: the parts of a list joined by newlines, none for None. Raises `UsageError`."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        raise UsageError(f"{where}.content is neither a text nor a list of parts")
    texts = []
    for i, part in enumerate(content):
        if isinstance(part, Mapping) and part.get("type") not in (None, "text"):
            raise UsageError(f"{where}.content[{i}] is of the type {part['type']!r}", "localspec reads text alone")
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            raise UsageError(f"{where}.content[{i}] has no text")
        texts.append(text)
    return "\n".join(texts)


def _message(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise UsageError(f"{where} has no role")
    made: dict[str, Any] = {"role": message["role"], "content": text_of(message.get("content"), where)}
    for key in ("name", "tool_call_id", "reasoning_content"):
        value = message.get(key)
        if value is not None:
            if not isinstance(value, str):
                raise UsageError(f"{where}.{key} is no text")
            made[key] = value
    calls = message.get("tool_calls")
    if calls:
        made["tool_calls"] = [_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
    return made


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise UsageError(f"{where}.function has no name")
    arguments = function.get("arguments")
    try:
        if not isinstance(arguments, str):
            arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
        elif arguments.strip():
            json.loads(arguments)
        else:
            arguments = "{}"
    except (TypeError, ValueError, RecursionError):
        raise UsageError(f"{where}.function.arguments is not JSON") from None
    made = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
    return {**made, "id": call["id"]} if isinstance(call.get("id"), str) and call["id"] else made


def _tool(tool: Any, where: str) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or tool.get("type", "function") != "function":
        raise UsageError(f"{where} is no function", 'a tool is {"type": "function", "function": {"name": ...}}')
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not name or len(name.encode("utf-8", "replace")) > _MAX_TOOL_NAME:
        raise UsageError(f"{where}.function.name is no name of 1 to {_MAX_TOOL_NAME} bytes")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise UsageError(f"{where}.function.parameters is no JSON schema")
    fields = {"name": name, "description": str(function.get("description") or ""), "parameters": parameters or {}}
    return {"type": "function", "function": fields}


def values_of(request: ChatRequest) -> dict[str, Any]:
    """What the template gets beside the messages. Raises `UsageError` for names that have a meaning of their own."""
    if reserved := _RESERVED & request.template_values.keys():
        raise UsageError(f"chat_template_kwargs cannot set {', '.join(sorted(reserved))}")
    return dict(request.template_values)


def schema_of(schema: Any) -> dict[str, Any]:
    """The schema of an answer. An empty one is any object: a text or a number is not what is meant by JSON."""
    if not isinstance(schema, Mapping):
        raise UsageError("json_schema is no object")
    return dict(schema) or {"type": "object"}
