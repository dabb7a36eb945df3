"""The sums over the steps of one answer, and what they say about it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from localspec.events import OFF, ON, Choice, DoneEvent, StepEvent
from localspec.tree import Topology
from localspec.tui.snapshot import Phase, Snapshot, shape_name

#: seconds of writing that the rate of now is taken over
WINDOW = 1.0
#: seconds of writing that one value of `Snapshot.rates` stands for, and how many are kept
BUCKET, KEPT_RATES = 0.25, 240
#: steps without a draft after which no tree is in use
LATELY = 8
#: rules that keep the model's distribution; what an answer ends with tells it for certain
LOSSLESS = ("strict", "sequoia")


@dataclass(slots=True)
class Tally:
    """An answer so far. `step` is called for every step and costs a few microseconds."""

    method: str
    accept: str
    phase: Phase
    lossless: bool = True
    n_prompt: int = 0
    n_cached: int = 0
    prompt_seconds: float = 0.0
    n_tokens: int = 0
    n_steps: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    n_forgiven: int = 0
    seconds: float = 0.0
    reason: str | None = None
    finish: str | None = None
    choice: Choice = field(default_factory=lambda: Choice(on=True))
    lengths: list[int] = field(default_factory=lambda: [0] * 8)
    tree_steps: list[int] = field(default_factory=list)
    #: the last trees of the bank that were in use, by index, and the last shape of all
    shapes: dict[int, Topology] = field(default_factory=dict)
    shape: Topology | None = None
    tree: int | None = None
    last_draft: int = 0
    score: float | None = None
    edges: tuple[float, ...] = ()
    #: (seconds, tokens) of the last steps, and their sums
    window: deque[tuple[float, int]] = field(default_factory=deque)
    window_seconds: float = 0.0
    window_tokens: int = 0
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_RATES))
    bucket_seconds: float = 0.0
    bucket_tokens: int = 0
    #: seconds that plain steps would have taken for the tokens so far, but for those that are `unpriced`
    plain_seconds: float = 0.0
    unpriced: int = 0

    def __post_init__(self) -> None:
        self.lossless = self.accept in LOSSLESS

    def step(self, event: StepEvent) -> None:
        """Count a step."""
        n, k, seconds, choice = len(event.tokens), len(event.path), event.timings.total, event.choice
        self.n_steps += 1
        self.n_tokens += n
        self.n_accepted += k
        self.seconds += seconds
        self.choice, self.method, self.phase = choice, event.method, "writing"
        if event.forgiven:
            self.n_forgiven += len(event.forgiven)
            self.lossless = False
        n_drafted = len(event.tree_tokens) - 1
        if n_drafted:
            self.n_drafted += n_drafted
            self.shape, self.tree, self.last_draft = event.topology, choice.tree, self.n_steps
        while k >= len(self.lengths):
            self.lengths.append(0)
        self.lengths[k] += 1
        if choice.n_trees or choice.tree is not None:
            self._count_tree(choice, event.topology)
        if choice.measured and choice.plain_seconds:
            self.plain_seconds += (n + self.unpriced) * choice.plain_seconds
            self.unpriced = 0
        else:
            self.unpriced += n
        self._time(seconds, n)

    def _count_tree(self, choice: Choice, topology: Topology) -> None:
        n_trees = choice.n_trees if choice.tree is None else max(choice.n_trees, choice.tree + 1)
        self.tree_steps += [0] * (n_trees - len(self.tree_steps))
        if choice.tree is not None:
            self.tree_steps[choice.tree] += 1
            # the tree may have been cut where the answer ends: the largest one seen is the tree
            if choice.tree not in self.shapes or len(self.shapes[choice.tree]) < len(topology):
                self.shapes[choice.tree] = topology
            self.score, self.edges = choice.score, choice.edges

    def _time(self, seconds: float, n: int) -> None:
        window = self.window
        window.append((seconds, n))
        self.window_seconds += seconds
        self.window_tokens += n
        while self.window_seconds - window[0][0] >= WINDOW:
            old_seconds, old_n = window.popleft()
            self.window_seconds -= old_seconds
            self.window_tokens -= old_n
        self.bucket_seconds += seconds
        self.bucket_tokens += n
        if self.bucket_seconds >= BUCKET:
            self.rates.append(self.bucket_tokens / self.bucket_seconds)
            self.bucket_seconds, self.bucket_tokens = 0.0, 0

    def note(self, text: str) -> None:
        """Why speculation went off, or that it is on again; other notes are not for here."""
        if text.startswith(OFF):
            self.reason = text.removeprefix(OFF)
        elif text.startswith(ON):
            self.reason = None

    def end(self, event: DoneEvent) -> None:
        """The totals of the end are those of the engine."""
        stats = event.stats
        self.n_prompt, self.n_cached, self.prompt_seconds = stats.n_prompt, stats.n_cached, stats.prompt_seconds
        self.n_tokens, self.n_steps, self.n_forgiven = stats.n_tokens, stats.n_steps, stats.n_forgiven
        self.n_drafted, self.n_accepted, self.seconds = stats.n_drafted, stats.n_accepted, stats.seconds
        self.lossless, self.accept = event.lossless, event.accept
        self.finish, self.phase = event.reason, "done"

    def off(self) -> str | None:
        """Why there is no speculation, None while there is."""
        if self.method == "plain":
            return "plain decoding was asked for" if self.reason is None else self.reason
        if self.reason is not None:
            return self.reason
        if self.n_steps and not self.choice.on:
            return "not faster here"
        return "no draft was worth verifying" if self.phase == "done" and self.n_steps and not self.n_drafted else None

    def speedup(self) -> float | None:
        """How long plain decoding would have taken over how long it took; None where that is not known."""
        plain = self.choice.plain_seconds
        if not self.seconds or (plain is None and not self.plain_seconds):
            return None
        return (self.plain_seconds + self.unpriced * (plain or 0.0)) / self.seconds

    def snapshot(self) -> Snapshot:
        """All but what the model and the steps add."""
        lately = self.shape is not None and self.n_steps - self.last_draft < LATELY
        rates = list(self.rates)
        if not rates and self.bucket_seconds:
            rates = [self.bucket_tokens / self.bucket_seconds]
        return Snapshot(
            phase=self.phase,
            method=self.method,
            accept=self.accept,
            lossless=self.lossless,
            n_prompt=self.n_prompt,
            n_cached=self.n_cached,
            prompt_seconds=self.prompt_seconds,
            n_tokens=self.n_tokens,
            n_steps=self.n_steps,
            n_drafted=self.n_drafted,
            n_accepted=self.n_accepted,
            n_forgiven=self.n_forgiven,
            seconds=self.seconds,
            rate=self.window_tokens / self.window_seconds if self.window_seconds > 0 else 0.0,
            speedup=self.speedup(),
            measured=self.plain_seconds > 0,
            off=self.off(),
            shape=shape_name(self.shape.parents) if lately and self.shape is not None else "",
            lengths=tuple(self.lengths[: self._longest() + 1]),
            trees=tuple(
                [shape_name(self.shapes[i].parents) if i in self.shapes else "" for i in range(len(self.tree_steps))]
            ),
            tree_steps=tuple(self.tree_steps),
            tree=self.tree if lately else None,
            score=self.score,
            edges=self.edges,
            rates=tuple(rates),
            finish=self.finish,
        )

    def _longest(self) -> int:
        """The most accepted drafts that a step had; -1 before there was one."""
        return max((k for k, n in enumerate(self.lengths) if n), default=-1)
