"""What the terminal interface needs of an engine.

The engine works in a thread of its own, since a step of a model takes as long as many frames of a screen. Calls here
return at once and are made from one thread, that of the interface; what the engine does is looked at, never waited for.
`localspec.worker` is the real one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from localspec.errors import LocalspecError
from localspec.events import Event


@dataclass(frozen=True)
class OpenRequest:
    """A model to load (a name, a path, or None for the default) and the method to begin with (None: the default one).

    `draft` is a second model that drafts. `options` are further arguments of `localspec.session.Session.open` by name,
    as given on the command line.
    """

    model: str | None = None
    method: str | None = None
    draft: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelInfo:
    """A loaded model. `methods` are those it can use here, `trees` the names of the bank's trees, the smallest first.

    `curve` is the cost of a step of n nodes in plain steps, (n, cost) with n ascending; empty before it was measured.
    """

    name: str
    path: Path
    description: str
    n_ctx: int
    mode: str
    device: str
    method: str
    methods: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()
    curve: tuple[tuple[int, float], ...] = ()
    draft: str | None = None


@dataclass(frozen=True)
class Loading:
    """The engine is busy with `stage` ("loading the model"), of which `share` (0 to 1) is done."""

    stage: str
    share: float


@dataclass(frozen=True)
class Failed:
    """No model: why, and the way out."""

    message: str
    hint: str | None = None


@dataclass(frozen=True)
class Question:
    """One answer to be written. `messages` are {"role", "content"}, the last one of the user.

    `sampling` holds changes to the fields of `localspec.engine.params.SamplingParams` by name, `max_tokens` is None for
    the end of the context window. `method` None is that of the model; `accept` is the name of the rule that drafts are
    accepted by ("strict", "loose", "typical"), None for the one of the command line.
    """

    messages: Sequence[Mapping[str, str]]
    sampling: Mapping[str, object] = field(default_factory=dict)
    max_tokens: int | None = None
    method: str | None = None
    accept: str | None = None


@dataclass(frozen=True)
class ModelRow:
    """A model that can be chosen. `path` is None while it has not been downloaded; `pull` is the command that would."""

    name: str
    path: Path | None
    size: int | None = None
    quant: str = ""
    licence: str = ""
    role: str = ""
    pull: str | None = None


class Answering(Protocol):
    """An answer being written."""

    def take(self) -> list[Event]:
        """The events since the last call, in order. After `done` there are none."""
        ...

    def cancel(self) -> None:
        """Stop after the current step; the events end with a `DoneEvent` all the same. Idempotent."""
        ...

    @property
    def done(self) -> bool:
        """Whether everything was taken."""
        ...

    @property
    def error(self) -> LocalspecError | None:
        """Why the answer ended without a `DoneEvent`; None while it goes on and after a good end."""
        ...


class Backend(Protocol):
    """An engine with at most one model and one answer at a time."""

    @property
    def state(self) -> ModelInfo | Loading | Failed:
        """What there is now. A method that measures this machine first makes a loaded model `Loading` for a while."""
        ...

    def open(self, request: OpenRequest) -> None:
        """Load a model in place of the one there is, which is closed; an answer under way is cancelled."""
        ...

    def set_method(self, name: str) -> None:
        """Use a method from now on. A name that cannot be used leaves the old method and `trouble` tells why."""
        ...

    def trouble(self) -> Failed | None:
        """The last thing that failed without ending anything; None when it was told already."""
        ...

    def ask(self, question: Question) -> Answering:
        """Begin an answer. Raises `UsageError` while there is no model or an answer is under way."""
        ...

    def piece(self, token: int) -> str:
        """The text of a token, as far as it is text of its own: bytes of a part of a character are shown as "·"."""
        ...

    def forget(self) -> None:
        """Begin a new conversation: nothing that earlier answers taught drafters remains."""
        ...

    def models(self) -> list[ModelRow]:
        """What can be opened or pulled: the models on this machine first."""
        ...

    def close(self) -> None:
        """End everything. Idempotent; returns when the thread has ended, or after a few seconds."""
        ...
