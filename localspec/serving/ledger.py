"""Which tokens the text that has left so far is made of."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable

from localspec.serving.api import TokenLogprob


class Ledger:
    """Tokens go in as they are emitted, and come out when all of their text is certain: what is held back, because it
    may begin a stop string or a character is unfinished, keeps its tokens back. `piece` gives the bytes of a token.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        #: tokens with the number of characters that the text has up to their end, -1 while a character is unfinished
        self._waiting: deque[tuple[int, TokenLogprob | None, int]] = deque()
        self._n_chars = 0
        self._n_told = 0

    def add(self, token: int, logprob: TokenLogprob | None = None) -> None:
        """One more token was emitted."""
        self._n_chars += len(self._decoder.decode(self._piece(token)))
        unfinished = bool(self._decoder.getstate()[0])
        if not unfinished:
            self._finish()
        self._waiting.append((token, logprob, -1 if unfinished else self._n_chars))

    def _finish(self) -> None:
        """The characters that were unfinished end here."""
        for i in range(len(self._waiting) - 1, -1, -1):
            token, logprob, end = self._waiting[i]
            if end >= 0:
                break
            self._waiting[i] = token, logprob, self._n_chars

    def tell(self, text: str, last: bool = False) -> tuple[tuple[int, ...], tuple[TokenLogprob, ...]]:
        """`text` has left, the last of it with `last`; returns the tokens that are complete by that."""
        self._n_told += len(text)
        if last:
            self._n_chars += len(self._decoder.decode(b"", final=True))
            self._finish()
        tokens, logprobs = [], []
        while self._waiting and 0 <= self._waiting[0][2] <= self._n_told:
            token, logprob, _ = self._waiting.popleft()
            tokens.append(token)
            if logprob is not None:
                logprobs.append(logprob)
        return tuple(tokens), tuple(logprobs)
