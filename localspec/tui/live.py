"""The state behind the panels: takes the events of a generation and gives snapshots of them.

It runs beside the generation, on the same cores: an event costs a few microseconds, all else waits for a snapshot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from localspec.events import Event, NoteEvent, PromptEvent, StepEvent
from localspec.tui.backend import ModelInfo
from localspec.tui.snapshot import Snapshot, Step, n_lines
from localspec.tui.tally import Tally

#: steps that can be looked at
KEPT_STEPS = 200


class Live:
    """What is known of an engine: `load`, then for each answer `begin` and `feed` with all of its events.

    `piece` gives the text of a token; `snapshot` alone calls it. To be used by one thread at a time.
    """

    def __init__(self, piece: Callable[[int], str]) -> None:
        self._piece = piece
        self._info: ModelInfo | None = None
        self._steps: deque[tuple[int, StepEvent]] = deque(maxlen=KEPT_STEPS)
        #: lines that the trees of the kept steps take; those of the last `_fresh` are still to come
        self._lines: deque[int] = deque(maxlen=KEPT_STEPS)
        self._fresh = 0
        self._answer = Tally("", "strict", "idle")

    def load(self, info: ModelInfo) -> None:
        """What the engine has now. With another model everything so far is forgotten."""
        known, self._info = self._info, info
        if known is None or (known.path, known.draft) != (info.path, info.draft):
            self._steps.clear()
            self._lines.clear()
            self._fresh = 0
            self._answer = Tally(info.method, "strict", "idle")

    def begin(self, method: str, accept: str = "strict") -> None:
        """An answer begins, with a method and the name of the rule that accepts drafts. Earlier steps are kept."""
        self._answer = Tally(method, accept, "reading")

    def feed(self, event: Event) -> None:
        """The next event of the answer."""
        answer = self._answer
        if isinstance(event, StepEvent):
            answer.step(event)
            self._steps.append((answer.n_steps, event))
            self._fresh += 1
        elif isinstance(event, NoteEvent):
            answer.note(event.text)
        elif isinstance(event, PromptEvent):
            answer.n_prompt, answer.n_cached = event.n_prompt, event.n_cached
            answer.prompt_seconds, answer.phase = event.seconds, "writing"
        else:
            answer.end(event)

    def fail(self) -> None:
        """The answer ended with an error instead of a `DoneEvent`."""
        self._answer.finish, self._answer.phase = "failed", "done"

    def snapshot(self, at: int | None = None) -> Snapshot:
        """What there is to draw now. `at` asks for the step that many before the newest; there are `Snapshot.n_kept`,
        and beyond them it is the oldest. None follows the newest, which the answer begins without."""
        answer, info = self._answer, self._info
        snapshot = answer.snapshot()
        n = len(self._steps)
        if at is None:
            step = self._step(-1) if answer.n_steps and n else None
        else:
            at = max(0, min(at, n - 1))
            step = self._step(-1 - at) if n else None
        trees = _names(() if info is None else info.trees, snapshot.trees)
        return replace(
            snapshot,
            model="" if info is None else info.name,
            device="" if info is None else info.device,
            n_ctx=0 if info is None else info.n_ctx,
            curve=() if info is None else info.curve,
            trees=trees,
            shape=snapshot.shape if snapshot.tree is None else trees[snapshot.tree],
            step=step,
            at=at,
            n_kept=n,
            most_lines=self._most_lines(),
        )

    def _most_lines(self) -> int:
        """The most lines that the tree of a kept step takes; new ones are looked at here."""
        new = min(self._fresh, len(self._steps))
        self._fresh = 0
        for _, event in islice(self._steps, len(self._steps) - new, None):
            self._lines.append(n_lines(event.topology.children, len(event.path)))
        return max(self._lines, default=0)

    def _step(self, index: int) -> Step:
        number, event = self._steps[index]
        piece, path = self._piece, event.path
        texts = tuple([piece(token) for token in event.tree_tokens])
        bonus = piece(event.tokens[len(path)]) if len(event.tokens) > len(path) else None
        # positions in the tokens are positions on the path: the bonus token is the target's own
        forgiven = tuple([path[i] for i in event.forgiven if i < len(path)])
        choice = event.choice
        return Step(
            number, event.method, event.topology.parents, texts, path, bonus, event.timings.total, forgiven,
            choice.on, choice.tree, choice.score,
        )  # fmt: skip


def _names(known: tuple[str, ...], shapes: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the bank's trees: those given, else their shapes as far as they were seen, else numbers."""
    if not shapes:
        return known
    given = known if len(known) == len(shapes) else ("",) * len(shapes)
    return tuple([name or shape or f"tree {i}" for i, (name, shape) in enumerate(zip(given, shapes, strict=True), 1)])
