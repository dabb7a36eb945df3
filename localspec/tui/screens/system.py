"""Writing the system message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static, TextArea

from localspec.tui.screens.base import Sheet


class SystemScreen(Sheet[str]):
    """Gives the text, without blank space around it; "" is no system message."""

    TITLE = "System message"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+s", "keep", "apply")]

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self.text = text

    def body(self) -> Iterable[Widget]:
        yield Static(Content("What the model reads before the conversation. Empty: none."), classes="words when-tall")
        area = TextArea(self.text, compact=True, soft_wrap=True, tab_behavior="focus")
        area.cursor_blink = False
        yield area

    def on_mount(self) -> None:
        area = self.query_one(TextArea)
        area.move_cursor(area.document.end)

    def action_keep(self) -> None:
        self.dismiss(self.query_one(TextArea).text.strip())
