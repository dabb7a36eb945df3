"""Downloads of known models, each done once however many clients ask for it, and given up when the last one leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from localspec import hub
from localspec.errors import ModelNotFoundError
from localspec.serving.threads import in_thread

#: called with the status, the bytes done, and the bytes in all (0 while unknown)
Watcher = Callable[[str, int, int], None]

DOWNLOADING = "downloading"


class _LeftError(Exception):
    """Nobody waits for the download any more."""


class _Pull:
    """One download. Watchers are told in the event loop."""

    def __init__(self, name: str) -> None:
        self.watchers: list[Watcher] = []
        self.left = False
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Path] = in_thread(f"pull {name}", self._run, name)
        # somebody who leaves does not look at how it ended
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _run(self, name: str) -> Path:
        return hub.pull(name, progress=self._report)

    def _report(self, done: int, total: int | None) -> None:
        if self.left:
            raise _LeftError
        self._loop.call_soon_threadsafe(self._tell, done, total or 0)

    def _tell(self, done: int, total: int) -> None:
        for watcher in list(self.watchers):
            watcher(DOWNLOADING, done, total)


class Pulls:
    """The downloads of a process; of one event loop alone."""

    def __init__(self) -> None:
        self._pulls: dict[str, _Pull] = {}

    async def pull(self, name: str, watcher: Watcher) -> None:
        """Download a model of models.txt, and nothing else: a client does not choose what this machine fetches.

        Whoever is cancelled leaves; what has arrived is kept for the next try. Raises `ModelNotFoundError` for other
        names, and `DownloadError`.
        """
        entry = hub.registry().get(name.strip())
        if entry is None:
            raise ModelNotFoundError(
                f"{name[:100]!r} is no model that can be pulled", "`localspec models` lists the names"
            )
        under_way = self._pulls.get(entry.name)
        if under_way is None or under_way.left or under_way.done.done():
            under_way = self._pulls[entry.name] = _Pull(entry.name)
        under_way.watchers.append(watcher)
        try:
            await asyncio.shield(under_way.done)
        finally:
            under_way.watchers.remove(watcher)
            if not under_way.watchers:
                under_way.left = True
                if self._pulls.get(entry.name) is under_way:
                    del self._pulls[entry.name]

    def leave(self) -> None:
        """Give up all downloads."""
        for under_way in self._pulls.values():
            under_way.left = True
