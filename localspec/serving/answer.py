"""One answer under way, between the thread of an engine and whoever reads it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

from localspec.errors import EngineError, LocalspecError, UsageError
from localspec.serving.api import Ended, Request, Update, Written

#: seconds between looks at whether the engine is alive
_LOOK = 1.0
#: seconds within which pieces of text are told together: nobody reads faster, and each costs who reads some time
TOGETHER = 0.015


class Answer:
    """`api.Generation`. `dead` says why nothing more will come, None while something may."""

    def __init__(self, number: int, request: Request, dead: Callable[[], LocalspecError | None]) -> None:
        self.id = number
        self.request = request
        self.slot: int | None = None
        self.deadline = None if request.timeout is None else time.monotonic() + request.timeout
        self._dead = dead
        self._updates: deque[Update | LocalspecError] = deque()
        self._changed = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event | None = None
        self._cancelled = self._ended = self._taken = False
        self._told = 0.0

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants it any more."""
        return self._cancelled

    @property
    def ended(self) -> bool:
        """Whether its last update is there."""
        return self._ended

    @property
    def late(self) -> bool:
        """Whether its time is over."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def cancel(self) -> None:
        """See `api.Generation`."""
        self._cancelled = True

    def put(self, update: Update | LocalspecError) -> None:
        """For the engine: one more update, or the error that ends it. Ignored after the end."""
        with self._changed:
            if self._ended:
                return
            self._ended = isinstance(update, Ended | LocalspecError)
            self._updates.append(update)
            now = time.monotonic()
            if isinstance(update, Written) and now < self._told + TOGETHER:
                return  # the next one, or the end, comes soon
            self._told = now
            self._changed.notify()
            if self._loop is not None and self._event is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._event.set)

    def __iter__(self) -> Iterator[Update]:
        self._take()
        try:
            while not self._over:
                with self._changed:
                    while not self._updates:
                        if not self._changed.wait(_LOOK) and (error := self._dead()) is not None:
                            raise error
                yield from self._drain()
        finally:
            self.cancel()  # nobody reads on

    async def __aiter__(self) -> AsyncIterator[Update]:
        self._take()
        with self._changed:
            self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()
            event = self._event
        try:
            while not self._over:
                event.clear()
                for update in self._drain():
                    yield update
                if self._updates or self._over:
                    continue
                # not wait_for, which may lose a cancellation before Python 3.12
                alarm = self._loop.call_later(_LOOK, event.set)
                try:
                    await event.wait()
                finally:
                    alarm.cancel()
                if not self._updates and (error := self._dead()) is not None:
                    raise error
        finally:
            self.cancel()

    @property
    def _over(self) -> bool:
        return self._ended and not self._updates

    def _take(self) -> None:
        if self._taken:
            raise UsageError("an answer is read once")
        self._taken = True

    def _drain(self) -> Iterator[Update]:
        while self._updates:
            update = self._updates.popleft()
            if isinstance(update, LocalspecError):
                raise update
            while isinstance(update, Written) and self._updates and isinstance(more := self._updates[0], Written):
                update = Written(update.text + more.text, update.tokens + more.tokens, update.logprobs + more.logprobs)
                self._updates.popleft()
            yield update


class TimedOutError(EngineError):
    """The time of a request was over before its answer was."""

    http_status = 504
