"""Checks of what requests hold, beyond what their models say. All raise `ParamError`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from localspec.engine.params import MAX_BIAS
from localspec.server.errors import ParamError
from localspec.server.settings import Bounds


def stops(value: str | Sequence[str] | None, bounds: Bounds, param: str = "stop") -> tuple[str, ...]:
    """Stop strings, given as one or as a list; empty ones would end every answer."""
    given = [value] if isinstance(value, str) else list(value or ())
    if len(given) > bounds.stops:
        raise ParamError(param, f"{param} has {len(given)} strings; it is at most {bounds.stops}")
    for stop in given:
        if not stop:
            raise ParamError(param, f"{param} has an empty string", "leave it out")
        if len(stop) > bounds.stop_length:
            raise ParamError(
                param, f"a string of {param} has {len(stop)} characters; it is at most {bounds.stop_length}"
            )
        text(stop, param)
    return tuple(given)


def count(values: Sequence[Any], most: int, param: str) -> None:
    """How many there are."""
    if len(values) > most:
        raise ParamError(param, f"{param} has {len(values)} entries; it is at most {most}")


def text(value: str, param: str) -> str:
    """Text that can be UTF-8, which half of a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ParamError(param, f"{param} has half of a surrogate pair in it", "send whole characters") from None
    return value


def tree(value: Any, bounds: Bounds, param: str) -> Any:
    """JSON data: its depth, and its texts."""
    level = [value]
    for _ in range(bounds.depth):
        deeper: list[Any] = []
        for each in level:
            if isinstance(each, str):
                text(each, param)
            elif isinstance(each, Mapping):
                deeper += each.keys()
                deeper += each.values()
            elif isinstance(each, list):
                deeper += each
        if not deeper:
            return value
        level = deeper
    raise ParamError(param, f"{param} is nested in more than {bounds.depth} levels")


def schema(value: Any, bounds: Bounds, param: str) -> Any:
    """A JSON schema: its depth and its size."""
    tree(value, bounds, param)
    try:
        size = len(json.dumps(value, allow_nan=False))
    except ValueError:
        raise ParamError(param, f"{param} has a number that JSON has not") from None
    if size > bounds.schema:
        raise ParamError(param, f"{param} has {size} bytes; it is at most {bounds.schema}")
    return value


def grammar(value: str | None, bounds: Bounds, param: str = "grammar") -> str | None:
    """A GBNF grammar: its size. An empty one is none."""
    if not value:
        return None
    if len(value) > bounds.grammar:
        raise ParamError(param, f"{param} has {len(value)} characters; it is at most {bounds.grammar}")
    return text(value, param)


def logit_bias(value: Mapping[str, float] | None, bounds: Bounds) -> dict[int, float]:
    """Biases by token id, as OpenAI's API has them: keys are decimal texts, -100 forbids and 100 forces in effect."""
    if value is None:
        return {}
    if len(value) > bounds.logit_bias:
        raise ParamError("logit_bias", f"logit_bias has {len(value)} entries; it is at most {bounds.logit_bias}")
    made = {}
    for key, bias in value.items():
        if not (key.isascii() and key.isdecimal() and len(key) < 10):
            raise ParamError("logit_bias", f"logit_bias has {key[:20]!r} for a key, not the id of a token")
        if not math.isfinite(bias) or abs(bias) > MAX_BIAS:
            raise ParamError("logit_bias", f"logit_bias[{key}] is {bias}; it is from {-MAX_BIAS:g} to {MAX_BIAS:g}")
        made[int(key)] = float(bias)
    return made
