"""What Ollama's clients send, and what they get."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, Field

from localspec.engine.params import MAX_INT
from localspec.server.fields import Lenient, SamplingFields, Speculate, Whole
from localspec.server.ollama import durations
from localspec.serving.api import MAX_TOP_LOGPROBS


def _checked(value: float | str) -> float | str:
    durations.parse(value)
    return value


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


#: seconds or a text such as "5m"; negative is for ever, 0 not at all
KeepAlive = Annotated[float | str, AfterValidator(_checked)]
Natural = Annotated[Whole, Field(ge=0, le=MAX_INT)]
Sentinel = Annotated[Whole, Field(ge=-1, le=MAX_INT)]


class Options(SamplingFields):
    """How to sample. Those that say how a model is loaded are taken and change nothing: the server was told."""

    num_predict: Annotated[Whole, Field(ge=-2, le=MAX_INT)] | None = None
    num_ctx: Natural | None = None
    stop: Annotated[list[str], BeforeValidator(_listed)] | None = None
    mirostat: Annotated[Whole, Field(ge=0, le=2)] | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    tfs_z: float | None = None
    penalize_newline: bool | None = None
    num_keep: Sentinel | None = None
    num_batch: Natural | None = None
    num_thread: Natural | None = None
    num_gpu: Sentinel | None = None
    main_gpu: Natural | None = None
    numa: bool | None = None
    low_vram: bool | None = None
    f16_kv: bool | None = None
    logits_all: bool | None = None
    vocab_only: bool | None = None
    use_mmap: bool | None = None
    use_mlock: bool | None = None
    embedding_only: bool | None = None


class Named(Lenient):
    """A request about one model; "name" is what it was called once."""

    model: str = Field(validation_alias=AliasChoices("model", "name"), min_length=1, max_length=512)


class Generating(Named):
    """What /api/chat and /api/generate have in common."""

    stream: bool | None = None
    format: Literal["", "json"] | dict[str, Any] | None = None
    options: Options | None = None
    keep_alive: KeepAlive | None = None
    think: bool | Literal["low", "medium", "high"] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[Whole, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    speculation: Speculate | None = None

    @property
    def chosen(self) -> Options:
        """The options, also where there are none."""
        return self.options or Options.model_validate({})


class CalledFunction(Lenient):
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ToolCall(Lenient):
    id: str | None = None
    function: CalledFunction


class Message(Lenient):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant", "tool", "developer"]
    content: str | None = ""
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class ChatRequest(Generating):
    messages: list[Message] | None = None
    tools: list[dict[str, Any]] | None = None


class GenerateRequest(Generating):
    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    context: list[Natural] | None = None
    raw: bool | None = None
    images: list[str] | None = None


class EmbedRequest(Named):
    input: str | list[str]
    truncate: bool | None = None
    dimensions: Annotated[Whole, Field(ge=1, le=MAX_INT)] | None = None
    options: Options | None = None
    keep_alive: KeepAlive | None = None


class EmbeddingsRequest(Named):
    """The older way, one text at a time."""

    prompt: str | None = None
    options: Options | None = None
    keep_alive: KeepAlive | None = None


class PullRequest(Named):
    stream: bool | None = None
    insecure: bool | None = None


class ShowRequest(Named):
    verbose: bool | None = None


class Logprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[Logprob] | None = None


class Final(BaseModel):
    """What the last object of an answer says; durations in nanoseconds. Absent before the end."""

    done_reason: Literal["stop", "length", "load", "unload"] | None = None
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None
    speculation: dict[str, Any] | None = None
    warnings: list[str] | None = None


class Answered(Final):
    model: str
    created_at: str
    done: bool
    logprobs: list[Logprob] | None = None


class AnswerMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str = ""
    thinking: str | None = None
    tool_calls: list[ToolCall] | None = None


class ChatResponse(Answered):
    """A whole answer, or a piece of it when streamed."""

    message: AnswerMessage


class GenerateResponse(Answered):
    """A whole answer, or a piece of it when streamed. `context` are the tokens so far."""

    response: str
    thinking: str | None = None
    context: list[int] | None = None


class Details(BaseModel):
    parent_model: str = ""
    format: str = "gguf"
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class Listed(BaseModel):
    """A model; `digest` stands for the content of its file."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: Details


class TagsResponse(BaseModel):
    models: list[Listed]


class Running(BaseModel):
    name: str
    model: str
    size: int
    digest: str
    details: Details
    expires_at: str
    size_vram: int
    context_length: int


class PsResponse(BaseModel):
    models: list[Running]


class ShowResponse(BaseModel):
    modelfile: str
    parameters: str
    template: str
    details: Details
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str
    license: str = ""


class VersionResponse(BaseModel):
    version: str
    localspec: str


class EmbedResponse(BaseModel):
    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int
    warnings: list[str] | None = None


class EmbeddingsResponse(BaseModel):
    embedding: list[float]


class PullProgress(BaseModel):
    status: str
    digest: str | None = None
    total: int | None = None
    completed: int | None = None


class ErrorResponse(BaseModel):
    error: str
