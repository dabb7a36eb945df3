"""Choosing a model, and what to do about those that are not here yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from localspec.tui.backend import ModelRow
from localspec.tui.screens.base import plain
from localspec.tui.screens.picker import Picker

FIRST_RUN = """The model that comes with localspec is small: it answers at once, so that you can try everything, but it
knows little. Larger ones are downloaded once, with `localspec pull NAME` in a shell, and listed here from then on."""

#: longer names are cut
MAX_NAME = 44


class ModelPicker(Picker[ModelRow, ModelRow]):
    """Gives the row of a model that is on this machine. `current` is the name of the one in use."""

    TITLE = "Models"
    FILTER = "type to filter, or the path of a .gguf file"
    NOTHING = "there are no models: `localspec pull NAME` downloads one, `localspec models` lists them"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+y", "copy_command", "copy command"),
    ]

    def __init__(self, rows: Sequence[ModelRow], current: str | None = None) -> None:
        super().__init__(sorted(rows, key=lambda row: row.path is None))
        self.current = current
        self.width = min(max((cell_len(row.name) for row in rows), default=0), MAX_NAME)

    def head(self) -> Iterable[Widget]:
        if sum(row.path is not None for row in self.rows) <= 1:
            yield Static(Content(" ".join(FIRST_RUN.split())), classes="words when-tall")

    def line(self, row: ModelRow) -> Content:
        mark = "●" if self.in_use(row) else " "
        name = plain(row.name + " " * (self.width - cell_len(row.name)))
        here = "not here" if row.path is None else "" if row.size is None else size_text(row.size)
        facts = f"  {here:>8}  {row.quant:<6}  {row.licence}"
        return Content.assemble(f"{mark} ", name if row.path else name.stylize("dim"), (facts, "dim"))

    def in_use(self, row: ModelRow) -> bool:
        return row.name == self.current

    def more(self, text: str) -> Sequence[ModelRow]:
        """The file that the filter names, if it names one."""
        path = Path(text).expanduser()
        if not text.lower().endswith(".gguf") or not path.is_file():
            return ()
        return [ModelRow(path.name, path.absolute(), path.stat().st_size)]

    def about(self, row: ModelRow) -> Content:
        if row.path is None:
            command = Content.assemble((row.pull or f"localspec pull {row.name}", "bold"))
            return Content.assemble("Not on this machine. This gets it, in a shell:\n", command)
        facts = [fact for fact in (ROLES.get(row.role, row.role), row.licence) if fact]
        return plain("\n".join(filter(None, (" · ".join(facts), str(row.path)))))

    def take(self, row: ModelRow) -> None:
        if row.path is not None:
            self.dismiss(row)
        else:
            self.action_copy_command()

    def action_copy_command(self) -> None:
        if (row := self.row) is not None and row.path is None:
            self.copy(row.pull or f"localspec pull {row.name}", "the command; run it in a shell")


ROLES = {"target": "a model to talk to", "draft": "small: of use as the draft of a larger one", "heads": "draft heads"}


def size_text(size: int) -> str:
    """A size in bytes for people."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
