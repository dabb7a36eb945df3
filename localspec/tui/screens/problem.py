"""Something went wrong: what, why, and the way out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from localspec.tui.screens.base import Sheet, plain


class Problem(Sheet[None]):
    """Shows a message with its hint, and `details`, a line each, such as the problems of a config file."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "back", "close"),
        Binding("ctrl+y", "copy_all", "copy"),
    ]

    def __init__(
        self, message: str, hint: str | None = None, details: Sequence[str] = (), title: str = "That did not work"
    ) -> None:
        super().__init__(classes="problem")
        self.message, self.hint, self.details, self.heading = message, hint, tuple(details), title

    def body(self) -> Iterable[Widget]:
        parts = [Static(plain(self.message), classes="question")]
        parts += [Static(plain(f"· {line}"), classes="detail") for line in self.details]
        if self.hint:
            parts.append(Static(plain(self.hint), classes="hint"))
        yield VerticalScroll(*parts, classes="text")

    def on_mount(self) -> None:
        self.query_one(".sheet").border_title = Content(self.heading)

    def action_copy_all(self) -> None:
        lines = [self.message, *self.details, *([self.hint] if self.hint else [])]
        self.copy("\n".join(lines), "the message")
