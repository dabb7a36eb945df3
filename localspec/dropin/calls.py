"""The arguments of calls, with the names, the order and the defaults of llama_cpp, and what an engine makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.dropin.errors import CallError
from localspec.dropin.telling import tell
from localspec.engine.params import SamplingParams
from localspec.serving.api import MAX_TOP_LOGPROBS

#: (token ids so far, logits) -> whether to stop
Criteria = Callable[[Any, Any], bool]
Grammar = Any  # GBNF, or a llama_cpp.LlamaGrammar


@dataclass(slots=True)
class CompletionCall:
    """Arguments of `Llama.create_completion`.

    `max_tokens` None, 0 or less is the end of the context. `speculation` is "auto", "off", or the name of a method, and
    `accept` the rule that drafts are accepted by; None: those of the model.
    """

    prompt: str | Sequence[int]
    suffix: str | None = None
    max_tokens: int | None = 16
    temperature: float = 0.8
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    logprobs: int | None = None
    echo: bool = False
    stop: str | Sequence[str] | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repeat_penalty: float = 1.0
    top_k: int = 40
    stream: bool = False
    seed: int | None = None
    tfs_z: float = 1.0
    mirostat_mode: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    model: str | None = None
    stopping_criteria: Criteria | None = None
    logits_processor: Any = None
    grammar: Grammar = None
    logit_bias: Mapping[int, float] | Mapping[str, float] | None = None
    speculation: str | None = None
    accept: str | None = None


@dataclass(slots=True)
class ChatCall:
    """Arguments of `Llama.create_chat_completion`; see `CompletionCall` for `speculation` and `accept`."""

    messages: Sequence[Mapping[str, Any]]
    functions: Sequence[Mapping[str, Any]] | None = None
    function_call: str | Mapping[str, Any] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: str | Mapping[str, Any] | None = None
    temperature: float = 0.2
    top_p: float = 0.95
    top_k: int = 40
    min_p: float = 0.05
    typical_p: float = 1.0
    stream: bool = False
    stop: str | Sequence[str] | None = None
    seed: int | None = None
    response_format: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_penalty: float = 1.0
    tfs_z: float = 1.0
    mirostat_mode: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    model: str | None = None
    logits_processor: Any = None
    grammar: Grammar = None
    logit_bias: Mapping[int, float] | Mapping[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    speculation: str | None = None
    accept: str | None = None


@dataclass(slots=True)
class GenerateCall:
    """Arguments of `Llama.generate`."""

    tokens: Sequence[int]
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    temp: float = 0.8
    repeat_penalty: float = 1.0
    reset: bool = True
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    tfs_z: float = 1.0
    mirostat_mode: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    penalize_nl: bool = True
    logits_processor: Any = None
    stopping_criteria: Criteria | None = None
    grammar: Grammar = None

    def completion(self, seed: int) -> CompletionCall:
        """The same as a completion to the end of the context."""
        return CompletionCall(
            self.tokens,
            max_tokens=None,
            temperature=self.temp,
            top_p=self.top_p,
            min_p=self.min_p,
            typical_p=self.typical_p,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            repeat_penalty=self.repeat_penalty,
            top_k=self.top_k,
            seed=seed,
            tfs_z=self.tfs_z,
            mirostat_mode=self.mirostat_mode,
            stopping_criteria=self.stopping_criteria,
            logits_processor=self.logits_processor,
            grammar=self.grammar,
        )


def sampling_of(call: CompletionCall | ChatCall, seed: int, last_n: int) -> SamplingParams:
    """How tokens are drawn. Raises `CallError` for what localspec's sampler does not have."""
    if call.logits_processor:
        raise CallError(
            "logits_processor cannot be used: drafts are sampled in the library, where no Python runs",
            "logit_bias, grammar and the penalties can",
        )
    if call.mirostat_mode:
        raise CallError(f"mirostat_mode={call.mirostat_mode} cannot be used", "temperature, top_p and min_p can")
    if call.tfs_z != 1.0:
        tell("tfs_z is ignored: llama.cpp has no tail-free sampling any more")
    wide = call.temperature < 0.0  # in llama_cpp: one draw from the whole distribution
    return SamplingParams(
        temperature=1.0 if wide else call.temperature,
        top_k=0 if wide else max(0, call.top_k),
        top_p=1.0 if wide else call.top_p,
        min_p=0.0 if wide else call.min_p,
        typical_p=1.0 if wide else call.typical_p,
        repeat_penalty=call.repeat_penalty,
        presence_penalty=call.presence_penalty,
        frequency_penalty=call.frequency_penalty,
        repeat_last_n=last_n,
        penalise_prompt=False,  # as in llama_cpp
        logit_bias=_biases(call.logit_bias),
        seed=seed,
        grammar=grammar_text(call.grammar),
    )


def _biases(given: Mapping[int, float] | Mapping[str, float] | None) -> dict[int, float]:
    try:
        return {int(token): float(bias) for token, bias in (given or {}).items()}
    except (TypeError, ValueError):
        raise CallError(f"logit_bias is {given!r}", "token ids and what to add to their logits") from None


def grammar_text(grammar: Grammar) -> str | None:
    """The GBNF of a grammar given as text or as a `LlamaGrammar`."""
    if grammar is None or isinstance(grammar, str):
        return grammar
    text = getattr(grammar, "_grammar", None)
    if not isinstance(text, str):
        raise CallError(f"grammar is a {type(grammar).__name__}", "give GBNF text or a LlamaGrammar")
    return text


def stops_of(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """Stop strings, without empty ones: chat formats of llama_cpp add that of an end token which is not there."""
    return tuple(filter(None, (stop,) if isinstance(stop, str) else stop or ()))


def check_logprobs(n: int | None) -> None:
    """Raise `CallError` for more alternatives than are told."""
    if n is not None and not 0 <= n <= MAX_TOP_LOGPROBS:
        raise CallError(f"{n} log-probabilities a token were asked for", f"from 0 to {MAX_TOP_LOGPROBS} are told")


def room(max_tokens: int | None) -> int | None:
    """The most tokens to write, None for what the context holds."""
    return max_tokens if max_tokens is not None and max_tokens > 0 else None
