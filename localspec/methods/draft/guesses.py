"""Prompt lookup inside the draft model: tokens that it will probably draft, so that one pass can draft several.

Wherever the end of text and draft occurred before, most recently, the draft model is guessed to go on as the text did
there (FLy's multi-level acceleration, papers.md 4.3, with the most recent occurrence in place of the oldest).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from localspec.methods.rates import RunningRates

#: tokens guessed at once, longest n-gram looked up, and how far a match is measured
MAX_GUESS, MAX_N, MAX_MATCH = 6, 4, 16
#: lengths at which one class of matches ends and the next begins, and the first chance of a guess after each class
_EDGES = (2, 3, 4, 5, 8, 16)
_PRIORS = (0.25, 0.4, 0.55, 0.65, 0.75, 0.88, 0.94)
_WEIGHT, _MOST = 6.0, 256.0


class Guesses:
    """An index of the text by n-grams, and how often guesses were what the draft model said."""

    def __init__(self) -> None:
        self._text: list[int] = []
        #: n-gram -> position after its most recent occurrence that something followed
        self._index: dict[tuple[int, ...], int] = {}
        self._rates = RunningRates([p for p in _PRIORS for _ in range(MAX_GUESS)], _WEIGHT, _MOST)

    def start(self, text: Sequence[int]) -> None:
        """Another text, or more of the same."""
        known = len(self._text)
        if not (0 < known <= len(text) and list(text[:known]) == self._text):
            self._text, self._index, known = [], {}, 0
        self.extend(text[known:])

    def extend(self, tokens: Sequence[int]) -> None:
        """The text goes on with `tokens`."""
        text, index = self._text, self._index
        for token in tokens:
            end = len(text)
            for n in range(1, min(MAX_N, end) + 1):
                index[tuple(text[end - n :])] = end
            text.append(token)

    def find(self, drafted: Sequence[int], most: int) -> tuple[int, list[int]]:
        """(class of the match, up to `most` <= `MAX_GUESS` tokens) that may follow the text and `drafted`."""
        text = self._text
        tail = [*text[-MAX_MATCH:], *drafted]
        for n in range(min(MAX_N, len(tail)), 0, -1):
            end = self._index.get(tuple(tail[-n:]))
            if end is None:
                continue
            while n < min(MAX_MATCH, end, len(tail)) and text[end - n - 1] == tail[-n - 1]:
                n += 1
            tokens = text[end : end + most]
            if len(tokens) < most:
                tokens += drafted[: most - len(tokens)]
            if not tokens:
                return 0, []
            period = len(text) + len(drafted) - end
            while len(tokens) < most:  # the match overlaps the end: go on with its own continuation
                tokens += tokens[-period:][: most - len(tokens)]
            return bisect_right(_EDGES, n), tokens
        return 0, []

    def chance(self, kind: int, i: int) -> float:
        """How likely guess `i` (from 0) of a match of that class is right when those before it are."""
        return self._rates.p[kind * MAX_GUESS + i]

    def count(self, kind: int, n_judged: int, n_right: int) -> None:
        """Of `n_judged` guesses the first `n_right` were what the draft model said; at most one was not."""
        for i in range(n_judged):
            self._rates.count(kind * MAX_GUESS + i, i < n_right)
