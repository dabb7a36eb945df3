"""The requests that wait for a slot: bounded, and fair to those who ask."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

from localspec.serving.answer import Answer
from localspec.serving.api import BusyError


class FairQueue:
    """First come, first served for each owner, and the owners in turn. At most `most` answers wait. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        #: by owner, in the order of their turns
        self._waiting: OrderedDict[str, deque[Answer]] = OrderedDict()

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def push(self, answer: Answer, n_free: int = 0) -> None:
        """Raises `BusyError` when the queue is full; `n_free` more fit, for as many slots are free."""
        with self._lock:
            n = sum(map(len, self._waiting.values()))
            if n >= self._most + n_free:
                raise BusyError(
                    f"{n} requests wait already", "try again in a moment, or serve with a longer --queue", retry_after=1
                )
            self._waiting.setdefault(answer.request.owner, deque()).append(answer)

    def pop(self) -> Answer | None:
        """The next one, None if nobody waits."""
        with self._lock:
            if not self._waiting:
                return None
            owner, answers = next(iter(self._waiting.items()))
            answer = answers.popleft()
            if answers:
                self._waiting.move_to_end(owner)
            else:
                del self._waiting[owner]
            return answer

    def remove_unwanted(self) -> list[Answer]:
        """Take out those that were cancelled or whose time is over."""
        with self._lock:
            unwanted = [a for answers in self._waiting.values() for a in answers if a.cancelled or a.late]
            for answer in unwanted:
                answers = self._waiting[answer.request.owner]
                answers.remove(answer)
                if not answers:
                    del self._waiting[answer.request.owner]
            return unwanted
