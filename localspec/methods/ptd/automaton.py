"""A suffix automaton over the text: what followed, wherever the end of the text occurred before.

Each state stands for all places where one stretch of text occurred. The state of the longest suffix that occurred
before gives its continuations; following suffix links gives those of ever shorter suffixes. (Blumer et al. 1985; used
for drafting by SAM-Decoding, arXiv 2411.10666.)
"""

from __future__ import annotations

from collections.abc import Iterable

#: continuations that a state ranks; rarer ones are still found on the way through the automaton
MAX_RANKED = 8
#: suffixes whose statistics one token updates, the longest first: text of one repeated token has as many as tokens
MAX_UPDATES = 12
#: bytes of one token of text, at most two states with their dicts and lists, measured generously
BYTES_A_TOKEN = 1300

# What a guess is among the continuations of its state; see `State.guesses`.
ONLY_AGAIN, ONLY_ONCE, MOSTLY, FIRST, SECOND, LATER = range(6)
N_KINDS = 6


class State:
    """One stretch of text of up to `length` tokens. `end` is the position after its latest known occurrence.

    `guesses` are its continuations with their kinds, the most frequent first and the latest first among equals.
    """

    __slots__ = ("_counts", "end", "following", "guesses", "length", "link")

    def __init__(self, length: int, end: int, link: State | None = None) -> None:
        self.length = length
        self.end = end
        self.link = link
        self.following: dict[int, State] = {}
        self._counts: list[tuple[int, int]] = []  # (token, how often it followed), in the order of `guesses`
        self.guesses: list[tuple[int, int]] = []

    def clone(self, length: int) -> State:
        """A state for a shorter stretch that has occurred wherever this one has."""
        other = State(length, self.end, self.link)
        other.following = dict(self.following)
        other._counts = self._counts.copy()
        other.guesses = self.guesses
        return other

    def count(self, token: int, end: int) -> None:
        """`token` followed here once more; the stretch occurred up to position `end`."""
        self.end = end
        counts = self._counts
        at = next((i for i, (known, _) in enumerate(counts) if known == token), -1)
        n = counts.pop(at)[1] + 1 if at >= 0 else 1
        at = next((i for i, (_, other) in enumerate(counts) if other <= n), len(counts))
        counts.insert(at, (token, n))
        del counts[MAX_RANKED:]
        first = counts[0][1]
        if len(counts) == 1:
            self.guesses = [(token, ONLY_ONCE if first == 1 else ONLY_AGAIN)]
            return
        kinds = (MOSTLY if 2 * first > sum([n for _, n in counts]) else FIRST, SECOND, LATER)
        self.guesses = [(known, kind) for (known, _), kind in zip(counts, kinds, strict=False)]


class SuffixAutomaton:
    """Grows token by token; `text` is what it has read. A token costs amortised constant time."""

    def __init__(self, text: Iterable[int] = ()) -> None:
        self.text: list[int] = []
        self._root = State(0, 0)
        self._last = self._root
        self.extend(text)

    @property
    def n_bytes(self) -> int:
        """Memory that it may take, an upper estimate."""
        return BYTES_A_TOKEN * len(self.text)

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens to the text."""
        for token in tokens:
            self._append(token)

    def _append(self, token: int) -> None:
        end = len(self.text)
        self.text.append(token)
        last, root = self._last, self._root
        new = State(last.length + 1, end + 1, root)
        state: State | None = last
        while state is not None and token not in state.following:
            state.following[token] = new
            state = state.link
        if state is not None:
            new.link = self._exactly(state, token)
        state = last
        for _ in range(MAX_UPDATES):
            if state is None or state is root:
                break
            state.count(token, end)
            state = state.link
        self._last = new

    def _exactly(self, state: State | None, token: int) -> State:
        """The state of the longest stretch of `state` and `token`, split from one for longer stretches if need be."""
        assert state is not None
        following = state.following[token]
        length = state.length + 1
        if following.length == length:
            return following
        split = following.clone(length)
        while state is not None and state.following.get(token) is following:
            state.following[token] = split
            state = state.link
        following.link = split
        return split

    def match(self) -> tuple[State, int]:
        """The longest suffix of the text that occurred before: its state and its length (0: the root)."""
        state = self._last.link or self._root
        return state, state.length

    def advance(self, state: State, length: int, token: int) -> tuple[State, int]:
        """The longest suffix that occurred when `token` follows a match of `length` tokens at `state`."""
        while True:
            following = state.following.get(token)
            if following is not None:
                return following, length + 1
            if state.link is None:
                return state, 0
            state = state.link
            length = state.length
