"""Durations as Ollama's clients write them: seconds, or a text such as "5m" or "1h30m"."""

from __future__ import annotations

import math
import re

UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h|d)")
#: longer is for ever; a century in seconds
LONGEST = 100 * 365 * 86400.0


def parse(value: float | str) -> float | None:
    """Seconds of a duration; None for one without an end (negative). Raises `ValueError`."""
    seconds = _seconds(value) if isinstance(value, str) else float(value)
    if math.isnan(seconds):
        raise ValueError("not a duration")
    return None if seconds < 0 or seconds > LONGEST else seconds


def _seconds(text: str) -> float:
    text = text.strip()
    try:
        return float(text)
    except ValueError:
        pass
    sign, digits = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    parts = _PART.findall(digits)
    if not parts or "".join(number + unit for number, unit in parts) != digits:
        raise ValueError('not a duration: write seconds, or a text such as "5m" or "1h30m"')
    return sign * sum(float(number) * UNITS[unit] for number, unit in parts)
