"""What the status line and the panel show: the state behind them, and which step is looked at."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from localspec.events import Event, StepEvent
from localspec.tui import palette
from localspec.tui.backend import Failed, Loading, ModelInfo
from localspec.tui.live import KEPT_STEPS, Live
from localspec.tui.render.panel import panel
from localspec.tui.render.status import status_line


class Board:
    """Takes events in and draws; it may be paused at one of the last steps while more arrive."""

    def __init__(self, piece: Callable[[int], str], *, ascii_only: bool = False) -> None:
        self.live = Live(piece)
        self.at: int | None = None
        self._ascii = ascii_only
        self._state: ModelInfo | Loading | Failed = Loading("starting", 0.0)

    def engine(self, state: ModelInfo | Loading | Failed) -> None:
        """What the engine is doing now."""
        if isinstance(state, ModelInfo) and state != self._state:
            self.live.load(state)
        self._state = state

    def begin(self, method: str, accept: str | None) -> None:
        """An answer begins."""
        self.live.begin(method, accept or "strict")

    def feed(self, event: Event) -> None:
        """The next event of an answer."""
        self.live.feed(event)
        if isinstance(event, StepEvent) and self.at is not None:
            self.at = min(self.at + 1, KEPT_STEPS - 1)

    def pause(self) -> bool:
        """Hold the picture, or let it go on; returns whether it is held."""
        self.at = 0 if self.at is None else None
        return self.at is not None

    def step(self, by: int) -> None:
        """Look at the step `by` steps before (negative: after) the one that is shown."""
        last = max(0, self.live.snapshot().n_kept - 1)
        self.at = min(last, max(0, (self.at or 0) + by))

    def status(self, width: int, height: int) -> Text:
        """The status line."""
        state = self._state
        if isinstance(state, Failed):
            return Text.assemble(("no model: ", palette.WARN), state.message)
        if isinstance(state, Loading):
            return self._progress(state, width)
        return status_line(self.live.snapshot(), width, ascii_only=self._ascii)

    def panel(self, width: int, height: int) -> Text:
        """The panel; empty while there is no model, which the status line tells."""
        if not isinstance(self._state, ModelInfo):
            return Text()
        return panel(self.live.snapshot(self.at), width, height, ascii_only=self._ascii)

    def _progress(self, state: Loading, width: int) -> Text:
        share = min(1.0, max(0.0, state.share))
        length = max(0, min(24, width - len(state.stage) - 8))
        full = round(share * length)
        bar, track = ("#", "-") if self._ascii else ("━", "─")
        return Text.assemble(
            (state.stage, palette.LABEL),
            " ",
            (bar * full, palette.BAR),
            (track * (length - full), palette.TRACK),
            (f" {share:.0%}", palette.VALUE),
        )
