"""Saved conversations: open, rename, delete, export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import ClassVar, Protocol

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from localspec.errors import LocalspecError
from localspec.tui.screens.ask import Ask
from localspec.tui.screens.base import plain
from localspec.tui.screens.confirm import Confirm
from localspec.tui.screens.picker import Picker
from localspec.tui.screens.problem import Problem
from localspec.tui.screens.save import SaveRequest, SaveScreen


class Kept(Protocol):
    """A saved conversation as the list shows it. `updated` is UTC in ISO 8601."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def updated(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def n_messages(self) -> int: ...


class Shelf(Protocol):
    """Where conversations are kept. Everything raises `LocalspecError`."""

    def entries(self) -> tuple[Sequence[Kept], Sequence[str]]:
        """What is kept, the latest first, and a line for every file that cannot be read."""
        ...

    def rename(self, id: str, title: str) -> None: ...

    def delete(self, id: str) -> None: ...


class ConversationsScreen(Picker[Kept, str]):
    """Gives the id of the conversation to open. Renames and deletes go to `shelf` at once, exports to `export`, which
    gets an id and where to write; `folder` is where that begins. The conversation with the id `current` is open now."""

    TITLE = "Conversations"
    FILTER = "type to filter: words of the title, a model"
    NOTHING = "none yet: every conversation is kept here once it has an answer"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "open"),
        Binding("ctrl+r", "rename", "rename"),
        Binding("ctrl+d", "delete", "delete", priority=True),
        Binding("ctrl+s", "export", "export"),
    ]

    def __init__(
        self,
        shelf: Shelf,
        export: Callable[[str, SaveRequest], None],
        current: str | None = None,
        folder: Path | None = None,
        now: datetime | None = None,
    ) -> None:
        entries, self.damaged = shelf.entries()
        super().__init__(entries)
        self.shelf, self.export, self.current = shelf, export, current
        self.folder = folder or Path.home()
        self.now = now or datetime.now().astimezone()

    def head(self) -> Iterable[Widget]:
        if self.damaged:
            more = f" (and {len(self.damaged) - 1} more)" if len(self.damaged) > 1 else ""
            yield Static(plain(self.damaged[0] + more), classes="wrong -told")

    def line(self, row: Kept) -> Content:
        mark = "●" if self.in_use(row) else " "
        return Content.assemble((f"{mark} {self._when(row):>9}  ", "dim"), plain(" ".join(row.title.split())))

    def words(self, row: Kept) -> str:
        return f"{row.title} {row.model or ''}"

    def about(self, row: Kept) -> str:
        count = f"{row.n_messages} message" + ("" if row.n_messages == 1 else "s")
        return " · ".join(filter(None, (count, row.model)))

    def in_use(self, row: Kept) -> bool:
        return row.id == self.current

    def take(self, row: Kept) -> None:
        self.dismiss(row.id)

    def action_rename(self) -> None:
        if (row := self.row) is None:
            return

        def answered(title: str | None) -> None:
            if title is not None:
                self._do(lambda: self.shelf.rename(row.id, title))

        self.app.push_screen(Ask("A new title; empty: the first question", row.title), answered)

    def action_delete(self) -> None:
        if (row := self.row) is None:
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._do(lambda: self.shelf.delete(row.id))

        question = f"Delete “{' '.join(row.title.split())}”?"
        self.app.push_screen(Confirm(question, "It is gone for good.", yes="delete"), answered)

    def action_export(self) -> None:
        if (row := self.row) is None:
            return

        def answered(request: SaveRequest | None) -> None:
            if request is not None and self._do(lambda: self.export(row.id, request)):
                self.notify(f"Written to {request.path}", markup=False)

        self.app.push_screen(SaveScreen(file_name(row.title), self.folder), answered)

    def _do(self, what: Callable[[], None]) -> bool:
        """Do something with the shelf, tell when it fails, and show what is there now."""
        try:
            what()
            self.rows = list(self.shelf.entries()[0])
        except LocalspecError as error:
            self.app.push_screen(Problem(error.message, error.hint))
            return False
        self.refill(keep=self.option_list.highlighted)
        return True

    def _when(self, row: Kept) -> str:
        """The age of a conversation, or its day."""
        try:
            then = datetime.fromisoformat(row.updated.replace("Z", "+00:00"))
        except ValueError:
            return ""
        then = then if then.tzinfo else then.replace(tzinfo=timezone.utc)
        minutes = int((self.now - then).total_seconds() // 60)
        if minutes < 60:
            return f"{max(minutes, 0)} min"
        if minutes < 24 * 60:
            return f"{minutes // 60} h"
        local = then.astimezone(self.now.tzinfo)
        return f"{local:%d %b}" if local.year == self.now.year else f"{local:%b %Y}"


def file_name(title: str) -> str:
    """A file name made of a title: letters, digits and dashes."""
    words = "".join(c if c.isalnum() else " " for c in title).split()
    return "-".join(words)[:60].strip("-") or "conversation"
