"""What `PtdDrafter` knows and how it grows a tree from it, in terms of token ids and logits alone.

At each node the text proposes what followed the longest suffixes that occurred before (`automaton`), and how a copy
would go on behind a changed token; the model proposes what it thought of when it was last at such a place
(`recycling`), and what it thought of one token ago; a corpus proposes how such stretches usually go on. Each
candidate's chance follows from the running rate of its evidence and its rivals' (`evidence`), a node's estimate is the
product along its path, and the tree grows by its most likely node.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from localspec.methods.ptd import evidence
from localspec.methods.ptd.automaton import State, SuffixAutomaton
from localspec.methods.ptd.evidence import MAX_OFF, N_ROW, Rates
from localspec.methods.ptd.recycling import DEFAULT_ENTRIES, SuccessorPool
from localspec.tree import Tree

#: tokens of text that the automaton holds at most; of more the latest half
MAX_TEXT = 1 << 16
#: states asked for continuations at a node, the longest match first, and candidates that end the asking
MAX_STATES = 3
MAX_TEXT_CANDIDATES = 6
#: a copy is followed from a match of at least so many tokens
MIN_COPY = 2
#: candidates so much less likely than one node of an evenly used budget are left out
LEAST_SHARE = 0.05

#: ids and logits of a row's best tokens, the best first; empty when they are not known
Top = tuple[Sequence[int], Sequence[float]]
#: (token, code of its evidence)
Candidates = list[tuple[int, int]]
#: (state, length of the longest match)
Match = tuple[State, int]
#: (match in the text, match in the corpus, token before, last token, position in the source of a copy, tokens since it
#: matched)
Place = tuple[Match, Match, int, int, int, int]


class PtdPool:
    """What outlives one text: successors and learned rates. Belongs to one user; drafters of others must not see it.

    `corpus` is nobody's: text that tells how language usually goes on (the static automaton of SAM-Decoding), which any
    number of pools may share.
    """

    def __init__(self, max_entries: int = DEFAULT_ENTRIES, corpus: SuffixAutomaton | None = None) -> None:
        self.successors = SuccessorPool(max_entries)
        self.rates = Rates()
        self.corpus = corpus if corpus is not None else SuffixAutomaton()
        #: how often it was cleared
        self.n_clears = 0

    def clear(self) -> None:
        """Forget everything; the corpus stays."""
        self.n_clears += 1
        self.successors.clear()
        self.rates.reset()


class PtdCore:
    """One text and its pool. `width` limits the children of a node: 1 makes chains."""

    def __init__(self, pool: PtdPool, width: int | None = None) -> None:
        self.pool = pool
        self._width = width
        self.reset()

    def reset(self) -> None:
        """Forget the text, not the pool."""
        self._text = SuffixAutomaton()
        self._phrase = self.pool.corpus.start
        self._copy = (-1, 0)
        self._previous: Top = ((), ())
        self._drafted: Tree | None = None
        #: the candidates of each node of the last draft
        self.judged: list[Candidates] = []

    @property
    def n_text(self) -> int:
        """Tokens of text that are held."""
        return len(self._text.text)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens that the model did not write."""
        self._previous, self._drafted = ((), ()), None
        self._append(tokens)

    def _append(self, tokens: Sequence[int]) -> None:
        text = self._text
        for token in tokens:
            self._phrase = self.pool.corpus.advance(*self._phrase, token)
        if len(text.text) + len(tokens) > MAX_TEXT:
            text = self._text = SuffixAutomaton([*text.text, *tokens][-MAX_TEXT // 2 :])
            self._copy = (-1, 0)
            return
        for token in tokens:
            at, off = self._copy
            text.extend((token,))
            self._copy = self._follow(text.match(), at, off, token)

    def _follow(self, match: Match, at: int, off: int, token: int) -> tuple[int, int]:
        """The place in the source of a copy after `token`, which led to this match; tokens since it matched.

        A copy that was left is followed in step, as if each token since had replaced one of the source.
        """
        state, length = match
        if length >= MIN_COPY or (at < 0 and length > 0):
            return state.end, 0
        if at < 0:
            return -1, 0
        text = self._text.text
        agrees = at < len(text) and text[at] == token
        return at + 1, max(1, off) if agrees else off + 1

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        """The `max_nodes` most likely nodes, the root included; fewer when not as many are likely enough.

        The text is not empty.
        """
        text = self._text.text
        root = text[-1]
        self._drafted = None
        parents, tokens, p_of = [-1], [root], [1.0]
        before = text[-2] if len(text) > 1 else -1
        places: list[Place] = [(self._text.match(), self._phrase, before, root, *self._copy)]
        self.judged = [self._candidates(places[0], self._previous)]
        rates, least = self.pool.rates.p, max(least_p, LEAST_SHARE / max_nodes)
        # (-p, serial number, parent, token): among equals what was found first
        heap: list[tuple[float, int, int, int]] = []
        n_found = 0
        node = 0
        while True:
            p = p_of[node]
            candidates = self.judged[node]
            offers = list(zip(evidence.chances([rates[code] for _, code in candidates]), candidates, strict=True))
            if self._width is not None:
                offers = heapq.nlargest(self._width, offers, key=lambda offer: offer[0])
            for chance, (token, _) in offers:
                if p * chance >= least:
                    n_found += 1
                    heapq.heappush(heap, (-p * chance, n_found, node, token))
            if not heap or len(parents) == max_nodes:
                break
            minus_p, _, parent, token = heapq.heappop(heap)
            node = len(parents)
            parents.append(parent)
            tokens.append(token)
            p_of.append(-minus_p)
            place = self._place_after(places[parent], token)
            places.append(place)
            self.judged.append(self._candidates(place))
        self._drafted = Tree.of(parents, tokens, p_of)
        return self._drafted

    def _place_after(self, place: Place, token: int) -> Place:
        match, phrase, _, last, at, off = place
        match = self._text.advance(*match, token)
        phrase = self.pool.corpus.advance(*phrase, token)
        return (match, phrase, last, token, *self._follow(match, at, off, token))

    def _candidates(self, place: Place, previous: Top = ((), ())) -> Candidates:
        """All tokens that something speaks for at a place; `previous` are ids and logits of the row before."""
        match, phrase, before, last, at, off = place
        found = _by_matches(match, evidence.text_part)
        if 0 < off <= MAX_OFF and 0 <= at < len(self._text.text):
            token = self._text.text[at]
            known = found.get(token, evidence.NO_TEXT)
            if known == evidence.NO_TEXT:
                found[token] = evidence.RESUMED + off - 1
            elif known < evidence.WEAK_END:
                found[token] = evidence.RESUMED_AND_WEAK
        others = self._by_rows(before, last, previous, _by_matches(phrase, evidence.corpus_part))
        candidates = [(token, text * N_ROW + others.pop(token, evidence.NO_ROW)) for token, text in found.items()]
        candidates += others.items()  # their text part is 0, so the other part is the code
        return candidates

    def _by_rows(self, before: int, last: int, previous: Top, corpus: dict[int, int]) -> dict[int, int]:
        """The other part for each token that the corpus proposes, or that a row like the coming one had as a best.

        What is more specific counts: two tokens more than one, and the model's row more than the corpus.
        """
        found: dict[int, int] = {}
        ids, logits = previous
        for token, logit in zip(ids, logits, strict=True):
            if token != last:
                found[token] = evidence.previous_part(logits[0] - logit)
        found.update(corpus)
        successors = self.pool.successors.of_pair(before, last)
        if successors is not None:
            for token, kind in zip(*successors, strict=True):
                found[token] = evidence.PAIR + kind
            return found
        successors = self.pool.successors.of_token(last)
        if successors is not None:
            for token, kind in zip(*successors, strict=True):
                if found.get(token, evidence.NO_ROW) < evidence.CORPUS_PAIR:
                    found[token] = evidence.TOKEN + kind
        return found

    def learn(self, tree: Tree, tops: Sequence[Top], path: Sequence[int], written: Sequence[int]) -> None:
        """Take in a verified step: the tree, what the model thought at each of its nodes, and what it wrote.

        `path` are the nodes below the root that were accepted, `written` their tokens and the bonus token.
        """
        if self._drafted is not None:
            self._judge(self._drafted, written)
            self._drafted = None
        text = self._text.text
        before = text[-2] if len(text) > 1 else -1
        put = self.pool.successors.put
        reached = (0, *path)[: len(written)]
        for node, (token, parent, (ids, logits)) in enumerate(
            zip(tree.tokens, tree.topology.parents, tops, strict=True)
        ):
            if ids:
                put(before if parent < 0 else tree.tokens[parent], token, ids, logits, node in reached)
        self._append(written)
        self._previous = tops[reached[-1]]  # the row that the last token was drawn from

    def _judge(self, drafted: Tree, written: Sequence[int]) -> None:
        """Count every candidate, drafted or not, at each place that the text went through."""
        count = self.pool.rates.count
        node = 0
        for token in written:
            for candidate, code in self.judged[node]:
                count(code, candidate == token)
            following = drafted.child(node, token)
            if following is None:
                break
            node = following


def _by_matches(match: Match, part_of: Callable[[int], int]) -> dict[int, int]:
    """The part for each token that followed one of the longest suffixes in a text; `part_of` gives that of a length."""
    found: dict[int, int] = {}
    state: State | None
    state, length = match
    left = MAX_STATES
    while state is not None and length > 0:
        guesses = state.guesses
        if guesses:
            part = part_of(length)
            for token, kind in guesses:
                if token not in found:
                    found[token] = part + kind
            left -= 1
            if left == 0 or len(found) >= MAX_TEXT_CANDIDATES:
                break
        state = state.link
        if state is not None:
            length = state.length
    return found
