"""A list to choose from, with a filter: what one types narrows it, the arrows move in it, enter takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Generic, TypeVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.tui.screens.base import Result, Sheet, plain

Row = TypeVar("Row")


class Picker(Sheet[Result], Generic[Row, Result]):
    """The base of lists. The filter keeps the focus, so that typing works at any time.

    Bindings here have no priority: that would run them before the filter has got what was typed just before.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "choose"),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "move_page(-1)", show=False),
        Binding("pagedown", "move_page(1)", show=False),
    ]
    #: what the filter says while it is empty
    FILTER: ClassVar[str] = "type to filter"
    #: what stands in place of an empty list
    NOTHING: ClassVar[str] = "there is nothing to choose from"

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__(classes="picker")
        self.rows = list(rows)
        self.shown: list[Row] = []

    # for subclasses

    def line(self, row: Row) -> Content:
        """A row in the list."""
        raise NotImplementedError

    def words(self, row: Row) -> str:
        """What the filter looks at."""
        return self.line(row).plain

    def about(self, row: Row) -> Content | str:
        """What is told below the list of the row under the cursor."""
        return ""

    def in_use(self, row: Row) -> bool:
        """Whether the cursor begins here."""
        return False

    def take(self, row: Row) -> None:
        """Enter, or a click, on a row."""
        raise NotImplementedError

    def more(self, text: str) -> Sequence[Row]:
        """Rows that are not in the list, and come of what the filter says."""
        return ()

    def head(self) -> Iterable[Widget]:
        """Widgets above the filter."""
        return ()

    # the screen

    def body(self) -> Iterable[Widget]:
        yield from self.head()
        entry = Input(placeholder=self.FILTER, compact=True, classes="filter")
        entry.cursor_blink = False
        yield entry
        rows = OptionList(classes="rows", compact=True)
        rows.can_focus = False
        yield rows
        yield Static(classes="about")

    def on_mount(self) -> None:
        self.refill()

    @property
    def option_list(self) -> OptionList:
        return self.query_one(".rows", OptionList)

    @property
    def row(self) -> Row | None:
        """The row under the cursor."""
        at = self.option_list.highlighted
        return self.shown[at] if at is not None and at < len(self.shown) else None

    def refill(self, keep: int | None = None) -> None:
        """Show the rows that the filter lets through; the cursor is at `keep`, or at the current row."""
        text = self.query_one(".filter", Input).value
        wanted = text.casefold().split()
        self.shown = [row for row in self.rows if all(word in self.words(row).casefold() for word in wanted)]
        self.shown += self.more(text.strip())
        self.option_list.clear_options()
        self.option_list.add_options(Option(self.line(row)) for row in self.shown)
        if not self.shown:
            self.option_list.add_option(
                Option(Content("nothing matches" if self.rows else self.NOTHING), disabled=True)
            )
            self.tell("")
            return
        current = next((i for i, row in enumerate(self.shown) if self.in_use(row)), 0)
        self.option_list.highlighted = min(current if keep is None else keep, len(self.shown) - 1)

    def tell(self, text: Content | str) -> None:
        """Say something below the list."""
        self.query_one(".about", Static).update(plain(text) if isinstance(text, str) else text)

    @on(Input.Changed, ".filter")
    def _narrow(self) -> None:
        self.refill()

    @on(OptionList.OptionHighlighted)
    def _explain(self) -> None:
        if (row := self.row) is not None:
            self.tell(self.about(row))

    @on(OptionList.OptionSelected)
    @on(Input.Submitted, ".filter")
    def _entered(self) -> None:
        self.action_choose()

    def action_choose(self) -> None:
        if (row := self.row) is not None:
            self.take(row)

    def action_move(self, by: int) -> None:
        """Move the cursor by rows, around the ends."""
        if self.shown:
            self.option_list.highlighted = ((self.option_list.highlighted or 0) + by) % len(self.shown)

    def action_move_page(self, by: int) -> None:
        """Move the cursor by what the list shows at once. The list's own way fails where it has no room at all."""
        if self.shown:
            at = (self.option_list.highlighted or 0) + by * max(1, self.option_list.size.height)
            self.option_list.highlighted = min(max(at, 0), len(self.shown) - 1)
