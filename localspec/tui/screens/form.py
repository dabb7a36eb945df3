"""Fields one below the other: up and down move between them, enter keeps all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from localspec.errors import UsageError
from localspec.tui.screens.base import Result, Sheet, plain
from localspec.tui.screens.choice import Choice

#: how the ids of fields begin, so that no style for another widget meets them
FIELD = "field-"


def entry(name: str, value: str, placeholder: str = "") -> Input:
    """A field with text, for `Form.fields`."""
    made = Input(value, placeholder=placeholder, compact=True, id=FIELD + name, select_on_focus=False)
    made.cursor_blink = False
    return made


class Form(Sheet[Result]):
    """The base of forms. `read` turns what stands in the fields into the result; what it raises is shown at once, and
    enter keeps nothing until it is put right."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "keep", "apply"),
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
    ]
    #: a line or two above the fields
    WORDS: ClassVar[str] = ""

    def fields(self) -> Iterator[tuple[str, Widget, str]]:
        """Label, field and a note for each."""
        raise NotImplementedError

    def read(self, values: Mapping[str, Any]) -> Result:
        """The result of fields by name. Raises `UsageError`."""
        raise NotImplementedError

    def body(self) -> Iterable[Widget]:
        if self.WORDS:
            yield Static(Content(self.WORDS), classes="words when-tall")
        rows = [
            Horizontal(Label(Content(label)), field, Static(Content(note), classes="note when-wide"), classes="field")
            for label, field, note in self.fields()
        ]
        yield VerticalScroll(*rows, classes="fields", can_focus=False)
        yield Static(classes="wrong")

    def values(self) -> dict[str, Any]:
        """What stands in the fields, by name."""
        fields = (*self.query(".field > Input").results(Input), *self.query(Choice))
        return {str(field.id).removeprefix(FIELD): field.value for field in fields}

    def check(self) -> Result | None:
        """The result, or None after saying what is wrong."""
        reason = ""
        result = None
        try:
            result = self.read(self.values())
        except UsageError as error:
            reason = str(error)
        wrong = self.query_one(".wrong", Static)
        wrong.update(plain(reason))
        wrong.set_class(bool(reason), "-told")
        return result

    @on(Input.Changed)
    @on(Choice.Changed)
    def _check(self) -> None:
        self.check()

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.action_keep()

    def action_keep(self) -> None:
        if (result := self.check()) is not None:
            self.dismiss(result)
