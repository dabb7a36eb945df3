"""A model that does what the last message says, so that a client can be led into whatever it has to cope with."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

from localspec.chat_format.api import ChatPrompt, ChatRequest, Delta, Reply, ToolCall, ToolDelta
from localspec.errors import EngineError, LocalspecError, UsageError
from localspec.serving.api import BusyError, Request
from tests.server.fake import FakeEngine, FakeFormat, FakeGeneration

#: what readers of lines and decoders of UTF-8 stumble over: separators that are not newlines, characters of four bytes
UNUSUAL = (
    "a\u2028b\u2029c\x85d | \U0001f469\u200d\U0001f469\u200d\U0001f467 | \u0e44\u0e17\u0e22 | e\u0301 | \"\\\r\n\t'"
)

#: the last message -> what is written after it; a message "say ..." is answered by what follows the word
SCRIPTS: dict[str, Sequence[str | LocalspecError]] = {
    "call the weather": ['<call weather>{"city": "Paris"}</call>'],
    "call both": ['Two calls.<call weather>{"city": "Paris"}</call><call weather>{"city": "Oslo"}</call>'],
    "think": ["<think>Two and two.</think>4"],
    "describe a person": ['{"name": "Ada", "age": 36}'],
    "count": ["one two three four five six seven eight nine ten"],
    "break": ["Half of ", EngineError("the machine broke")],
    "unusual": [UNUSUAL],
}


def script(prompt: str) -> Sequence[str | LocalspecError]:
    """What is written after a prompt of `ScriptedFormat`, or after a text."""
    lines = [line for line in prompt.splitlines() if line.strip(" >")]
    role, _, said = lines[-1].rpartition(": ")
    if role == "tool":
        return [f"It has {said}."]
    if said.startswith(("say ", "busy ")):
        return [said.partition(" ")[2]]
    return SCRIPTS.get(said, [said])


class ScriptedReader:
    """Reads `<think>...</think>` and `<call NAME>ARGUMENTS</call>`, piece by piece."""

    def __init__(self) -> None:
        self._held, self._inside, self._tools = "", "", list[ToolCall]()
        self._content, self._reasoning = "", ""

    def feed(self, text: str) -> list[Delta]:
        self._held += text
        deltas = []
        while self._held:
            tag = re.match(r"<(/?)(\w+) ?(\w*)>", self._held)
            if tag:
                self._held = self._held[tag.end() :]
                self._inside = "" if tag[1] else tag[2]
                if self._inside == "call":
                    deltas.append(self._begun(tag[3]))
            elif self._held.startswith("<"):
                break
            else:
                plain = self._held.partition("<")[0]
                self._held = self._held[len(plain) :]
                deltas.append(self._more(plain))
        return deltas

    def finish(self) -> list[Delta]:
        rest, self._held = self._held, ""
        return [self._more(rest)] if rest else []

    def _begun(self, name: str) -> Delta:
        call = ToolCall(f"call_{len(self._tools)}", name, "")
        self._tools.append(call)
        return Delta(tool=ToolDelta(len(self._tools) - 1, call.id, call.name))

    def _more(self, text: str) -> Delta:
        if self._inside == "call":
            last = self._tools[-1]
            self._tools[-1] = ToolCall(last.id, last.name, last.arguments + text)
            return Delta(tool=ToolDelta(len(self._tools) - 1, arguments=text))
        if self._inside == "think":
            self._reasoning += text
            return Delta(reasoning=text)
        self._content += text
        return Delta(content=text)

    @property
    def reply(self) -> Reply:
        return Reply(self._content, self._reasoning, tuple(self._tools))


class ScriptedFormat(FakeFormat):
    """One line a message. It refuses two messages of the user in a row."""

    def apply(self, request: ChatRequest) -> ChatPrompt:
        roles = [message["role"] for message in request.messages]
        if ("user", "user") in itertools.pairwise(roles):
            raise UsageError("the model's chat template refuses these messages: roles must alternate")
        lines = [f"{message['role']}: {_text(message.get('content'))}" for message in request.messages]
        return ChatPrompt("\n".join([*lines, ">"]))

    def reader(self, prompt: ChatPrompt) -> Any:
        return ScriptedReader()


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())


class ScriptedEngine(FakeEngine):
    """Answers by `script`. It is busy for "busy ..." the first time that it is asked, for "full" always."""

    def __init__(self, name: str = "scripted") -> None:
        super().__init__(name, script, n_ctx=2048, n_slots=16)
        self.chat = ScriptedFormat()
        self._met: set[str] = set()

    def submit(self, request: Request) -> FakeGeneration:
        text = bytes(request.prompt).decode()
        said = text.removesuffix("\n>").rpartition(": ")[2]
        if said == "full" or (said.startswith("busy ") and said not in self._met):
            self._met.add(said)
            raise BusyError("the queue is full", "try again later", retry_after=1)
        return super().submit(request)
