"""One line of text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input

from localspec.tui.screens.base import Sheet
from localspec.tui.screens.form import entry


class Ask(Sheet[str]):
    """Gives what was typed, without blank space around it; it may be empty."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "keep", "apply")]

    def __init__(self, title: str, text: str = "") -> None:
        super().__init__()
        self.heading, self.text = title, text

    def body(self) -> Iterable[Widget]:
        yield entry("text", self.text)

    def on_mount(self) -> None:
        self.query_one(".sheet").border_title = Content(self.heading)

    @on(Input.Submitted)
    def action_keep(self) -> None:
        self.dismiss(self.query_one("#field-text", Input).value.strip())
