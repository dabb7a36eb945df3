"""Requests for embeddings at an engine, which finds time for them between its steps."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from localspec.errors import LocalspecError, UsageError
from localspec.serving.api import BusyError, Pooled
from localspec.serving.embedding import Embedder, Job


@dataclass(eq=False)
class _Asked:
    """A request. Its future stays pending until the end, so that it can be cancelled all the while."""

    inputs: Sequence[Sequence[int]]
    normalize: bool
    future: Future[Pooled]
    job: Job | None = None


class Embeddings:
    """At most `most` requests that wait, taken in turn. `make` makes what embeds, when that is first asked for; None
    refuses. All but `put` and `len` is for the engine's thread alone."""

    def __init__(self, make: Callable[[], Embedder] | None, most: int) -> None:
        self._make = make
        self._most = most
        self._embedder: Embedder | None = None
        self._waiting: queue.SimpleQueue[_Asked] = queue.SimpleQueue()
        self._current: _Asked | None = None
        self._ended: LocalspecError | None = None

    def __len__(self) -> int:
        return self._waiting.qsize() + (self._current is not None)

    def put(self, inputs: Sequence[Sequence[int]], normalize: bool) -> Future[Pooled]:
        """Ask for embeddings; to cancel the future ends that within a step. Raises `BusyError`."""
        if self._waiting.qsize() >= self._most:
            raise BusyError(f"{self._most} requests for embeddings wait already", "try again later")
        asked = _Asked(inputs, normalize, Future())
        self._waiting.put(asked)
        if self._ended is not None:  # perhaps nobody looks any more
            self._drain(self._ended)
        return asked.future

    def step(self) -> bool:
        """One pass of the model for the request that is due; False when there is none."""
        if self._current is None:
            if self._waiting.empty():
                return False
            self._current = self._waiting.get()
        asked = self._current
        try:
            if asked.future.cancelled() or self._go_on(asked):
                self._current = None
        except Exception as error:
            self._current = None
            _fail(asked, error)
        return True

    def _go_on(self, asked: _Asked) -> bool:
        if asked.job is None:
            asked.job = self._ready().begin(asked.inputs, asked.normalize)
        if not asked.job.step():
            return False
        result = asked.job.result()
        if asked.future.set_running_or_notify_cancel():
            asked.future.set_result(result)
        return True

    def _ready(self) -> Embedder:
        if self._make is None:
            raise UsageError("this engine makes no embeddings")
        if self._embedder is None:
            self._embedder = self._make()
        return self._embedder

    def rest(self) -> None:
        """Free what has not been used for a while. For when there is nothing to do."""
        if self._embedder is not None:
            self._embedder.release()

    def end(self, error: LocalspecError) -> None:
        """End all requests with an error, those to come too."""
        self._ended = error
        if self._current is not None:
            _fail(self._current, error)
            self._current = None
        self._drain(error)

    def _drain(self, error: LocalspecError) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                _fail(self._waiting.get_nowait(), error)


def _fail(asked: _Asked, error: Exception) -> None:
    if asked.future.set_running_or_notify_cancel():
        asked.future.set_exception(error)
