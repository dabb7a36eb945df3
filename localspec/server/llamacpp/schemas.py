"""What llama.cpp's clients send, and what they get."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from localspec.engine.params import MAX_BIAS, MAX_INT
from localspec.server.fields import Lenient, SamplingFields, Whole
from localspec.serving.api import MAX_TOP_LOGPROBS

Natural = Annotated[Whole, Field(ge=0, le=MAX_INT)]
Sentinel = Annotated[Whole, Field(ge=-1, le=MAX_INT)]
TokenId = Natural
Number = float | None
#: a text, tokens, or both in turn
Mixed = str | list[TokenId | str]


def _biases(value: object) -> object:
    """Pairs of a token and its bias as OpenAI has them; false forbids a token."""
    if not isinstance(value, list):
        return value
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise ValueError("a list of pairs of a token and its bias")
    return {str(token): -MAX_BIAS if bias is False else bias for token, bias in value}


class PromptObject(Lenient):
    """A prompt as an object: what else than text could stand in it cannot be read here."""

    prompt_string: str
    multimodal_data: list[str] | None = None


class Unsupported(Lenient):
    """Samplers and the like that there are not. With the values that turn them off they ask for nothing."""

    dynatemp_range: Number = None
    dynatemp_exponent: Number = None
    xtc_probability: Number = None
    xtc_threshold: Number = None
    top_n_sigma: Number = None
    dry_multiplier: Number = None
    dry_base: Number = None
    dry_allowed_length: Natural | None = None
    dry_penalty_last_n: Sentinel | None = None
    dry_sequence_breakers: list[str] | None = None
    mirostat: Annotated[Whole, Field(ge=0, le=2)] | None = None
    mirostat_tau: Number = None
    mirostat_eta: Number = None
    adaptive_target: Number = None
    adaptive_decay: Number = None
    min_keep: Natural | None = None
    n_indent: Natural | None = None
    lora: list[dict[str, Any]] | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None


class Writing(SamplingFields, Unsupported):
    """What /completion and /infill share.

    `n_keep`, `n_discard`, `n_cache_reuse` and `t_max_prompt_ms` concern what does not happen here: a context is never
    shifted. `id_slot` is taken, but any slot may answer.
    """

    model: str | None = Field(None, max_length=512)
    n_predict: Sentinel | None = Field(None, description="-1 is no limit.")
    max_tokens: Sentinel | None = None
    max_completion_tokens: Sentinel | None = None
    n_cmpl: Natural | None = None
    n: Natural | None = None
    stream: bool | None = None
    stop: str | list[str] | None = None
    logit_bias: Annotated[
        dict[str, Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]] | None,
        BeforeValidator(_biases, json_schema_input_type=dict[str, float] | list[list[int | float | bool]] | None),
    ] = None
    logprobs: Annotated[Whole, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = Field(None, description="Another n_probs.")
    n_probs: Annotated[Whole, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    post_sampling_probs: bool | None = None
    return_tokens: bool | None = None
    samplers: list[str] | str | None = None
    response_fields: list[str] | None = None
    t_max_predict_ms: Sentinel | None = None
    t_max_prompt_ms: Sentinel | None = None
    id_slot: Sentinel | None = None
    n_keep: Sentinel | None = None
    n_discard: Natural | None = None
    n_cache_reuse: Natural | None = None
    sse_ping_interval: Sentinel | None = None
    image_data: list[Any] | None = None


class CompletionRequest(Writing):
    """Texts alone in a list are as many prompts; with tokens among them they are one."""

    prompt: str | PromptObject | list[TokenId | str | PromptObject | list[TokenId | str]]


class ExtraText(Lenient):
    text: str
    filename: str | None = None


class InfillRequest(Writing):
    input_prefix: Mixed
    input_suffix: Mixed
    input_extra: list[ExtraText] | None = None
    prompt: str | None = None


class Completion(BaseModel):
    """An answer, or when streamed a piece of it, which has less fields until `stop` is true."""

    index: int
    content: str
    tokens: list[int]
    id_slot: int
    stop: bool
    model: str | None = None
    tokens_predicted: int
    tokens_evaluated: int
    generation_settings: dict[str, Any] | None = None
    prompt: str | None = None
    has_new_line: bool | None = None
    truncated: bool | None = None
    stop_type: str | None = None
    stopping_word: str | None = None
    tokens_cached: int | None = None
    timings: dict[str, Any] | None = None
    completion_probabilities: list[dict[str, Any]] | None = None
    speculation: dict[str, Any] | None = None
    warnings: list[str] | None = None


class TokenizeRequest(Lenient):
    content: str
    model: str | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


class Piece(BaseModel):
    """A token; its bytes where they are no text by themselves."""

    id: int
    piece: str | list[int]


class TokenizeResponse(BaseModel):
    tokens: list[int] | list[Piece]


class DetokenizeRequest(Lenient):
    tokens: list[TokenId]
    model: str | None = None


class DetokenizeResponse(BaseModel):
    content: str


class TemplateResponse(BaseModel):
    prompt: str


class NextToken(BaseModel):
    has_next_token: bool
    has_new_line: bool
    n_remain: int
    n_decoded: int


class Slot(BaseModel):
    """A slot. `id_task` is the request that it serves or served last, -1 for none."""

    id: int
    id_task: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    n_prompt_tokens: int
    n_prompt_tokens_processed: int
    n_prompt_tokens_cache: int
    params: dict[str, Any]
    next_token: list[NextToken]


class DefaultSettings(BaseModel):
    n_ctx: int
    params: dict[str, Any]


class Props(BaseModel):
    """What the server is and does when it is not told otherwise. `is_sleeping`: no model is loaded now."""

    default_generation_settings: DefaultSettings
    total_slots: int
    model_alias: str
    model_path: str
    model_ftype: str
    modalities: dict[str, bool]
    endpoint_slots: bool
    endpoint_props: bool
    endpoint_metrics: bool
    chat_template: str
    chat_template_caps: dict[str, bool]
    bos_token: str
    eos_token: str
    build_info: str
    is_sleeping: bool
