"""A model in memory, or on its way there, and what makes it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from localspec.serving.api import Available, Engine

if TYPE_CHECKING:
    from localspec.loading import Progress


class ServedEngine(Engine, Protocol):
    """An engine that its host can end."""

    def close(self) -> None:
        """End everything that it does and free the model. May take as long as a step. Idempotent."""
        ...


class Opener(Protocol):
    """What makes engines. Its methods block, and are called in threads."""

    def need(self, path: Path) -> int:
        """Bytes of memory that the model will take. Raises `ModelError` for a file that cannot be used."""
        ...

    def free(self) -> int | None:
        """Bytes that are free for a model now; None where that cannot be told."""
        ...

    def used(self) -> int | None:
        """Bytes of memory that this process takes; None where that cannot be told."""
        ...

    def open(self, path: Path, progress: Progress) -> ServedEngine:
        """Load a model. What `progress` raises ends that, and is raised here."""
        ...


@dataclass(eq=False)
class Resident:
    """`n_bytes` is the memory that it is counted with, `users` how many hold it. After `keep` seconds of idleness it
    goes; None keeps it. `loading` ends when `engine` is there. Of the event loop alone."""

    model: Available
    keep: float | None
    n_bytes: int = 0
    users: int = 0
    engine: ServedEngine | None = None
    loading: asyncio.Task[None] | None = None
    idle_since: float = field(default_factory=time.monotonic)

    @property
    def idle(self) -> bool:
        """Whether it is loaded and nobody holds it."""
        return self.engine is not None and self.users == 0

    @property
    def left(self) -> float | None:
        """Seconds until it goes if nobody takes it; None for never."""
        if self.keep is None:
            return None
        return self.keep if self.users else self.keep - (time.monotonic() - self.idle_since)

    def hold(self) -> None:
        """One user more."""
        self.users += 1

    def release(self) -> None:
        """One user less."""
        self.users -= 1
        self.idle_since = time.monotonic()
