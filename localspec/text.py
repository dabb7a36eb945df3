"""Text from tokens, as a stream: only what is certain leaves.

Bytes of an unfinished character and a possible beginning of a stop string are held back. Nothing here knows models.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence

from localspec.errors import UsageError

# C0 and C1 controls but tab and newline
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def without_controls(text: str) -> str:
    """The text as a terminal may get it: without characters that would move its cursor or change it."""
    return _CONTROL.sub("", text)


class _Matcher:
    """Knuth-Morris-Pratt matching of one stop string: constant time a character, whatever the length of the stop.

    `state` is the length of the longest suffix seen so far that begins the stop string.
    """

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.state = 0
        self._fallback = [0] * len(stop)
        k = 0
        for i in range(1, len(stop)):
            while k and stop[i] != stop[k]:
                k = self._fallback[k - 1]
            k += stop[i] == stop[k]
            self._fallback[i] = k

    def feed(self, char: str) -> bool:
        """Take one character in; True when the stop string is complete. Not to be fed after that."""
        state = self.state
        while state and char != self.stop[state]:
            state = self._fallback[state - 1]
        if char == self.stop[state]:
            state += 1
        self.state = state
        return state == len(self.stop)


class TextStream:
    """Turns tokens into deltas that are valid text and lie before any stop string.

    The joined deltas (and `flush`) are the UTF-8 text of all tokens, invalid bytes as U+FFFD, cut before the stop
    string that is complete first; of several complete at the same character the longest counts. How the bytes are
    spread over tokens makes no difference.

    Raises `UsageError` for an empty stop string.
    """

    def __init__(self, piece: Callable[[int], bytes], stops: Sequence[str] = ()) -> None:
        if not all(stops):
            raise UsageError("a stop string is empty", "leave it out")
        self.stopped: str | None = None
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._matchers = [_Matcher(stop) for stop in stops]
        self._held = ""

    def push(self, token: int) -> str:
        """Take one token in and return the text that became certain; "" after a stop string."""
        if self.stopped is not None:
            return ""
        return self._advance(self._decoder.decode(self._piece(token)))

    def flush(self) -> str:
        """The end: return all that was held back, an unfinished character as U+FFFD."""
        if self.stopped is not None:
            return ""
        text = self._advance(self._decoder.decode(b"", final=True))
        if self.stopped is None:
            text, self._held = text + self._held, ""
        return text

    def _advance(self, text: str) -> str:
        if not self._matchers:
            return text
        for i, char in enumerate(text):
            complete = [matcher.stop for matcher in self._matchers if matcher.feed(char)]
            if complete:
                self.stopped = max(complete, key=len)
                text = self._held + text[: i + 1]
                self._held = ""
                return text[: len(text) - len(self.stopped)]
        text = self._held + text
        certain = len(text) - max(matcher.state for matcher in self._matchers)
        self._held = text[certain:]
        return text[:certain]
