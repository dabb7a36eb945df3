"""A model on this machine as the `llm` command sees it; see `localspec.llm_plugin`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import llm
from llm.parts import AttachmentPart, Message, ReasoningPart, StreamEvent, TextPart, ToolCallPart, ToolResultPart
from llm.utils import simplify_usage_dict
from pydantic import Field

if TYPE_CHECKING:
    from localspec.dropin.llama import Llama

PREFIX = "localspec/"


class LocalspecModel(llm.Model):
    """A model on this machine, loaded when it is first asked and kept."""

    can_stream = True
    supports_schema = True
    supports_tools = True

    class Options(llm.Options):
        temperature: float | None = Field(None, description="0 takes the likeliest token; 0.8 if not given", ge=0)
        max_tokens: int | None = Field(None, description="The most tokens to write", ge=1)
        top_p: float | None = Field(None, description="Share of probability that is drawn from", ge=0, le=1)
        top_k: int | None = Field(None, description="How many tokens are drawn from, 0 for all", ge=0)
        min_p: float | None = Field(None, description="Least probability, relative to the likeliest", ge=0, le=1)
        repeat_penalty: float | None = Field(None, description="More than 1 keeps from repeating", gt=0)
        seed: int | None = Field(None, description="The same seed gives the same text")
        speculation: str | None = Field(None, description="auto, off, entmtp, ptd, fly, lookup or draft")
        n_ctx: int | None = Field(None, description="Tokens of context; 8192 if not given", ge=1)

    def __init__(self, name: str) -> None:
        self.model_id = PREFIX + name
        self._name = name
        self._lock = threading.Lock()
        self._llama: Llama | None = None
        self._n_ctx: int | None = None

    def _loaded(self, n_ctx: int | None) -> Llama:
        from localspec.dropin.llama import Llama

        with self._lock:
            if self._llama is None or n_ctx != self._n_ctx:
                if self._llama is not None:
                    self._llama.close()
                self._llama = Llama(self._name, n_ctx=n_ctx, n_gpu_layers=-1)
                self._n_ctx = n_ctx
            return self._llama

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: llm.Conversation | None
    ) -> Iterator[str | StreamEvent]:
        """Write the reply to `prompt`, whose messages are the whole conversation."""
        arguments = {"temperature": 0.8, **{key: value for key, value in prompt.options if value is not None}}
        llama = self._loaded(arguments.pop("n_ctx", None))
        if prompt.schema:
            arguments["response_format"] = {"type": "json_schema", "json_schema": {"schema": prompt.schema}}
        if prompt.tools:
            arguments["tools"] = [_tool(tool) for tool in prompt.tools]
        calls: dict[int, dict[str, str]] = {}
        messages = [each for message in prompt.messages for each in _messages(message)]
        for chunk in llama.create_chat_completion(messages, stream=True, **arguments):
            yield from _events(chunk["choices"][0]["delta"], calls)
            if "usage" in chunk:
                _finish(response, chunk)
        for call in calls.values():
            given = json.loads(call["arguments"] or "{}")
            response.add_tool_call(llm.ToolCall(name=call["name"], arguments=given, tool_call_id=call["id"]))


def _tool(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _messages(message: Message) -> Iterator[dict[str, Any]]:
    """A message of llm as those of OpenAI's API."""
    text, calls = [], []
    for part in message.parts:
        if isinstance(part, TextPart):
            text.append(part.text)
        elif isinstance(part, ToolCallPart):
            function = {"name": part.name, "arguments": json.dumps(part.arguments)}
            calls.append({"id": part.tool_call_id, "type": "function", "function": function})
        elif isinstance(part, ToolResultPart):
            content = part.exception or part.output
            yield {"role": "tool", "tool_call_id": part.tool_call_id, "name": part.name, "content": content}
        elif isinstance(part, AttachmentPart):
            raise llm.ModelError("localspec reads text, no attachments")
        elif not isinstance(part, ReasoningPart):
            raise llm.ModelError(f"localspec cannot read a {type(part).__name__}")
    if text or calls:
        told: dict[str, Any] = {"role": message.role, "content": "\n".join(text)}
        yield {**told, "tool_calls": calls} if calls else told


def _events(delta: dict[str, Any], calls: dict[int, dict[str, str]]) -> Iterator[str | StreamEvent]:
    """A piece of the reply as llm's events; tool calls are gathered in `calls` by their index."""
    if delta.get("reasoning_content"):
        yield StreamEvent(type="reasoning", chunk=delta["reasoning_content"])
    if delta.get("content"):
        yield delta["content"]
    for piece in delta.get("tool_calls", ()):
        function = piece["function"]
        call = calls.setdefault(piece["index"], {"id": piece.get("id"), "name": "", "arguments": ""})
        if function.get("name"):
            call["name"] += function["name"]
            yield StreamEvent(type="tool_call_name", chunk=function["name"], tool_call_id=call["id"])
        if function["arguments"]:
            call["arguments"] += function["arguments"]
            yield StreamEvent(type="tool_call_args", chunk=function["arguments"], tool_call_id=call["id"])


def _finish(response: llm.Response, chunk: dict[str, Any]) -> None:
    usage = dict(chunk["usage"])
    n_prompt, n_tokens = usage.pop("prompt_tokens"), usage.pop("completion_tokens")
    del usage["total_tokens"]
    response.set_usage(input=n_prompt, output=n_tokens, details=simplify_usage_dict(usage))
    response.response_json = {
        "finish_reason": chunk["choices"][0]["finish_reason"],
        "speculation": chunk["speculation"],
        "timings": chunk["timings"],
    }
