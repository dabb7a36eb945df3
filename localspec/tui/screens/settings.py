"""How the chat looks and behaves, and a list of themes alone. Themes are shown while one chooses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import OptionList

from localspec.errors import UsageError
from localspec.tui.screens.choice import Choice
from localspec.tui.screens.form import Form, entry
from localspec.tui.screens.picker import Picker

PANELS = (("panel", "panel"), ("line", "line"), ("off", "off"))
SWITCH = ((True, "on"), (False, "off"))
MAX_FPS = 60


class SettingsScreen(Form[dict[str, Any]]):
    """Gives "theme", "panel", "tint", "markdown", "mouse" and "fps" (None: as often as is good). `values` are the ones
    in use, `themes` the names that can be chosen."""

    TITLE = "Settings"

    def __init__(self, values: Mapping[str, Any], themes: Sequence[str]) -> None:
        super().__init__()
        self.given, self.themes = values, themes
        self.before = ""

    def on_mount(self) -> None:
        self.before = self.app.theme

    def fields(self) -> Iterator[tuple[str, Widget, str]]:
        given = self.given
        names = list(self.themes) or [self.app.theme]
        theme = Choice([(name, name) for name in names], given.get("theme") or self.app.theme, "theme")
        yield "theme", theme, "colours"
        yield "panel", Choice(PANELS, given.get("panel", "panel"), "panel"), "trees and figures"
        yield "tint", Choice(SWITCH, given.get("tint", False), "tint"), "colour tokens by origin"
        yield "markdown", Choice(SWITCH, given.get("markdown", True), "markdown"), "lay answers out"
        yield "mouse", Choice(SWITCH, given.get("mouse", True), "mouse"), "off leaves it to the terminal"
        fps = given.get("fps")
        yield "updates", entry("fps", "" if fps is None else f"{fps:g}", "auto"), "a second; fewer on slow links"

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        text = str(values["fps"]).strip()
        try:
            fps = int(text) if text and text != "auto" else None
        except ValueError:
            raise UsageError(f"updates: {text!r} is no whole number", "or leave it empty") from None
        if fps is not None and not 1 <= fps <= MAX_FPS:
            raise UsageError(f"updates are from 1 to {MAX_FPS} a second", "or leave it empty")
        return {**values, "fps": fps}

    @on(Choice.Changed, "#field-theme")
    def _preview(self, event: Choice.Changed) -> None:
        self.app.theme = str(event.choice.value)

    def action_back(self) -> None:
        self.app.theme = self.before
        super().action_back()


class ThemePicker(Picker[str, str]):
    """Gives the name of a theme."""

    TITLE = "Themes"

    def __init__(self, themes: Sequence[str]) -> None:
        super().__init__(themes)
        self.before = ""

    def on_mount(self) -> None:
        self.before = self.app.theme
        super().on_mount()

    def line(self, row: str) -> Content:
        return Content(("● " if row == self.before else "  ") + row)

    def about(self, row: str) -> str:
        return "The colours of the terminal itself" if row.startswith("ansi") else ""

    def in_use(self, row: str) -> bool:
        return row == self.app.theme

    @on(OptionList.OptionHighlighted)
    def _preview(self) -> None:
        if self.row is not None:
            self.app.theme = self.row

    def take(self, row: str) -> None:
        self.dismiss(row)

    def action_back(self) -> None:
        self.app.theme = self.before
        super().action_back()
