"""An opener whose engines are fakes, with a memory of its own."""

from __future__ import annotations

import threading
from pathlib import Path

from localspec.loading import Progress
from localspec.serving.residents import ServedEngine
from tests.server.fake import FakeEngine


class OpenedEngine(FakeEngine):
    """A fake engine that can be closed and get stuck."""

    def __init__(self, name: str, opener: FakeOpener) -> None:
        super().__init__(name)
        self.opener = opener
        self.stuck_for: float | None = None
        self.closed = False

    def stuck(self) -> float | None:
        return self.stuck_for

    def close(self) -> None:
        self.closed = True
        self.opener.log.append(f"close {self.facts.name}")


class FakeOpener:
    """A model takes as many bytes as its file has, on a machine with `memory` bytes. `gates` hold loads up by name,
    `failures` end them."""

    def __init__(self, memory: int | None = None) -> None:
        self.memory = memory
        self.log: list[str] = []
        self.engines: dict[str, OpenedEngine] = {}
        self.gates: dict[str, threading.Event] = {}
        self.failures: dict[str, Exception] = {}
        self.in_progress = threading.Event()

    def need(self, path: Path) -> int:
        return path.stat().st_size

    def free(self) -> int | None:
        return None if self.memory is None else self.memory - self.used()

    def used(self) -> int:
        return sum(path.stat().st_size for path in self._open_paths())

    def _open_paths(self) -> list[Path]:
        return [engine.path for engine in self.engines.values() if not engine.closed]

    def open(self, path: Path, progress: Progress) -> ServedEngine:
        name = path.stem
        self.log.append(f"open {name}")
        progress("loading the model", 0.25)
        self.in_progress.set()
        if gate := self.gates.get(name):
            while not gate.wait(0.01):
                progress("loading the model", 0.5)
        if name in self.failures:
            raise self.failures[name]
        engine = self.engines[name] = OpenedEngine(name, self)
        engine.path = path
        return engine
