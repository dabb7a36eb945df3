"""The reply of the Responses API, for its description."""

from __future__ import annotations

from typing import Any, Literal

from localspec.server.openai.replies import Reply, SpeculationReport, Timings, TokenLogprob


class OutputText(Reply):
    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[TokenLogprob]


class OutputMessage(Reply):
    id: str
    type: Literal["message"]
    status: Literal["in_progress", "completed"]
    role: Literal["assistant"]
    content: list[OutputText]


class ReasoningText(Reply):
    type: Literal["reasoning_text"]
    text: str


class OutputReasoning(Reply):
    id: str
    type: Literal["reasoning"]
    status: Literal["in_progress", "completed"]
    summary: list[Any]
    content: list[ReasoningText]


class OutputCall(Reply):
    id: str
    type: Literal["function_call"]
    status: Literal["in_progress", "completed"]
    call_id: str
    name: str
    arguments: str


class InputDetails(Reply):
    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(Reply):
    reasoning_tokens: int


class ResponseUsage(Reply):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseReply(Reply):
    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete"]
    error: None
    incomplete_details: dict[str, str] | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, Any]
    model: str
    output: list[OutputMessage | OutputReasoning | OutputCall]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: dict[str, str | None]
    store: Literal[False]
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage
    timings: Timings
    speculation: SpeculationReport
    warnings: list[str] | None = None
