"""Every screen with data of its own, for tests that go through all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from textual.screen import Screen

from localspec.errors import UsageError
from localspec.tui.backend import ModelRow
from localspec.tui.screens.ask import Ask
from localspec.tui.screens.confirm import Confirm
from localspec.tui.screens.conversations import ConversationsScreen
from localspec.tui.screens.help import HelpScreen
from localspec.tui.screens.logs import LogScreen
from localspec.tui.screens.methods import MethodPicker, MethodRow, method_rows
from localspec.tui.screens.models import ModelPicker
from localspec.tui.screens.problem import Problem
from localspec.tui.screens.sampling import SamplingScreen
from localspec.tui.screens.save import SaveRequest, SaveScreen
from localspec.tui.screens.settings import SettingsScreen, ThemePicker
from localspec.tui.screens.system import SystemScreen

MODELS = [
    ModelRow("big-8b", None, quant="Q4_K_M", licence="Apache-2.0", role="target", pull="localspec pull big-8b"),
    ModelRow("smollm2-135m-instruct", Path("/models/smollm2.gguf"), 98_000_000, "Q4_1", "Apache-2.0", "target"),
    ModelRow("coder-1.5b", Path("/models/coder.gguf"), 1_120_000_000, "Q4_K_M", "Apache-2.0", "target"),
]
LEVELS = (logging.INFO, logging.WARNING, logging.ERROR)


@dataclass
class Row:
    id: str
    title: str
    updated: str = "2026-03-01T10:00:00Z"
    model: str | None = "smollm2-135m-instruct"
    n_messages: int = 2


@dataclass
class Shelf:
    """Three conversations, one of which cannot be deleted."""

    kept: list[Row] = field(
        default_factory=lambda: [Row("a", "Queues in Python"), Row("b", "Stacks"), Row("c", "東京 🎉", n_messages=1)]
    )
    problems: list[str] = field(default_factory=list)

    def entries(self) -> tuple[list[Row], list[str]]:
        return list(self.kept), self.problems

    def rename(self, id: str, title: str) -> None:
        next(row for row in self.kept if row.id == id).title = title

    def delete(self, id: str) -> None:
        if id == "c":
            raise UsageError("c cannot be deleted: permission denied", "look at the rights of the folder")
        self.kept = [row for row in self.kept if row.id != id]


def conversations(
    shelf: Shelf, exported: list[tuple[str, SaveRequest]] | None = None, folder: Path | None = None
) -> ConversationsScreen:
    done = [] if exported is None else exported
    now = datetime(2026, 3, 1, 12, 30, tzinfo=timezone.utc)
    return ConversationsScreen(shelf, lambda id, to: done.append((id, to)), "b", folder, now)


@dataclass(frozen=True)
class Line:
    text: str
    level: int = logging.INFO
    time: float = 0.0
    name: str = "localspec.engine"


SCREENS: dict[str, Callable[[], Screen[Any]]] = {
    "models": lambda: ModelPicker(MODELS[:2], "smollm2-135m-instruct"),
    "methods": lambda: MethodPicker(
        [*method_rows(["auto", "ptd", "plain"]), MethodRow("fly", "forgives", lossy=True)], "ptd"
    ),
    "sampling": lambda: SamplingScreen({"seed": 42}),
    "system": lambda: SystemScreen("Answer briefly."),
    "conversations": lambda: conversations(Shelf()),
    "save": lambda: SaveScreen("talk", Path("/")),
    "help": lambda: HelpScreen(),
    "log": lambda: LogScreen(lambda: [Line(f"line {i}", LEVELS[i % 3]) for i in range(40)]),
    "settings": lambda: SettingsScreen({}, ["localspec-dark", "nord"]),
    "themes": lambda: ThemePicker(["localspec-dark", "localspec-light", "ansi-dark"]),
    "ask": lambda: Ask("A new title", "Queues"),
    "confirm": lambda: Confirm("Delete it?", "It is gone for good.", yes="delete"),
    "problem": lambda: Problem("It failed", "Do this.", ["because of this", "and that"] * 10),
}
