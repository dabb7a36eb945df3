"""Saving a conversation to a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from textual import on
from textual.widget import Widget
from textual.widgets import Input

from localspec.errors import UsageError
from localspec.tui.screens.choice import Choice
from localspec.tui.screens.confirm import Confirm
from localspec.tui.screens.form import Form, entry

Kind = Literal["markdown", "json"]
ENDINGS: dict[Kind, str] = {"markdown": ".md", "json": ".json"}


@dataclass(frozen=True)
class SaveRequest:
    """Where to write, and what. A file that was there may be overwritten: the person said so."""

    path: Path
    kind: Kind


class SaveScreen(Form[SaveRequest]):
    """`name` is a file name to begin with, without an ending, in `folder`."""

    TITLE = "Save the conversation"
    WORDS = "Markdown is for people, JSON keeps every figure. Both can be opened again."

    def __init__(self, name: str, folder: Path, kind: Kind = "markdown") -> None:
        super().__init__()
        self.start, self.kind = folder / f"{name}{ENDINGS[kind]}", kind

    def fields(self) -> Iterator[tuple[str, Widget, str]]:
        yield "file", entry("file", str(self.start)), ""
        yield "format", Choice([("markdown", "Markdown"), ("json", "JSON")], self.kind, "kind"), ""

    def read(self, values: Mapping[str, Any]) -> SaveRequest:
        kind = cast(Kind, values["kind"])
        text = str(values["file"]).strip()
        if not text or text.endswith("/"):
            raise UsageError("the name of the file is missing")
        path = Path(text).expanduser()
        if path.suffix.lower() not in (*ENDINGS.values(), ".markdown"):
            path = path.with_name(path.name + ENDINGS[kind])
        if path.is_dir():
            raise UsageError(f"{path} is a folder", "give a file in it")
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {path.parent}")
        return SaveRequest(path, kind)

    @on(Choice.Changed)
    def _ending(self) -> None:
        """The ending follows the format."""
        field = self.query_one("#field-file", Input)
        stem, dot, ending = field.value.rpartition(".")
        if dot and f".{ending.lower()}" in ENDINGS.values():
            field.value = stem + ENDINGS[cast(Kind, self.query_one("#field-kind", Choice).value)]

    def action_keep(self) -> None:
        request = self.check()
        if request is None:
            return
        if not request.path.exists():
            self.dismiss(request)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.dismiss(request)

        self.app.push_screen(Confirm(f"{request.path.name} is there already. Overwrite it?", yes="overwrite"), answered)
