"""Chat completions: from OpenAI's arguments to a `ChatRequest`, and from the updates of an engine to dicts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localspec.chat_format.api import ChatRequest, Delta, ReasoningFormat, ReplyReader, ToolCall
from localspec.dropin import logprobs
from localspec.dropin.calls import ChatCall, grammar_text
from localspec.dropin.errors import CallError
from localspec.dropin.report import report
from localspec.errors import EngineError
from localspec.serving.api import Ended, TokenLogprob, Update, Written


def chat_request(call: ChatCall, reasoning_format: ReasoningFormat) -> ChatRequest:
    """The conversation of a call. Raises `CallError` for choices that contradict each other."""
    functions = [{"type": "function", "function": function} for function in call.functions or ()]
    tools, choice, function = _choice(call, [*(call.tools or ()), *functions])
    schema, grammar = _schema(call.response_format), grammar_text(call.grammar)
    if schema is not None and grammar is not None:
        raise CallError("grammar and response_format exclude each other", "give one of them")
    return ChatRequest(
        messages=call.messages,
        tools=tools,
        tool_choice=choice,
        function=function,
        json_schema=schema,
        grammar=grammar,
        reasoning_format=reasoning_format,
    )


Tools = Sequence[Mapping[str, Any]]


def _choice(call: ChatCall, tools: Tools) -> tuple[Tools, str, str | None]:
    """The tools that may be called, how to choose among them, and the name of the one that must be."""
    given = call.tool_choice if call.tool_choice is not None else call.function_call
    if given is None or isinstance(given, str):
        if given not in (None, "auto", "none", "required"):
            raise CallError(f"tool_choice is {given!r}", 'one of "auto", "none", "required", or the function to call')
        if given == "required" and not tools:
            raise CallError("a tool call is required, and there are no tools")
        return tools, given or "auto", None
    name = given.get("name") or (given.get("function") or {}).get("name")
    named = [tool for tool in tools if tool["function"]["name"] == name]
    if not named:
        raise CallError(f"tool_choice names {name!r}, which is not among the tools")
    return named, "required", name


def _schema(response_format: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    kind = "text" if response_format is None else response_format.get("type")
    if response_format is None or kind == "text":
        return None
    if kind == "json_object":
        return response_format.get("schema") or {"type": "object"}
    if kind == "json_schema":
        schema = (response_format.get("json_schema") or {}).get("schema")
        if isinstance(schema, Mapping):
            return schema
        raise CallError("response_format has no json_schema.schema")
    raise CallError(f"response_format has the type {kind!r}", "one of text, json_object, json_schema")


@dataclass(frozen=True, slots=True)
class Chat:
    """What all dicts of one chat completion share.

    `legacy` tells calls as `function_call` as well, for those who asked by `functions`. `requested` is the speculation
    that was asked for.
    """

    model: str
    reader: ReplyReader
    with_logprobs: bool
    legacy: bool
    requested: str | None
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4()}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, updates: Iterable[Update]) -> dict[str, Any]:
        """The whole reply as one dict."""
        tokens: list[TokenLogprob] = []
        for update in updates:
            if isinstance(update, Written):
                self.reader.feed(update.text)
                tokens += update.logprobs
            elif isinstance(update, Ended):
                self.reader.finish()
                choice = {
                    "index": 0,
                    "message": self._message(),
                    "logprobs": logprobs.of_chat(tokens) if self.with_logprobs else None,
                    "finish_reason": self._reason(update),
                }
                return self._dict("chat.completion", choice, **report(update, self.requested))
        raise EngineError("the engine left the answer without an end")

    def _message(self) -> dict[str, Any]:
        reply = self.reader.reply
        message: dict[str, Any] = {"role": "assistant", "content": reply.content}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.tools:
            message["content"] = reply.content or None
            message["tool_calls"] = [_tool_call(tool) for tool in reply.tools]
            if self.legacy:
                first = reply.tools[0]
                message["function_call"] = {"name": first.name, "arguments": first.arguments}
        return message

    def _reason(self, ended: Ended) -> str:
        return "tool_calls" if self.reader.reply.tools and ended.reason == "stop" else ended.reason

    def stream(self, updates: Iterable[Update]) -> Iterator[dict[str, Any]]:
        """A dict with the role, one for each piece of the reply, and one for the end."""
        yield self._chunk({"role": "assistant"})
        for update in updates:
            if isinstance(update, Written):
                yield from self._pieces(self.reader.feed(update.text), update.logprobs)
            elif isinstance(update, Ended):
                yield from self._pieces(self.reader.finish(), ())
                yield self._chunk({}, reason=self._reason(update), **report(update, self.requested))
                return
        raise EngineError("the engine left the answer without an end")

    def _pieces(self, deltas: Sequence[Delta], tokens: Sequence[TokenLogprob]) -> Iterator[dict[str, Any]]:
        told = logprobs.of_chat(tokens) if tokens else None
        pieces = [piece for delta in deltas for piece in self._told(delta)] or ([{}] if told else [])
        for i, piece in enumerate(pieces):
            yield self._chunk(piece, told if i == 0 else None)

    def _told(self, delta: Delta) -> Iterator[dict[str, Any]]:
        if delta.reasoning:
            yield {"reasoning_content": delta.reasoning}
        if delta.content:
            yield {"content": delta.content}
        if tool := delta.tool:
            called: dict[str, Any] = {"index": tool.index}
            if tool.id is not None:
                called |= {"id": tool.id, "type": "function"}
            function = {"name": tool.name} if tool.name is not None else {}
            called["function"] = {**function, "arguments": tool.arguments}
            piece: dict[str, Any] = {"tool_calls": [called]}
            if self.legacy and tool.index == 0:
                piece["function_call"] = called["function"]
            yield piece

    def _chunk(
        self, delta: dict[str, Any], told: dict[str, Any] | None = None, reason: str | None = None, **more: Any
    ) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": told, "finish_reason": reason}
        return self._dict("chat.completion.chunk", choice, **more)

    def _dict(self, kind: str, choice: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": [choice],
            **more,
        }


def _tool_call(tool: ToolCall) -> dict[str, Any]:
    return {"id": tool.id, "type": "function", "function": {"name": tool.name, "arguments": tool.arguments}}
