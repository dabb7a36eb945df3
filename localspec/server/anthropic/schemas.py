"""What Anthropic's clients send, and what they get."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from localspec.engine.params import MAX_INT
from localspec.server.fields import Lenient, SamplingFields, Whole


class Block(Lenient):
    """A piece of a message; which fields it has depends on `type`."""

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[Block] | None = None
    is_error: bool | None = None
    thinking: str | None = None
    source: dict[str, Any] | None = None


class Message(Lenient):
    """One turn of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class Tool(Lenient):
    """A tool that the client runs. Those with another `type` than "custom" would run at Anthropic's."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class ToolChoice(Lenient):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Lenient):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Annotated[Whole, Field(ge=0, le=MAX_INT)] | None = None


class OutputFormat(Lenient):
    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")


class OutputConfig(Lenient):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class Metadata(Lenient):
    user_id: str | None = None


class CountRequest(Lenient):
    """A request without what concerns the answer alone. What is not known is taken, and told of in the reply."""

    model: str = Field(min_length=1, max_length=512)
    messages: list[Message] = Field(min_length=1)
    system: str | list[Block] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None


class MessagesRequest(CountRequest, SamplingFields):
    """Beside Anthropic's own there are the sampling fields of the other APIs."""

    max_tokens: Annotated[Whole, Field(ge=1, le=MAX_INT)]
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    metadata: Metadata | None = None


class Usage(BaseModel):
    """Tokens; those of the prompt that came from the cache are not among `input_tokens`."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class TextBlock(BaseModel):
    type: Literal["text"] = "text"
    text: str


class ThinkingBlock(BaseModel):
    """Thoughts. The signature, by which Anthropic knows its own again, is empty."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str = ""


class ToolUseBlock(BaseModel):
    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class MessageResponse(BaseModel):
    """A whole answer."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[TextBlock | ThinkingBlock | ToolUseBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: Usage
    speculation: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None
    warnings: list[str] | None = None


class CountResponse(BaseModel):
    input_tokens: int


class Model(BaseModel):
    type: Literal["model"] = "model"
    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"] = "active"


class ModelList(BaseModel):
    data: list[Model]
    has_more: bool = False
    first_id: str | None
    last_id: str | None


class ErrorDetail(BaseModel):
    type: str
    message: str


class ErrorResponse(BaseModel):
    type: Literal["error"] = "error"
    error: ErrorDetail
