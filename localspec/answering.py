"""One question to an engine in another thread, and the answer as it is being written."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import fields, replace

from localspec.engine.params import SamplingParams
from localspec.errors import LocalspecError, UsageError
from localspec.events import Event
from localspec.tui.backend import Question

_SAMPLING = frozenset(item.name for item in fields(SamplingParams))


class SessionAnswering:
    """An answer being written; see `localspec.tui.backend.Answering`."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self._events: deque[Event] = deque()
        self._cancelled = self._ended = False
        self._error: LocalspecError | None = None

    def take(self) -> list[Event]:
        """The events since the last call, in order."""
        events = self._events
        return [events.popleft() for _ in range(len(events))]

    def cancel(self) -> None:
        """Stop after the current step. Idempotent."""
        self._cancelled = True

    @property
    def cancelled(self) -> bool:
        """Whether it is to stop."""
        return self._cancelled

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended

    @property
    def done(self) -> bool:
        """Whether everything was taken."""
        return self._ended and not self._events

    @property
    def error(self) -> LocalspecError | None:
        """Why it ended without a `DoneEvent`."""
        return self._error if self._ended else None

    def put(self, event: Event) -> None:
        """For the engine: one more event."""
        self._events.append(event)

    def end(self, error: LocalspecError | None = None) -> None:
        """For the engine: no more events."""
        self._error = error
        self._ended = True


def sampling_of(base: SamplingParams, changes: Mapping[str, object]) -> SamplingParams:
    """`base` with `changes` by name. Raises `UsageError` for a name or a value that there is not."""
    for name in changes:
        if name not in _SAMPLING:
            raise UsageError(f"there is no sampling parameter {name!r}", ", ".join(sorted(_SAMPLING)))
    params = replace(base, **dict(changes))  # type: ignore[arg-type]
    params.validate()
    return params
