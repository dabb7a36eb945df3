"""The log: what the library, the engine and localspec itself had to say."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import ClassVar, Protocol

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, RichLog

from localspec.tui import palette
from localspec.tui.screens.base import Sheet
from localspec.tui.screens.choice import Choice
from localspec.tui.screens.form import entry

#: seconds between looks at the log, while this screen is there
LOOK_EVERY = 0.5
LEVELS = (
    (logging.DEBUG, "everything"),
    (logging.INFO, "info"),
    (logging.WARNING, "warnings"),
    (logging.ERROR, "errors"),
)


class LogLine(Protocol):
    """A line of the log. `time` is in seconds since the epoch, `level` one of `logging`, `name` that of the logger."""

    @property
    def time(self) -> float: ...
    @property
    def level(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...


class LogScreen(Sheet[None]):
    """Shows what `lines` gives, the oldest first, and follows it."""

    TITLE = "Log"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f2", "level", "level"),
        Binding("f3", "follow", "follow or hold"),
        Binding("ctrl+y", "copy_all", "copy"),
        Binding("up", "scroll('up')", show=False),
        Binding("down", "scroll('down')", show=False),
        Binding("pageup", "scroll('page_up')", show=False),
        Binding("pagedown", "scroll('page_down')", show=False),
    ]

    def __init__(self, lines: Callable[[], Sequence[LogLine]]) -> None:
        super().__init__(classes="tall")
        self.lines = lines
        self.seen: list[LogLine] = []

    def body(self) -> Iterable[Widget]:
        level = Choice(LEVELS, logging.DEBUG, "level")
        level.can_focus = False
        yield Horizontal(entry("words", "", "type to filter"), level, classes="filters")
        log = RichLog(wrap=True, min_width=20, classes="log")
        log.can_focus = False
        yield log

    def on_mount(self) -> None:
        self.set_interval(LOOK_EVERY, self.poll)
        self.call_after_refresh(self.poll)

    def on_resize(self) -> None:
        self.call_after_refresh(self.fill)  # lines were wrapped for the old width

    def poll(self) -> None:
        """Add what is new since the last time."""
        now = list(self.lines())
        new = _after(self.seen, now)
        self.seen = now
        if new is None:
            self.fill()
        else:
            self._write(new)

    @on(Input.Changed)
    @on(Choice.Changed)
    def fill(self) -> None:
        """Begin anew, as after a change of the filters."""
        self.query_one(RichLog).clear()
        self._write(self.seen)

    def _passing(self, lines: Iterable[LogLine]) -> list[LogLine]:
        level = self.query_one("#field-level", Choice).value
        words = self.query_one("#field-words", Input).value.casefold().split()
        return [
            line
            for line in lines
            if line.level >= int(str(level)) and all(word in written(line).casefold() for word in words)
        ]

    def _write(self, lines: Iterable[LogLine]) -> None:
        texts = []
        for line in self._passing(lines):
            grave = palette.BAD if line.level >= logging.ERROR else palette.WARN
            texts.append(Text(written(line), self.look(grave) if line.level >= logging.WARNING else ""))
        if texts:
            self.query_one(RichLog).write(Text("\n").join(texts))  # one write costs half of many

    def action_level(self) -> None:
        self.query_one("#field-level", Choice).action_step(1)

    def action_follow(self) -> None:
        log = self.query_one(RichLog)
        self._hold(log.auto_scroll)
        if log.auto_scroll:
            log.scroll_end(animate=False)

    def action_scroll(self, how: str) -> None:
        """Move by hand; going up holds the view, being at the end follows again."""
        log = self.query_one(RichLog)
        getattr(log, f"scroll_{how}")(animate=False)
        self._hold(log.scroll_target_y < log.max_scroll_y)

    def _hold(self, held: bool) -> None:
        self.query_one(RichLog).auto_scroll = not held
        self.query_one(".sheet").border_title = "Log, held" if held else "Log"

    def action_copy_all(self) -> None:
        lines = self._passing(self.seen)
        self.copy("\n".join(written(line) for line in lines), f"{len(lines)} lines")


def written(line: LogLine) -> str:
    """A line as it is shown: local time, logger, text."""
    clock = datetime.fromtimestamp(line.time).strftime("%H:%M:%S")
    return f"{clock} {line.name.removeprefix('localspec.')}: {line.text}"


def _after(seen: Sequence[LogLine], now: Sequence[LogLine]) -> Sequence[LogLine] | None:
    """What came after the lines that were seen. None when the last of them is gone, so that all is new."""
    if not seen:
        return now
    at = next((i for i in range(len(now) - 1, -1, -1) if now[i] is seen[-1]), None)
    return None if at is None else now[at + 1 :]
