"""Choosing how to speculate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from localspec.tui.screens.picker import Picker

#: what a method does, in a line; families of names end in "*"
TEXTS = {
    "auto": "the best method known for the model: ptd+heads where it has draft heads, else ptd",
    "ptd": "drafts from what this text and earlier ones taught; the model grows its own tree as it verifies",
    "ptd+heads": "ptd and draft heads in one tree",
    "heads": "draft heads that read the model's hidden state",
    "draft": "a small second model writes ahead",
    "draft-chain": "a small second model writes ahead, always in one chain",
    "lookup": "drafts from earlier occurrences of the last tokens alone",
    "plain": "no speculation: one token a step",
    "entmtp*": "trees from the calibrated bank, chosen step by step by how sure the model is",
    "hydra*": "Hydra heads as they were published, to compare with",
    "medusa*": "Medusa heads as they were published, to compare with",
    "ptd-published": "ptd as it was published, to compare with",
    "ptd-chain": "ptd without branches, to compare with",
    "lookahead": "lookahead decoding, to compare with",
}


@dataclass(frozen=True)
class MethodRow:
    """A method that can be chosen. A `lossy` one changes the distribution of texts."""

    name: str
    text: str = ""
    lossy: bool = False


def method_rows(names: Iterable[str]) -> list[MethodRow]:
    """Rows for methods by name, with what is known of them here."""
    return [MethodRow(name, _text(name)) for name in names]


def _text(name: str) -> str:
    family = (text for key, text in TEXTS.items() if key.endswith("*") and name.startswith(key[:-1]))
    return TEXTS.get(name) or next(family, "")


class MethodPicker(Picker[MethodRow, str]):
    """Gives the name of a method. `current` is the one in use."""

    TITLE = "Methods"
    NOTHING = "no method can be used before a model is loaded"

    def __init__(self, rows: Sequence[MethodRow], current: str | None = None) -> None:
        super().__init__(rows)
        self.current = current
        self.width = max((cell_len(row.name) for row in rows), default=0)

    def line(self, row: MethodRow) -> Content:
        mark = "●" if self.in_use(row) else " "
        name = row.name + " " * (self.width - cell_len(row.name))
        lossy = ("lossy  ", "bold underline") if row.lossy else ""
        return Content.assemble(f"{mark} {name}  ", lossy, (row.text, "dim"))

    def about(self, row: MethodRow) -> Content:
        kept = (
            "Lossy: texts do not have the model's distribution."
            if row.lossy
            else "Lossless, as long as drafts are accepted strictly: the same seed gives the text of plain decoding."
        )
        text = row.text[:1].upper() + row.text[1:]
        return Content("\n".join(filter(None, (f"{text}." if text else "", kept))))

    def in_use(self, row: MethodRow) -> bool:
        return row.name == self.current

    def take(self, row: MethodRow) -> None:
        self.dismiss(row.name)
