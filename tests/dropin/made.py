"""Engines of tests: `localspec.Llama` over the fake one, and a chat format with tool calls and thoughts."""

from __future__ import annotations

from typing import Any

from localspec import Llama
from localspec.chat_format.api import ChatPrompt, ChatRequest, Delta, Reply, ToolCall, ToolDelta
from tests.server.fake import FakeEngine, Script, echo


def llama(script: Script = echo, engine: FakeEngine | None = None, **options: Any) -> Llama:
    """A `Llama` whose prompts are bytes, and which writes what `script` says."""
    return Llama("fake.gguf", engine=engine or FakeEngine(script=script), **options)


def text_of(chunks: list[dict[str, Any]]) -> str:
    """The text of streamed completions."""
    return "".join(chunk["choices"][0]["text"] for chunk in chunks)


class ToolFormat:
    """Keeps the requests; every reply is a thought, a word, and a call of the first tool if there is one."""

    def __init__(self, grammar: str | None = None, stops: tuple[str, ...] = ()) -> None:
        self.asked: list[ChatRequest] = []
        self._grammar, self._stops = grammar, stops

    def apply(self, request: ChatRequest) -> ChatPrompt:
        self.asked.append(request)
        name = request.tools[0]["function"]["name"] if request.tools else None
        return ChatPrompt("prompt", grammar=self._grammar, preserved=frozenset({7}), stops=self._stops, state=name)

    def reader(self, prompt: ChatPrompt) -> ToolReader:
        return ToolReader(prompt.state)


class ToolReader:
    def __init__(self, name: str | None) -> None:
        self._name = name
        self._text = ""
        self.reply = Reply()

    def feed(self, text: str) -> list[Delta]:
        self._text += text
        return []

    def finish(self) -> list[Delta]:
        deltas = [Delta(reasoning="hm"), Delta(content="Well.")]
        tools: tuple[ToolCall, ...] = ()
        if self._name is not None:
            tools = (ToolCall("call_1", self._name, '{"city": "Oslo"}'),)
            pieces = [
                ToolDelta(0, "call_1", self._name),
                ToolDelta(0, arguments='{"city": '),
                ToolDelta(0, arguments='"Oslo"}'),
            ]
            deltas += [Delta(tool=piece) for piece in pieces]
        self.reply = Reply("Well.", "hm", tools)
        return deltas
