"""The events of a generation: all that an interface (chat, server, bench, TUI) ever sees of the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from localspec.tree import Topology

FinishReason = Literal["stop", "length", "cancelled"]

#: how the notes about speculation that went off begin, and those that it is on again
OFF, ON = "spec off: ", "spec on"


@dataclass(frozen=True, slots=True)
class PromptEvent:
    """The prompt has been read: `n_prompt` tokens, `n_cached` of them reused from the previous prompt."""

    n_prompt: int
    n_cached: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StepTimings:
    """Seconds spent in the parts of one step. `native` is the share inside the native library."""

    propose: float
    decode: float
    verify: float
    accept: float
    native: float
    total: float


@dataclass(frozen=True, slots=True)
class Choice:
    """How a scheduler saw a step before it was made.

    `on` is whether speculation is on. Where a plain step takes `plain_seconds` here (None: not known), speculation can
    be held against plain decoding; `measured` says that this generation measured it, else it is a calibrated estimate.
    With a bank of `n_trees` trees, `tree` is the index of the one in use, and `score` what it was chosen by (None: it
    is always the same); at the ascending `edges` of that the choice may change.
    """

    on: bool
    plain_seconds: float | None = None
    measured: bool = False
    tree: int | None = None
    n_trees: int = 0
    score: float | None = None
    edges: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Likely:
    """The natural log-probability of an emitted token under the model, whatever the sampler makes of it, and the most
    likely tokens at its place with theirs, best first."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One forward pass: what was drafted, what was taken, and the text that became certain.

    `tree_tokens` has one id a node of `topology`; `path` holds the accepted nodes below the root, in order; `tokens`
    are the emitted ids (the accepted ones and the bonus token). `text` is valid UTF-8 and may be empty while bytes or
    a possible stop string are held back. `forgiven` are positions in `tokens` that were accepted against the target.
    `likely` has an entry for each of `tokens` if log-probabilities were asked for.
    """

    tokens: tuple[int, ...]
    text: str
    method: str
    topology: Topology
    tree_tokens: tuple[int, ...]
    path: tuple[int, ...]
    timings: StepTimings
    forgiven: tuple[int, ...] = ()
    choice: Choice = Choice(on=True)
    likely: tuple[Likely, ...] = ()


@dataclass(frozen=True, slots=True)
class NoteEvent:
    """Something worth telling, such as "spec off: not faster here"."""

    text: str


@dataclass(slots=True)
class Stats:
    """Totals of one generation. Times are seconds; tokens per second exclude the prompt."""

    n_prompt: int = 0
    n_cached: int = 0
    n_tokens: int = 0
    n_steps: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    prompt_seconds: float = 0.0
    seconds: float = 0.0
    native_seconds: float = 0.0
    propose_seconds: float = 0.0
    #: by depth: steps whose walk stood at a node with children, and those of them where a child was taken
    steps_reaching: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    #: positions in the answer, from 0, of drafted tokens that were accepted against the target
    forgiven: list[int] = field(default_factory=list)

    @property
    def n_forgiven(self) -> int:
        return len(self.forgiven)

    @property
    def tokens_per_second(self) -> float:
        return self.n_tokens / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_step(self) -> float:
        return self.n_tokens / self.n_steps if self.n_steps else 0.0


@dataclass(frozen=True, slots=True)
class DoneEvent:
    """The end: why, the text still held back, and the totals. `stop` is the stop string that matched, if one did.

    `lossless` tells whether the text has the target's distribution, as far as the verifier decides that, whose name is
    `accept`.
    """

    reason: FinishReason
    text: str
    stats: Stats
    stop: str | None = None
    lossless: bool = True
    accept: str = "strict"


Event = PromptEvent | StepEvent | NoteEvent | DoneEvent
