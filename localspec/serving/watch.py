"""What `localspec top` sees of an engine: the answer that began last, and the next one after its end."""

from __future__ import annotations

from localspec.events import DoneEvent, Event, PromptEvent
from localspec.opening import describe
from localspec.serving.pieces import Pieces
from localspec.serving.slot import Slot
from localspec.session import Session
from localspec.tui.feed import Publisher
from localspec.tui.live import Live
from localspec.worker import NO_TEXT


class Watcher:
    """Feeds a `Publisher` with the events of one slot at a time."""

    def __init__(self, session: Session, pieces: Pieces) -> None:
        def text(token: int) -> str:
            return pieces(token).decode("utf-8", "replace").replace("\ufffd", NO_TEXT)

        live = Live(text)
        live.load(describe(session))
        self._method = session.method_name
        self._publisher = Publisher(live)
        self._watched: Slot | None = None

    def feed(self, slot: Slot, event: Event) -> None:
        """An event of a slot. What nobody can follow is left out: several answers at once."""
        watched = self._watched
        if isinstance(event, PromptEvent) and (watched is None or watched is slot or not watched.busy):
            self._watched = slot
            with self._publisher as live:
                live.begin(slot.state.method)
        if slot is not self._watched:
            return
        with self._publisher as live:
            live.feed(event)
        if isinstance(event, DoneEvent):
            self._watched = None

    def body(self) -> bytes:
        """The newest snapshot as JSON; from any thread."""
        return self._publisher.body()
