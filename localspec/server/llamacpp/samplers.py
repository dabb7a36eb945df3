"""The `samplers` of llama.cpp's requests, and the other options that there are not here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from localspec.engine.params import SamplingParams
from localspec.server.llamacpp.schemas import Unsupported

#: the chain, in its order -> the parameters that turn a sampler of it off
CHAIN: dict[str, dict[str, Any]] = {
    "penalties": {"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
    "top_k": {"top_k": 0},
    "typ_p": {"typical_p": 1.0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "temperature": {"temperature": 1.0},
}
#: off unless other options turn them on, which is told by itself
_IDLE = frozenset({"dry", "xtc", "top_n_sigma", "adaptive_p"})
_LETTERS = {
    "e": "penalties", "k": "top_k", "y": "typ_p", "p": "top_p", "m": "min_p", "t": "temperature", "d": "dry",
    "x": "xtc", "s": "top_n_sigma", "i": "infill",
}  # fmt: skip
_NAMES = {
    "typical_p": "typ_p",
    "top-k": "top_k",
    "top-p": "top_p",
    "min-p": "min_p",
    "typical": "typ_p",
    "temp": "temperature",
}
#: what is not there, and up to which value it asks for nothing
_UNSUPPORTED = {
    "dynatemp_range": 0, "xtc_probability": 0, "top_n_sigma": 0, "dry_multiplier": 0, "mirostat": 0,
    "adaptive_target": -1e-9, "min_keep": 1, "n_indent": 0,
}  # fmt: skip


def chosen(sampling: SamplingParams, samplers: list[str] | str | None) -> tuple[SamplingParams, list[str]]:
    """The sampling with those samplers off that are not in the list, and what is to be told of it."""
    if not samplers:
        return sampling, []
    listed = [_LETTERS.get(letter, letter) for letter in samplers] if isinstance(samplers, str) else samplers
    names = [_NAMES.get(name, name) for name in listed]
    known = [name for name in names if name in CHAIN]
    off: dict[str, Any] = {}
    for name, neutral in CHAIN.items():
        if name not in known:
            off |= neutral
    told = [
        f"the sampler {name[:32]} is not supported and was ignored" for name in names if name not in {*CHAIN, *_IDLE}
    ]
    if known != [name for name in CHAIN if name in known]:
        told.append(f"the order of samplers is always {', '.join(CHAIN)}, each once")
    return replace(sampling, **off), told[:20]


def unsupported(request: Unsupported) -> Iterator[str]:
    """What was asked for and there is not."""
    for name, most in _UNSUPPORTED.items():
        value = getattr(request, name)
        if value is not None and value > most:
            yield f"{name} is not supported and was ignored"
    for name in ("lora", "return_progress", "timings_per_token"):
        if getattr(request, name):
            yield f"{name} is not supported and was ignored"
