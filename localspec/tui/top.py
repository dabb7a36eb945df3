"""`localspec top`: the panel of a running server.

A thread asks for snapshots, the app draws what comes: seldom while nothing goes on, and ever more seldom while the
server cannot be reached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.message import Message
from textual.widgets import Static

from localspec.errors import ServerError
from localspec.tui import themes
from localspec.tui.render import styles
from localspec.tui.render.glyphs import cut
from localspec.tui.render.panel import panel
from localspec.tui.snapshot import Snapshot

#: seconds between questions: while an answer is written, while nothing goes on, and at most after failures
BUSY, IDLE, MOST_WAIT = 0.2, 1.0, 8.0
#: wider panels are no easier to read
MOST_WIDTH = 100


class Arrived(Message):
    """What a question brought."""

    def __init__(self, found: Snapshot | ServerError) -> None:
        super().__init__()
        self.found = found


def pause_after(found: Snapshot | ServerError, failures: int) -> float:
    """Seconds until the next question; `failures` in a row so far, this one counted."""
    if isinstance(found, ServerError):
        return min(MOST_WAIT, BUSY * 2.0**failures)
    return BUSY if found.phase in ("reading", "writing") else IDLE


class TopApp(App[None]):
    """Shows the snapshots that `fetch` gives or the `ServerError` that it raises; it is called in a thread."""

    CSS = """
    Screen { layers: base; }
    #state { height: 1; padding: 0 1; }
    #panel { height: 1fr; padding: 0 1; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape,ctrl+q,ctrl+c", "quit", "Quit"),
        Binding("space", "hold", "Hold the picture"),
    ]

    def __init__(self, fetch: Callable[[], Snapshot], url: str, *, ascii_only: bool = False) -> None:
        super().__init__()
        themes.install(self)
        self.theme = themes.DEFAULT
        self._fetch, self._url, self._ascii = fetch, url, ascii_only
        self._snapshot: Snapshot | None = None
        self._error: ServerError | None = None
        self._held = False
        self._ended = threading.Event()

    def compose(self) -> ComposeResult:
        yield Static(id="state")
        yield Static(id="panel")

    def on_mount(self) -> None:
        self._draw()
        self.run_worker(self._ask, thread=True, exit_on_error=True)

    def on_unmount(self) -> None:
        self._ended.set()

    def _ask(self) -> None:
        failures = 0
        while not self._ended.is_set():
            found: Snapshot | ServerError
            try:
                found = self._fetch()
                failures = 0
            except ServerError as error:
                found = error
                failures += 1
            self.post_message(Arrived(found))
            self._ended.wait(pause_after(found, failures))

    def on_arrived(self, message: Arrived) -> None:
        """Draw what came, unless the picture is held."""
        if isinstance(message.found, ServerError):
            self._error = message.found
        else:
            self._error = None
            if not self._held:
                self._snapshot = message.found
        self._draw()

    def on_resize(self, event: Resize) -> None:
        self._draw()

    def action_hold(self) -> None:
        """Hold the picture, or let it go on."""
        self._held = not self._held
        self._draw()

    def _draw(self) -> None:
        width = max(1, min(MOST_WIDTH, self.size.width - 2))
        self.query_one("#state", Static).update(self._state(width))
        if self._snapshot is not None:
            drawn = panel(self._snapshot, width, max(1, self.size.height - 1), ascii_only=self._ascii)
            self.query_one("#panel", Static).update(drawn)
        elif self._error is not None and self._error.hint:
            self.query_one("#panel", Static).update(Text(self._error.hint, styles.LABEL))

    def _state(self, width: int) -> Text:
        """One line: whether the server answers, and which it is."""
        dots = ".." if self._ascii else "…"
        if self._error is not None:
            return Text(cut(f"! {self._error.message}", width, dots), styles.WARNING)
        if self._snapshot is None:
            return Text(cut(f"asking {self._url}", width, dots), styles.LABEL)
        mark = "held" if self._held else "live"
        model = f"{self._snapshot.model or 'no model'} at {self._url}"
        keys = "space holds, q quits"
        line = f"{mark}  {model}"
        if len(line) + len(keys) + 2 <= width:
            line = f"{line}{keys.rjust(width - len(line))}"
        text = Text(cut(line, width, dots), styles.LABEL)
        text.stylize(styles.WARNING if self._held else styles.STRONG, 0, len(mark))
        return text
