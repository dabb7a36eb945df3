"""From Anthropic's messages to the conversation that chat formats know, which is OpenAI's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from localspec.chat_format.api import ChatRequest
from localspec.server.anthropic.schemas import Block, CountRequest, Message, Tool
from localspec.server.errors import ParamError
from localspec.server.fields import unknown

#: what cannot be had here, and would change the answer
_REFUSED = {"container": "nothing is run here", "mcp_servers": "tools of other servers are not called"}
#: what changes nothing: how Anthropic caches, bills and routes
_NOTHING = frozenset(
    ("cache_control", "service_tier", "inference_geo", "speed", "diagnostics", "user_profile_id", "workspace_id")
)
#: levels of effort that templates know
_EFFORTS = {"xhigh": "high", "max": "high"}


def warnings(request: CountRequest) -> tuple[str, ...]:
    """What was asked for and will not be, as far as the answer depends on it. Raises `ParamError` as `unknown` does."""
    for name, reason in _REFUSED.items():
        if (request.model_extra or {}).get(name):
            raise ParamError(name, f"{name} is not supported: {reason}")
    told = unknown({name: value for name, value in (request.model_extra or {}).items() if name not in _NOTHING})
    if request.thinking and request.thinking.budget_tokens:
        told += ("thinking.budget_tokens was ignored: thoughts end by themselves, or with max_tokens",)
    return told


def chat(request: CountRequest) -> ChatRequest:
    """The conversation. Raises `ParamError` for what cannot be had here, such as images."""
    tools, choice, function = _tools(request)
    wanted = request.tool_choice
    prefilled = request.messages[-1].role == "assistant"
    thinking = request.thinking
    effort = request.output_config.effort if request.output_config else None
    return ChatRequest(
        messages=_merged(_openai(request)),
        tools=tools,
        tool_choice=choice,
        function=function,
        parallel_tool_calls=not (wanted and wanted.disable_parallel_tool_use),
        json_schema=_schema(request),
        enable_thinking=thinking is not None and thinking.type != "disabled",
        add_generation_prompt=not prefilled,
        continue_final_message=prefilled,
        template_values={"reasoning_effort": _EFFORTS.get(effort, effort)} if effort else {},
    )


def _tools(request: CountRequest) -> tuple[list[dict[str, Any]], str, str | None]:
    """The tools, how to choose among them, and the one that was chosen by name."""
    tools = [_tool(tool, i) for i, tool in enumerate(request.tools or ())]
    wanted = request.tool_choice
    if wanted is None or wanted.type in ("auto", "none"):
        return tools, wanted.type if wanted else "auto", None
    if wanted.type == "any":
        if not tools:
            raise ParamError("tool_choice", "a tool call is required, and there are no tools")
        return tools, "required", None
    named = [tool for tool in tools if tool["function"]["name"] == wanted.name]
    if not named:
        raise ParamError("tool_choice.name", f"there is no tool {(wanted.name or '')[:64]!r} among the tools")
    return named[:1], "required", wanted.name


def _schema(request: CountRequest) -> dict[str, Any] | None:
    config = request.output_config
    format = (config and config.format) or request.output_format
    return format.json_schema if format else None


def _tool(tool: Tool, i: int) -> dict[str, Any]:
    if tool.type not in (None, "custom"):
        raise ParamError(f"tools[{i}].type", f"the tool {tool.type} would run at Anthropic's", "give tools of your own")
    if tool.input_schema is None:
        raise ParamError(f"tools[{i}].input_schema", f"the tool {tool.name} has no input_schema")
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _openai(request: CountRequest) -> Iterator[dict[str, Any]]:
    system = request.system
    if system:
        text = system if isinstance(system, str) else _text(system, "system")
        yield {"role": "system", "content": text}
    for i, message in enumerate(request.messages):
        if isinstance(message.content, str):
            yield {"role": message.role, "content": message.content}
        elif message.role == "assistant":
            yield _assistant(message.content, f"messages[{i}].content", last=i == len(request.messages) - 1)
        else:
            yield from _user(message, f"messages[{i}].content")


def _merged(messages: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with turns of one role made one, as Anthropic does; templates refuse the others."""
    made: list[dict[str, Any]] = []
    for message in messages:
        before = made[-1] if made else None
        if before is None or before["role"] != message["role"] or message["role"] == "tool":
            made.append(message)
            continue
        before["content"] = "\n\n".join(text for text in (before["content"], message["content"]) if text)
        calls = [*before.get("tool_calls", ()), *message.get("tool_calls", ())]
        if calls:
            before["tool_calls"] = calls
    return made


def _text(blocks: Sequence[Block], where: str) -> str:
    """The text of blocks that can only be text. Raises `ParamError` for others."""
    return "\n".join(_one_text(block, f"{where}[{i}]") for i, block in enumerate(blocks))


def _one_text(block: Block, where: str) -> str:
    if block.type == "text":
        return block.text or ""
    source = block.source or {}
    if block.type == "document" and source.get("type") == "text" and isinstance(source.get("data"), str):
        return str(source["data"])
    raise ParamError(f"{where}.type", f"content of the type {block.type!r} cannot be read here", "send text only")


def _user(message: Message, where: str) -> Iterator[dict[str, Any]]:
    """Results of tools are messages of their own, in between the texts."""
    texts: list[str] = []
    blocks = message.content if isinstance(message.content, list) else []
    for i, block in enumerate(blocks):
        if block.type != "tool_result":
            texts.append(_one_text(block, f"{where}[{i}]"))
            continue
        if texts:
            yield {"role": message.role, "content": "\n".join(texts)}
            texts = []
        content = block.content or ""
        text = content if isinstance(content, str) else _text(content, f"{where}[{i}].content")
        yield {
            "role": "tool",
            "tool_call_id": block.tool_use_id or "",
            "content": f"Error: {text}" if block.is_error else text,
        }
    if texts or not blocks:
        yield {"role": message.role, "content": "\n".join(texts)}


def _assistant(blocks: Sequence[Block], where: str, *, last: bool) -> dict[str, Any]:
    texts, thoughts, calls = [], [], []
    for i, block in enumerate(blocks):
        if block.type == "tool_use":
            arguments = json.dumps(block.input or {}, ensure_ascii=False)
            function = {"name": block.name or "", "arguments": arguments}
            calls.append({"id": block.id or f"toolu_{i}", "type": "function", "function": function})
        elif block.type == "thinking":
            thoughts.append(block.thinking or "")
        elif block.type != "redacted_thinking":
            texts.append(_one_text(block, f"{where}[{i}]"))
    if calls and last:
        raise ParamError(where, "the conversation ends with a call of a tool", "add the tool_result")
    message: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts)}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message
