"""From a request of the Responses API to an `Ask`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from localspec.chat_format.api import ChatRequest
from localspec.server import fields, limits
from localspec.server.answers import Ask
from localspec.server.errors import ParamError
from localspec.server.fields import Lenient, MaxTokens, SamplingFields, Whole
from localspec.server.openai import requests
from localspec.server.openai.conversation import format_schema, message_of, tools_of
from localspec.server.openai.requests import CalledFunction, CalledTool, Message, Name
from localspec.server.settings import Bounds, Settings
from localspec.serving.api import MAX_TOP_LOGPROBS

LOGPROBS = "message.output_text.logprobs"
_TEXTS = ("input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text")
#: fields that would need a server that remembers, and what to send instead
_REMEMBERED = {
    "previous_response_id": "send the whole conversation as input",
    "conversation": "send the whole conversation as input",
    "prompt": "send the text itself as instructions and input",
    "background": "leave it out, and wait for the answer or stream it",
}


class InputPart(Lenient):
    type: str
    text: str | None = None
    refusal: str | None = None


class InputItem(Lenient):
    """A message, a call of a function, what it returned, or thoughts."""

    type: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None


class ResponseTool(Lenient):
    type: str
    name: str | None = Field(None, min_length=1, max_length=256)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedTool(Lenient):
    type: str
    name: str | None = None


class TextFormat(Lenient):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextOptions(Lenient):
    format: TextFormat | None = None


class Reasoning(Lenient):
    effort: str | None = Field(None, max_length=32)
    summary: str | None = None


class ResponseRequest(SamplingFields):
    """A conversation to go on with. Nothing is stored: `store` and `previous_response_id` have no use here."""

    model: Name | None = None
    input: str | list[InputItem]
    instructions: str | None = None
    max_output_tokens: MaxTokens | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[Whole, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    stream: bool | None = None
    store: bool | None = None
    truncation: Literal["disabled", "auto"] | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None


def ask_of(body: ResponseRequest, settings: Settings) -> Ask:
    """What a request asks for. Raises `ParamError`."""
    bounds = settings.bounds
    for name, way_out in _REMEMBERED.items():
        if (body.model_extra or {}).get(name):
            raise ParamError(name, f"{name} needs a server that stores answers", way_out, "unsupported_parameter")
    limits.tree(body.metadata or {}, bounds, "metadata")
    if body.truncation == "auto":
        raise ParamError("truncation", "nothing is left out of a conversation unasked", "shorten it yourself")
    warnings = list(body.warnings())
    if body.store:
        warnings.append("store: answers are not stored here")
    method, accept = body.speculate()
    logprobs = LOGPROBS in (body.include or ()) or body.top_logprobs is not None
    return Ask(
        prompts=[_chat_request(body, bounds, warnings)],
        model=body.model,
        sampling=body.sampling(settings.sampling, bounds),
        max_tokens=fields.max_tokens(body.max_output_tokens, bounds=bounds, param="max_output_tokens"),
        method=method,
        accept=accept,
        top_logprobs=(body.top_logprobs or 0) if logprobs else None,
        ignore_eos=bool(body.ignore_eos),
        cache_prompt=body.cache_prompt is not False,
        warnings=tuple(warnings),
    )


def _chat_request(body: ResponseRequest, bounds: Bounds, warnings: list[str]) -> ChatRequest:
    messages = [] if not body.instructions else [Message(role="system", content=body.instructions)]
    given = [InputItem(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    if not given:
        raise ParamError("input", "input is empty")
    messages += _messages(given)
    if len(messages) > bounds.messages:
        raise ParamError("input", f"there are {len(messages)} items; it is at most {bounds.messages}")
    tools, choice, function = tools_of(_tools(body.tools or (), warnings), _choice(body.tool_choice), bounds)
    wanted = body.text.format if body.text else None
    schema = None
    if wanted is not None and wanted.type != "text":
        fields_ = {"type": wanted.type, "schema": wanted.schema_}
        schema = format_schema(requests.ResponseFormat.model_validate(fields_), bounds)
    effort = limits.text(body.reasoning.effort or "", "reasoning.effort") if body.reasoning else None
    return ChatRequest(
        messages=[message_of(message, f"input[{i}]", bounds) for i, message in enumerate(messages)],
        tools=tools,
        tool_choice=choice,
        function=function,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        json_schema=schema or (body.json_schema and limits.schema(body.json_schema, bounds, "json_schema")),
        grammar=limits.grammar(body.grammar, bounds),
        enable_thinking=effort != "none",
        template_values={"reasoning_effort": effort} if effort else {},
    )


def _messages(items: Sequence[InputItem]) -> list[Message]:
    """The items as messages: calls join the message of the assistant that they follow."""
    messages: list[Message] = []
    thoughts = ""
    for i, item in enumerate(items):
        kind = item.type or ("message" if item.role else "")
        if kind == "reasoning":
            thoughts = _joined(item.content, f"input[{i}].content")
        elif kind == "message" and item.role is not None:
            text = _joined(item.content, f"input[{i}].content")
            messages.append(Message(role=item.role, content=text))
            if item.role == "assistant" and thoughts:
                messages[-1].reasoning_content, thoughts = thoughts, ""
        elif kind == "function_call" and item.name:
            call = CalledTool(id=item.call_id, function=CalledFunction(name=item.name, arguments=item.arguments))
            if not messages or messages[-1].role != "assistant":
                messages.append(Message(role="assistant", reasoning_content=thoughts or None))
                thoughts = ""
            messages[-1].tool_calls = [*(messages[-1].tool_calls or []), call]
        elif kind == "function_call_output":
            text = _joined(item.output, f"input[{i}].output")
            messages.append(Message(role="tool", content=text, tool_call_id=item.call_id))
        else:
            raise ParamError(f"input[{i}]", f"input[{i}] of the type {kind[:64]!r} cannot be read here")
    return messages


def _joined(content: str | Sequence[InputPart] | None, param: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for k, part in enumerate(content):
        if part.type not in _TEXTS:
            raise ParamError(
                f"{param}[{k}]", f"{param}[{k}] is of the type {part.type[:64]}", "this server reads text alone",
                "unsupported_content",
            )  # fmt: skip
        texts.append(part.text or part.refusal or "")
    return "\n".join(texts)


def _tools(tools: Sequence[ResponseTool], warnings: list[str]) -> list[requests.Tool]:
    """Those that are functions; others would be run by the server, which runs none."""
    made = []
    for k, tool in enumerate(tools):
        if tool.type != "function":
            warnings.append(f"tools[{k}]: {tool.type[:64]} is not run here and was left out")
            continue
        if tool.name is None:
            raise ParamError(f"tools[{k}].name", f"tools[{k}] has no name")
        function = requests.Function(name=tool.name, description=tool.description, parameters=tool.parameters)
        made.append(requests.Tool(type="function", function=function))
    return made


def _choice(choice: str | NamedTool | None) -> str | requests.NamedTool | None:
    if not isinstance(choice, NamedTool):
        return choice
    if choice.type != "function" or not choice.name:
        raise ParamError("tool_choice", f"tool_choice of the type {choice.type[:64]!r} cannot be done here")
    return requests.NamedTool(type="function", function=requests.NamedFunction(name=choice.name))
