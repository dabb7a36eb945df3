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

# What a guess is among the continuations of its state: the only one, which came several times or once; one that came
# more often than all others; the first, second or third of several.
ONLY_AGAIN, ONLY_ONCE, MOSTLY, FIRST, SECOND, LATER = range(6)
N_KINDS = 6


class State:
    """One stretch of text of up to `length` tokens. `end` is the position after its latest known occurrence.

    `following` leads on by each token that followed.
    """

    __slots__ = ("_guesses", "_n", "_ranked", "end", "following", "length", "link")

    def __init__(self, length: int, end: int, link: State | None = None) -> None:
        self.length = length
        self.end = end
        self.link = link
        self.following: dict[int, State] = {}
        # what followed, the most frequent first and the latest first among equals, and how often
        self._ranked: list[int] = []
        self._n: list[int] = []
        self._guesses: tuple[tuple[int, int], ...] | None = ()

    def clone(self, length: int) -> State:
        """A state for a shorter stretch that has occurred wherever this one has."""
        other = State(length, self.end, self.link)
        other.following = self.following.copy()
        other._ranked, other._n, other._guesses = self._ranked.copy(), self._n.copy(), self._guesses
        return other

    def count(self, token: int, end: int) -> None:
        """`token` followed here once more; the stretch occurred up to position `end`."""
        self.end = end
        self._guesses = None
        ranked, counts = self._ranked, self._n
        if not ranked:
            ranked.append(token)
            counts.append(1)
            return
        if token in ranked:
            at = ranked.index(token)
            n = counts[at] + 1
        else:
            at, n = len(ranked), 1
            ranked.append(token)
            counts.append(n)
        while at > 0 and counts[at - 1] <= n:
            ranked[at], counts[at] = ranked[at - 1], counts[at - 1]
            at -= 1
        ranked[at], counts[at] = token, n
        if len(ranked) > MAX_RANKED:
            del ranked[-1], counts[-1]

    @property
    def guesses(self) -> tuple[tuple[int, int], ...]:
        """The best continuations with their kinds, the most likely first."""
        guesses = self._guesses
        if guesses is None:
            ranked, counts = self._ranked, self._n
            if len(ranked) == 1:
                guesses = ((ranked[0], ONLY_ONCE if counts[0] == 1 else ONLY_AGAIN),)
            else:
                first = MOSTLY if 2 * counts[0] > sum(counts) else FIRST
                guesses = tuple(zip(ranked, (first, SECOND, LATER), strict=False))
            self._guesses = guesses
        return guesses


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

    @property
    def start(self) -> tuple[State, int]:
        """The match of nothing, where `advance` begins."""
        return self._root, 0

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
