"""An app with nothing but a screen on top, so that screens are tested alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.app import App, ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from localspec.tui import themes


class Harness(App[None]):
    """Shows the screen that `make` gives, and keeps what it gave back and what was copied."""

    def __init__(self, make: Callable[[], Screen[Any]], theme: str = themes.DEFAULT) -> None:
        super().__init__(ansi_color=themes.ansi_color())
        themes.install(self)
        self.theme = theme
        self.make = make
        self.results: list[Any] = []
        self.copied: list[str] = []
        self.top: Screen[Any] | None = None

    def compose(self) -> ComposeResult:
        yield Static("behind the screen")

    def on_mount(self) -> None:
        self.push_screen(self.make(), self.results.append)

    def copy_to_clipboard(self, text: str) -> None:
        self.copied.append(text)
