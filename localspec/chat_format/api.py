"""What a chat format does: messages and tools to a prompt, the text of a reply to its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from localspec.engine.params import GrammarStart, SamplingParams

ReasoningFormat = Literal["auto", "none", "deepseek"]


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """A conversation as OpenAI's API has it.

    `tool_choice` is "auto", "none", "required", or the name of the one function to call. `json_schema` or `grammar`
    constrain the text of the answer. `reasoning_format` "none" leaves thoughts in the text. `template_values` reach the
    template under their names.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str = "auto"
    function: str | None = None
    parallel_tool_calls: bool = True
    json_schema: Mapping[str, Any] | None = None
    grammar: str | None = None
    reasoning_format: ReasoningFormat = "auto"
    enable_thinking: bool = True
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ChatPrompt:
    """What to write after, and under which constraints (`constrained`).

    `preserved` are special tokens whose text is part of the answer. `state` is for the format that made it.
    """

    text: str
    grammar: str | None = None
    grammar_start: GrammarStart | None = None
    preserved: frozenset[int] = frozenset()
    stops: tuple[str, ...] = ()
    state: Any = None

    def constrained(self, sampling: SamplingParams) -> SamplingParams:
        """The sampling under the grammar of this prompt; as it is when there is none."""
        if self.grammar is None:
            return sampling
        return replace(sampling, grammar=self.grammar, grammar_start=self.grammar_start, json_schema=None)


@dataclass(frozen=True, slots=True)
class ToolDelta:
    """A piece of a tool call: `id` and `name` come with its first piece, `arguments` is a piece of JSON text."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a reply: text, thoughts, or a tool call."""

    content: str | None = None
    reasoning: str | None = None
    tool: ToolDelta | None = None


@dataclass(frozen=True)
class ToolCall:
    """A whole tool call; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Reply:
    """A whole reply, in parts."""

    content: str = ""
    reasoning: str = ""
    tools: tuple[ToolCall, ...] = ()


class ReplyReader(Protocol):
    """Reads the text of one reply as it is written."""

    def feed(self, text: str) -> list[Delta]:
        """More text; returns what became certain by it."""
        ...

    def finish(self) -> list[Delta]:
        """The end of the text; returns the rest. Text that is no reply of this format is content."""
        ...

    @property
    def reply(self) -> Reply:
        """All that was read so far."""
        ...


class ChatFormat(Protocol):
    """The chat format of a model. Safe from any thread."""

    def apply(self, request: ChatRequest) -> ChatPrompt:
        """Raises `UsageError`: the template's own words when it refuses, and for constraints that cannot be."""
        ...

    def reader(self, prompt: ChatPrompt) -> ReplyReader: ...
