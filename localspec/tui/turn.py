"""One answer as its events arrive: text, tokens and notes. No screen, no engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from localspec.events import DoneEvent, Event, NoteEvent, StepEvent
from localspec.tui.render.tint import Kind


@dataclass
class Turn:
    """An answer. `tokens` are ids with where they came from, `method` what drafted last."""

    text: str = ""
    tokens: list[tuple[int, Kind]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    method: str | None = None
    done: DoneEvent | None = None

    def feed(self, event: Event) -> str:
        """Take an event in; returns the text that it adds."""
        added = ""
        if isinstance(event, StepEvent):
            self.method = event.method
            self.tokens += zip(event.tokens, kinds(event), strict=True)
            added = event.text
        elif isinstance(event, DoneEvent):
            self.done = event
            added = event.text
        elif isinstance(event, NoteEvent):
            self.notes.append(event.text)
        self.text += added
        return added

    def texts(self, piece: Callable[[int], str]) -> list[tuple[str, Kind]]:
        """The tokens as text."""
        return [(piece(token), kind) for token, kind in self.tokens]


def kinds(step: StepEvent) -> list[Kind]:
    """Where each token of a step came from: a draft, the model's own sampler after drafts, or plain decoding."""
    if len(step.tree_tokens) <= 1:
        return ["plain"] * len(step.tokens)
    found: list[Kind] = ["accepted" if i < len(step.path) else "bonus" for i in range(len(step.tokens))]
    for i in step.forgiven:
        found[i] = "forgiven"
    return found
