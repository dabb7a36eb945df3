"""A question to be answered with yes or no."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from localspec.tui.screens.base import Sheet, plain


class Confirm(Sheet[bool]):
    """Gives True for yes; no, and escape, give None. Enter does nothing, so that no habit says yes."""

    TITLE = "Sure?"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "yes", "yes"), Binding("n", "back", "no")]

    def __init__(self, question: str, more: str = "", yes: str = "yes") -> None:
        super().__init__()
        self.question, self.more, self.yes = question, more, yes

    def body(self) -> Iterable[Widget]:
        yield Static(plain(self.question), classes="question")
        if self.more:
            yield Static(plain(self.more), classes="words")

    def key_words(self, binding: Binding) -> str:
        return self.yes if binding.action == "yes" else super().key_words(binding)

    def action_yes(self) -> None:
        self.dismiss(True)
