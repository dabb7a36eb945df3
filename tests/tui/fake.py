"""An engine that says what a test tells it to, and nothing before the test lets it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from localspec.errors import LocalspecError, UsageError
from localspec.events import Choice, DoneEvent, Event, NoteEvent, PromptEvent, Stats, StepEvent, StepTimings
from localspec.tree import Topology
from localspec.tui.backend import Failed, Loading, ModelInfo, ModelRow, OpenRequest, Question

STEP_SECONDS = 0.05
MODEL = ModelInfo(
    name="tiny-test-model",
    path=Path("/models/tiny.gguf"),
    description="tiny 1M Q4_0",
    n_ctx=2048,
    mode="patched",
    device="CPU",
    method="ptd",
    methods=("plain", "ptd", "lookup"),
    trees=("small", "large"),
    curve=((1, 1.0), (2, 1.1), (4, 1.3), (8, 1.9)),
)
#: drafts beside each accepted one, so that trees have something to refuse
WRONG = (" maybe", " not", "\n", "🙂", "語")


class FakeAnswering:
    """An answer whose events come as they are released."""

    def __init__(self, events: Sequence[Event], error: LocalspecError | None = None) -> None:
        self.coming = deque(events)
        self._released: deque[Event] = deque()
        self._error = error
        self._over = False
        self.cancelled = False

    def release(self, n: int | None = None) -> None:
        """Let the next `n` events, or all, be taken."""
        for _ in range(len(self.coming) if n is None else n):
            if self.coming:
                self._released.append(self.coming.popleft())
        if not self.coming:
            self._over = True

    def take(self) -> list[Event]:
        taken = list(self._released)
        self._released.clear()
        return taken

    def cancel(self) -> None:
        if not self._over:
            self.cancelled = True
            self.coming.clear()
            self._released.append(DoneEvent("cancelled", "", Stats(n_prompt=12, n_tokens=3, n_steps=2, seconds=0.1)))
            self._over = True

    @property
    def done(self) -> bool:
        return self._over and not self._released

    @property
    def error(self) -> LocalspecError | None:
        return self._error if self.done and not self.cancelled else None


class FakeBackend:
    """Implements `localspec.tui.backend.Backend`. `answers` makes the events of a question; `state` may be set."""

    def __init__(self, answers: Callable[[Question], Sequence[Event]] | None = None) -> None:
        self.state: ModelInfo | Loading | Failed = Loading("loading the model", 0.0)
        self.vocabulary = Vocabulary()
        self.answers = answers or (lambda question: story("Hello!", self.vocabulary))
        self.error: LocalspecError | None = None
        self.info = MODEL
        self.asked: list[Question] = []
        self.opened: list[OpenRequest] = []
        self.answering: FakeAnswering | None = None
        self.rows: list[ModelRow] = [ModelRow("tiny-test-model", MODEL.path, size=1_000_000)]
        self.troubles: list[Failed] = []
        self.forgotten = 0
        self.wanted: str | None = None
        self.closed = False

    def open(self, request: OpenRequest) -> None:
        self.opened.append(request)
        self.state = Loading("loading the model", 0.4)

    def load(self) -> None:
        """The model has been loaded."""
        self.state = self.info

    def set_method(self, name: str) -> None:
        self.wanted = name

    def measure(self) -> None:
        """Begin with the method that was asked for; `load` ends it."""
        self.info = ModelInfo(**{**vars(self.info), "method": self.wanted})
        self.state = Loading("measuring this machine", 0.2)

    def trouble(self) -> Failed | None:
        return self.troubles.pop(0) if self.troubles else None

    def ask(self, question: Question) -> FakeAnswering:
        if not isinstance(self.state, ModelInfo):
            raise UsageError("there is no model", "choose one")
        self.asked.append(question)
        self.answering = FakeAnswering(self.answers(question), self.error)
        return self.answering

    def release(self, n: int | None = None) -> None:
        """Let `n` more events of the answer happen, or all."""
        assert self.answering is not None
        self.answering.release(n)

    def piece(self, token: int) -> str:
        return self.vocabulary.texts[token]

    def forget(self) -> None:
        self.forgotten += 1

    def models(self) -> list[ModelRow]:
        return self.rows

    def close(self) -> None:
        self.closed = True


class Vocabulary:
    """Tokens by their texts."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._ids: dict[str, int] = {}

    def token(self, text: str) -> int:
        if text not in self._ids:
            self._ids[text] = len(self.texts)
            self.texts.append(text)
        return self._ids[text]


def pieces_of(text: str) -> list[str]:
    """Text as a tokenizer might cut it: words with the space before them, lines ends by themselves."""
    import re

    return re.findall(r" ?[^\s]{1,7}|\s", text)


def story(text: str, vocabulary: Vocabulary, *, lossy: bool = False, notes: Sequence[str] = ()) -> list[Event]:
    """The events of an answer of this text: steps of one to four tokens, with a tree beside them."""
    events: list[Event] = [PromptEvent(12, 4, 0.2)]
    events += [NoteEvent(note) for note in notes]
    pieces = pieces_of(text)
    stats = Stats(n_prompt=12, n_cached=4, prompt_seconds=0.2)
    root, at = vocabulary.token("\n"), 0
    while at < len(pieces):
        n = min(1 + stats.n_steps % 4, len(pieces) - at)
        forgiven = (0,) if lossy and n > 2 else ()
        step = _step(pieces[at : at + n], root, vocabulary, forgiven)
        events.append(step)
        root = step.tokens[-1]
        stats.forgiven += [at + i for i in forgiven]
        at += n
        stats.n_tokens, stats.n_steps, stats.seconds = at, stats.n_steps + 1, stats.seconds + STEP_SECONDS
        stats.n_drafted += len(step.tree_tokens) - 1
        stats.n_accepted += len(step.path)
    events.append(DoneEvent("stop", "", stats, lossless=not lossy, accept="loose" if lossy else "strict"))
    return events


def _step(texts: Sequence[str], root: int, vocabulary: Vocabulary, forgiven: tuple[int, ...]) -> StepEvent:
    """A step that writes these tokens: a chain of them with something wrong beside each, and one node too many."""
    tokens = tuple(vocabulary.token(text) for text in texts)
    parents, nodes, path, last = [-1], [root], [], 0
    for i, token in enumerate(tokens[:-1]):
        for node in (token, vocabulary.token(WRONG[i % len(WRONG)])):
            parents.append(last)
            nodes.append(node)
        last = len(nodes) - 2
        path.append(last)
    if len(tokens) > 1:
        parents.append(last)
        nodes.append(vocabulary.token(WRONG[-1]))
    return StepEvent(
        tokens=tokens,
        text="".join(texts),
        method="ptd",
        topology=Topology(tuple(parents)),
        tree_tokens=tuple(nodes),
        path=tuple(path),
        timings=StepTimings(0.001, 0.04, 0.001, 0.001, 0.04, STEP_SECONDS),
        forgiven=forgiven,
        choice=Choice(on=True, plain_seconds=0.04, measured=True, tree=len(tokens) % 2, n_trees=2),
    )
