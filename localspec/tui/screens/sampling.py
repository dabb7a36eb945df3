"""How tokens are drawn, how long answers get, and by which rule drafts are accepted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from textual.widget import Widget

from localspec.engine.params import SamplingParams
from localspec.errors import UsageError
from localspec.tui.screens.choice import Choice
from localspec.tui.screens.form import Form, entry

#: field, its label, what it means
FIELDS = (
    ("temperature", "temperature", "0 takes the likeliest token"),
    ("top_k", "top k", "of so many likeliest tokens; 0: all"),
    ("top_p", "top p", "of those with this share; 1: all"),
    ("min_p", "min p", "next to the likeliest; 0: all"),
    ("repeat_penalty", "repeat penalty", "above 1 repeats less"),
    ("seed", "seed", "gives the same text again; or empty"),
    ("max_tokens", "max tokens", "of an answer; empty: no limit"),
)
WHOLE = ("top_k", "seed", "max_tokens")
MAY_BE_EMPTY = ("seed", "max_tokens")
ACCEPT = (
    ("strict", "strict"),
    ("typical", "typical (lossy)"),
    ("loose", "loose (lossy)"),
)


class SamplingScreen(Form[dict[str, Any]]):
    """Gives the names in `FIELDS` and "accept" with their values. `values` are the ones in use; what is not among them
    is at its default."""

    TITLE = "Sampling"

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__()
        self.given = values

    def fields(self) -> Iterator[tuple[str, Widget, str]]:
        defaults = SamplingParams()
        for name, label, note in FIELDS:
            value = self.given.get(name, getattr(defaults, name, None))
            yield label, entry(name, "" if value is None else f"{value:.6g}" if name not in WHOLE else str(value)), note
        yield "accept", Choice(ACCEPT, self.given.get("accept") or "strict", "accept"), "strict is lossless"

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {name: number(label, values[name], name) for name, label, _ in FIELDS}
        if result["max_tokens"] is not None and result["max_tokens"] < 1:
            raise UsageError("max tokens starts at 1", "leave it empty for what the context holds")
        SamplingParams(**{name: value for name, value in result.items() if name != "max_tokens"}).validate()
        if values["accept"] == "typical" and result["repeat_penalty"] != 1:
            raise UsageError("typical acceptance goes with no penalty", "repeat penalty 1, or strict")
        return {**result, "accept": values["accept"]}


def number(label: str, text: str, name: str) -> int | float | None:
    """The number in a field. Raises `UsageError`."""
    text = text.strip()
    if not text and name in MAY_BE_EMPTY:
        return None
    try:
        return int(text) if name in WHOLE else float(text.replace(",", "."))
    except ValueError:
        kind = "whole number" if name in WHOLE else "number"
        raise UsageError(f"{label}: {text!r} is no {kind}" if text else f"{label} is empty") from None
