"""Whose turn it is: the engines of a process share its cores.

Two passes at once would each wait for threads that the other keeps from running, and both would take far longer than
one after the other.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class Turns:
    """A lock that goes to those who wait in the order in which they came: `with turns: ...`. Not reentrant.

    `threading.Lock` would often go back to the engine that let go of it a moment ago.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Event] = deque()

    def __enter__(self) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            called = threading.Event()
            self._waiting.append(called)
        called.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._taken = False


#: those of this process
TURNS = Turns()
