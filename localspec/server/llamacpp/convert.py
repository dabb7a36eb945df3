"""From what llama.cpp's clients send to what the server asks an engine for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from localspec.server import limits
from localspec.server.answers import Ask, Prompt
from localspec.server.errors import ParamError
from localspec.server.fields import max_tokens
from localspec.server.llamacpp import samplers
from localspec.server.llamacpp.schemas import CompletionRequest, Mixed, PromptObject, Writing
from localspec.server.settings import Settings
from localspec.serving.api import Engine

_NO_MEDIA = "images and sounds cannot be read: this server runs language models", "send text only"


def ask(request: Writing, prompts: Sequence[Prompt], settings: Settings) -> Ask:
    """What to ask for. Raises `ParamError` for what is not possible."""
    bounds = settings.bounds
    if request.image_data:
        raise ParamError("image_data", *_NO_MEDIA)
    if request.post_sampling_probs:
        raise ParamError(
            "post_sampling_probs",
            "post_sampling_probs is not supported: probabilities are those of the model, before sampling",
            "leave it out",
        )
    warnings = [*request.warnings(), *samplers.unsupported(request)]
    sampling, told = samplers.chosen(request.sampling(settings.sampling, bounds), request.samplers)
    schema = request.json_schema
    if schema == {}:
        schema = {"type": "object"}
    method, accept = request.speculate()
    return Ask(
        prompts=prompts,
        model=request.model,
        n=request.n_cmpl or request.n or 1,
        sampling=replace(
            sampling,
            json_schema=limits.schema(schema, bounds, "json_schema"),
            grammar=limits.grammar(request.grammar, bounds),
        ),
        max_tokens=max_tokens(
            request.n_predict, request.max_completion_tokens, request.max_tokens, bounds=bounds, param="n_predict"
        ),
        stops=limits.stops(_not_empty(request.stop), bounds),
        method=method,
        accept=accept,
        top_logprobs=request.n_probs or request.logprobs or None,
        ignore_eos=bool(request.ignore_eos),
        cache_prompt=request.cache_prompt is not False,
        warnings=(*warnings, *told),
    )


def _not_empty(stops: str | list[str] | None) -> list[str]:
    # llama.cpp passes over empty ones, and its clients send them
    return [stop for stop in ([stops] if isinstance(stops, str) else stops or ()) if stop]


def prompts(request: CompletionRequest, most: int) -> list[Prompt]:
    """The prompts of /completion: a text, or a list that is one mixed prompt or many. Raises `ParamError`."""
    given = request.prompt
    if isinstance(given, (str, PromptObject)):
        return [_prompt(given)]
    limits.count(given, max(most, 1 << 20), "prompt")
    if not given:
        raise ParamError("prompt", "prompt is an empty list")
    flat = [part for part in given if isinstance(part, (int, str))]
    if len(flat) == len(given) and any(isinstance(part, int) for part in given):
        return [_prompt(flat)]
    limits.count(given, most, "prompt")
    if any(isinstance(part, int) for part in given):
        raise ParamError("prompt", "prompt mixes tokens and whole prompts", "put the tokens into a list of their own")
    return [_prompt(part) for part in given if not isinstance(part, int)]


def _prompt(given: Mixed | PromptObject) -> Prompt:
    if isinstance(given, PromptObject):
        if given.multimodal_data:
            raise ParamError("prompt.multimodal_data", *_NO_MEDIA)
        given = given.prompt_string
    if isinstance(given, str):
        return limits.text(given, "prompt")
    if not given:
        raise ParamError("prompt", "prompt is an empty list")
    return mixed(given)


def mixed(parts: Sequence[int | str]) -> Callable[[Engine], list[int]]:
    """The tokens of texts and tokens in turn; only a text that comes first begins as prompts do."""
    for part in parts:
        if isinstance(part, str):
            limits.text(part, "prompt")

    def tokens(engine: Engine) -> list[int]:
        made: list[int] = []
        for i, part in enumerate(parts):
            made += [part] if isinstance(part, int) else engine.tokenize(part, add_special=i == 0)
        return made

    return tokens
