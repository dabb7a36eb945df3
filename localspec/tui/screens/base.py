"""What all screens have in common: a box with a title, and a line that says which keys do what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from localspec.text import without_controls
from localspec.tui import palette
from localspec.tui.keys import key_text
from localspec.tui.themes import tone_of

Result = TypeVar("Result")


def plain(text: str) -> Content:
    """Text from anywhere, as content: no markup in it is obeyed, and no control characters get to the terminal."""
    return Content(without_controls(text))


class Sheet(ModalScreen[Result | None]):
    """A box in the middle of the screen, or the whole screen where that is small. Escape leaves it without a result.

    Subclasses give `TITLE`, the content in `body()`, and bindings; those with a description are listed at the bottom.
    """

    CSS_PATH = "screens.tcss"
    AUTO_FOCUS = "Input, TextArea, Choice, OptionList, RichLog, VerticalScroll, Button"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (76, "-wide")]  # noqa: RUF012 - a list in Textual
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "back")]

    def compose(self) -> ComposeResult:
        box = Vertical(classes="sheet")
        box.border_title = Content(str(self.TITLE or ""))
        with box:
            yield from self.body()
            yield Static(self._keys(), classes="keys")

    def body(self) -> Iterable[Widget]:
        """The widgets between the title and the keys."""
        raise NotImplementedError

    def action_back(self) -> None:
        self.dismiss(None)

    def key_words(self, binding: Binding) -> str:
        """What the line of keys says about one."""
        return binding.description

    def look(self, name: str) -> Style:
        """A style of the palette, in the tone of the theme."""
        return palette.style(name, tone_of(self.app.current_theme))

    def copy(self, text: str, what: str) -> None:
        """Put text on the clipboard, and say so."""
        self.app.copy_to_clipboard(text)
        self.notify(f"Copied {what}", timeout=2, markup=False)

    def _keys(self) -> Content:
        """The keys of this screen, which the mouse can press as well."""
        shown: dict[str, Binding] = {}
        for owner in type(self).__mro__:
            for binding in Binding.make_bindings(_own_bindings(owner)):
                if binding.description:
                    shown.setdefault(binding.action, binding)
        rank = {"enter": 0, "escape": 2}
        parts = [
            Content.from_markup(
                f"[@click=screen.{binding.action}][b]{key_text(binding.key)}[/b] $words[/]",
                words=self.key_words(binding),
            )
            for binding in sorted(shown.values(), key=lambda binding: rank.get(binding.key, 1))
        ]
        return Content("  ").join(parts)


def _own_bindings(owner: type[Any]) -> list[BindingType]:
    return list(vars(owner).get("BINDINGS", ())) if issubclass(owner, Sheet) else []
