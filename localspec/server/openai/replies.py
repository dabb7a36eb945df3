"""The replies of OpenAI's API, for its description: what is sent is made of plain dicts.

Beside OpenAI's fields: llama.cpp's `timings`, and `speculation` and `warnings`, which are localspec's.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Reply(BaseModel):
    """Exactly these fields: tests hold real replies against it."""

    model_config = ConfigDict(extra="forbid")


class PromptDetails(Reply):
    cached_tokens: int


class CompletionDetails(Reply):
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(Reply):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Timings(Reply):
    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int
    draft_n_accepted: int


class SpeculationReport(Reply):
    method: str
    requested: str
    lossless: bool
    forgiven: int
    tokens_per_step: float
    speedup_vs_plain: float | None
    reason: str | None
    drafted: int
    accepted: int


class TopLogprob(Reply):
    token: str
    bytes: list[int]
    logprob: float


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Reply):
    content: list[TokenLogprob]
    refusal: None


class CalledFunction(Reply):
    name: str
    arguments: str


class ToolCall(Reply):
    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(Reply):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class Reported(Reply):
    """What tells how an answer was made."""

    timings: Timings | None = None
    speculation: SpeculationReport | None = None


class ChatChoice(Reported):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class Completed(Reported):
    id: str
    created: int
    model: str
    system_fingerprint: str
    usage: Usage
    warnings: list[str] | None = None


class ChatCompletion(Completed):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class CompletionLogprobs(Reply):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(Reported):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"]


class Completion(Completed):
    object: Literal["text_completion"]
    choices: list[CompletionChoice]


class Embedding(Reply):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(Reply):
    prompt_tokens: int
    total_tokens: int


class Embeddings(Reply):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
    warnings: list[str] | None = None


class Model(Reply):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    loaded: bool
    size: int
    quant: str
    role: str
    meta: dict[str, Any] | None = None


class Models(Reply):
    object: Literal["list"]
    data: list[Model]


class ErrorDetails(Reply):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Reply):
    error: ErrorDetails
