"""A chat format for tests: `«thoughts»`, and calls of tools as `⟨name|arguments⟩`; all else is content."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from localspec.chat_format.api import ChatPrompt, ChatRequest, Delta, Reply, ToolCall, ToolDelta
from tests.server.client import Client
from tests.server.fake import FakeEngine, FakeFormat, Script


class MarkedFormat(FakeFormat):
    """Remembers what was `asked`."""

    def __init__(self) -> None:
        self.asked: list[ChatRequest] = []

    def apply(self, request: ChatRequest) -> ChatPrompt:
        self.asked.append(request)
        pairs = zip([None, *request.messages], request.messages, strict=False)
        # results of several calls follow each other
        messages = [this for before, this in pairs if not (before and before["role"] == this["role"] == "tool")]
        return super().apply(replace(request, messages=messages))

    def reader(self, prompt: ChatPrompt) -> Any:
        return MarkedReader()


class MarkedReader:
    def __init__(self) -> None:
        self._state = "content"
        self._content = self._reasoning = self._name = ""
        self._calls: list[tuple[str, str]] = []

    @property
    def reply(self) -> Reply:
        calls = [ToolCall(f"call_{i}", name, arguments) for i, (name, arguments) in enumerate(self._calls)]
        return Reply(self._content, self._reasoning, tuple(calls))

    def feed(self, text: str) -> list[Delta]:
        return [delta for char in text for delta in self._one(char)]

    def finish(self) -> list[Delta]:
        return []

    def _one(self, char: str) -> list[Delta]:
        if char in "«»⟨⟩" or (char, self._state) == ("|", "name"):
            started = self._state == "name"
            self._state = {"«": "reasoning", "⟨": "name", "|": "arguments"}.get(char, "content")
            if started:
                self._calls.append((self._name, ""))
                index, name, self._name = len(self._calls) - 1, self._name, ""
                return [Delta(tool=ToolDelta(index, f"call_{index}", name))]
            return []
        if self._state == "name":
            self._name += char
            return []
        if self._state == "arguments":
            name, arguments = self._calls[-1]
            self._calls[-1] = (name, arguments + char)
            return [Delta(tool=ToolDelta(len(self._calls) - 1, arguments=char))]
        if self._state == "reasoning":
            self._reasoning += char
            return [Delta(reasoning=char)]
        self._content += char
        return [Delta(content=char)]


def marked(script: Script | str = "", **options: Any) -> tuple[Client, MarkedFormat]:
    """A client of an engine that writes `script`, and the format that reads it."""
    engine = FakeEngine(script=(lambda prompt: script) if isinstance(script, str) else script, **options)
    form = MarkedFormat()
    engine.chat = form
    return Client(engine), form
