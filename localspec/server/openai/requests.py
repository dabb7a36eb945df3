"""The requests of OpenAI's API: chat completions, completions and embeddings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from localspec.server.fields import Lenient, MaxTokens, SamplingFields, Whole
from localspec.serving.api import MAX_TOP_LOGPROBS

#: far more than any request may hold; the settings of the server decide below that
_MANY = 1 << 16

TokenId = Annotated[Whole, Field(ge=0, le=2**31 - 1)]
Name = Annotated[str, Field(max_length=512)]


class ContentPart(Lenient):
    """A part of a message. Only text is read."""

    type: str
    text: str | None = None


class CalledFunction(Lenient):
    """The function of a tool call."""

    name: str
    arguments: str | dict[str, Any] | None = None


class CalledTool(Lenient):
    """A tool call that was made."""

    id: str | None = None
    type: Literal["function"] | None = None
    function: CalledFunction


class Message(Lenient):
    """A message of a conversation; `developer` is read as `system`."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[CalledTool] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class Function(Lenient):
    """A function that can be called; `parameters` is a JSON schema."""

    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Lenient):
    type: Literal["function"]
    function: Function


class NamedFunction(Lenient):
    name: str


class NamedTool(Lenient):
    type: Literal["function"]
    function: NamedFunction


class SchemaFormat(Lenient):
    """A named JSON schema."""

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Lenient):
    """What the answer has to be. With `json_object` a `schema` may stand beside the type, as llama.cpp has it."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")


class StreamOptions(Lenient):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Completing(SamplingFields):
    """What chat and plain completions share."""

    model: Name | None = None
    n: Whole | None = Field(None, ge=1, le=_MANY)
    max_tokens: MaxTokens | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class ChatCompletionRequest(Completing):
    """A conversation to go on with."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: MaxTokens | None = None
    logprobs: bool | None = None
    top_logprobs: Whole | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = Field(None, max_length=32)
    reasoning_format: Literal["auto", "none", "deepseek"] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


class CompletionRequest(Completing):
    """Texts to go on with."""

    prompt: str | list[str] | list[TokenId] | list[list[TokenId]]
    logprobs: Whole | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    echo: bool | None = None
    best_of: Whole | None = Field(None, ge=1, le=_MANY)
    suffix: str | None = None


class EmbeddingRequest(Lenient):
    """Texts to embed."""

    input: str | list[str] | list[TokenId] | list[list[TokenId]]
    model: Name | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Whole | None = Field(None, ge=1, le=2**31 - 1)
    user: str | None = None
