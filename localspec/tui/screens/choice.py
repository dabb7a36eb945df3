"""A field with a few values, one of which holds: left and right change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static


class Choice(Static, can_focus=True):
    """One of `options`, each a value and how it is written."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", show=False),
        Binding("right,space", "step(1)", show=False),
    ]
    at: reactive[int] = reactive(0)

    class Changed(Message):
        """Another value was chosen by the person."""

        def __init__(self, choice: Choice) -> None:
            super().__init__()
            self.choice = choice

        @property
        def control(self) -> Choice:
            return self.choice

    def __init__(self, options: Sequence[tuple[object, str]], value: object, name: str) -> None:
        super().__init__(id=f"field-{name}", classes="choice")
        self.options = list(options)
        values = [option for option, _ in self.options]
        self.set_reactive(Choice.at, values.index(value) if value in values else 0)

    @property
    def value(self) -> object:
        return self.options[self.at][0]

    def render(self) -> Content:
        return Content.assemble(("‹ ", "dim"), self.options[self.at][1], (" ›", "dim"))

    def action_step(self, by: int) -> None:
        self.at = (self.at + by) % len(self.options)
        self.post_message(self.Changed(self))

    def on_click(self) -> None:
        self.action_step(1)
