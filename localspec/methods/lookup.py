"""Prompt lookup: what followed the last few tokens earlier in the text may follow again.

Up to four earlier continuations are merged by prefix into a small tree. The estimates p come from running counts of
what came true, by length of the match and depth, so the governor can rely on them. Knows token ids only.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from localspec.engine.base import Rows
from localspec.errors import UsageError
from localspec.methods.base import Walk
from localspec.methods.rates import RunningRates
from localspec.tree import Tree

#: earlier occurrences remembered of one n-gram, and continuations drafted at once
MAX_POSITIONS = 8
MAX_CONTINUATIONS = 4
#: a match is measured up to this length; a draft is at most this deep
MAX_MATCH = 16
MAX_DEPTH = 48
#: nodes less likely than this are not drafted
MIN_P = 0.02

#: chance of a right guess after a match of 1, 2, 3, 4, 5-7, 8-15, 16+ tokens, before any is counted
PRIOR = (0.2, 0.35, 0.5, 0.6, 0.75, 0.88, 0.95)
#: the same, relative, for a further guess at a place that has one
SECOND_GUESS = 0.3
DEPTHS = 8
PRIOR_WEIGHT = 6.0
#: counts are halved at this many trials, so that they follow the text
MAX_TRIALS = 256.0


def _match_class(length: int) -> int:
    return length - 1 if length <= 4 else 4 if length < 8 else 5 if length < 16 else 6


class _Rates(RunningRates):
    """Acceptance rates by (class of the match, depth, first guess or not), addressed by code."""

    def __init__(self) -> None:
        priors = [PRIOR[_match_class(length + depth)] for length in (1, 2, 3, 4, 5, 8, 16) for depth in range(DEPTHS)]
        super().__init__([p for prior in priors for p in (prior, prior * SECOND_GUESS)], PRIOR_WEIGHT, MAX_TRIALS)

    @staticmethod
    def code(match: int, depth: int, first: bool) -> int:
        """Index in `p`: `depth` counts from 0; `first` is whether the node is its parent's first guess."""
        return (_match_class(match) * DEPTHS + min(depth, DEPTHS - 1)) * 2 + (not first)


class LookupDrafter:
    """Drafts from the prompt and the output so far, by n-grams of `n_max` down to `n_min` tokens.

    Learned rates stay over generations. Raises `UsageError` when the n-gram sizes are not 1 <= n_min <= n_max.
    """

    def __init__(self, n_max: int = 4, n_min: int = 2) -> None:
        if not 1 <= n_min <= n_max <= MAX_MATCH:
            raise UsageError(f"lookup matches n-grams of 1 to {MAX_MATCH} tokens, not {n_min} to {n_max}")
        self._sizes = tuple(range(n_max, n_min - 1, -1))
        self._rates = _Rates()
        self._text: list[int] = []
        self._index: dict[tuple[int, ...], list[int]] = {}
        self._codes: list[int] = []
        self._drafted: Tree | None = None

    def start(self, prompt: Sequence[int]) -> None:
        """A new generation begins after `prompt`; an index of the same beginning is reused."""
        known = len(self._text)
        if not (0 < known <= len(prompt) and list(prompt[:known]) == self._text):
            self._text = []
            self._index = {}
            known = 0
        self._drafted = None
        self._extend(prompt[known:])

    def _extend(self, tokens: Sequence[int]) -> None:
        """Append tokens; each n-gram before one points to it as its continuation."""
        text, index = self._text, self._index
        for token in tokens:
            end = len(text)
            for n in self._sizes:
                if n > end:
                    continue
                positions = index.setdefault(tuple(text[end - n :]), [])
                positions.append(end)
                if len(positions) > MAX_POSITIONS:
                    del positions[0]
            text.append(token)

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        """The most likely nodes of the found continuations; the root alone when there are none."""
        root = self._text[-1]
        self._drafted = None
        continuations = self._continuations(min(max_nodes - 1, MAX_DEPTH)) if max_nodes > 1 else []
        if not continuations:
            return Tree.root(root)
        self._drafted = self._merge(root, continuations, max_nodes, max(least_p, MIN_P))
        return self._drafted

    def _continuations(self, length: int) -> list[tuple[int, list[int]]]:
        """(length of the match, tokens that followed), all distinct; the most recent of each n-gram size first."""
        text = self._text
        positions: list[int] = []
        for n in self._sizes:
            if n <= len(text):
                positions += reversed(self._index.get(tuple(text[-n:]), ()))
        found: list[tuple[int, list[int]]] = []
        seen: set[int] = set()
        for position in positions:
            if position in seen:
                continue
            seen.add(position)
            tokens = text[position : position + length]
            period = len(text) - position
            while len(tokens) < length:  # the match overlaps the end: go on with its own continuation
                tokens += tokens[-period:][: length - len(tokens)]
            if all(tokens != other for _, other in found):
                found.append((self._match_length(position), tokens))
                if len(found) == MAX_CONTINUATIONS:
                    break
            if len(seen) == MAX_POSITIONS:
                break
        return found

    def _match_length(self, position: int) -> int:
        """Tokens before `position` that equal the end of the text, up to `MAX_MATCH`."""
        text = self._text
        end = len(text)
        n = 0
        while n < MAX_MATCH and n < position and text[position - 1 - n] == text[end - 1 - n]:
            n += 1
        return n

    def _merge(self, root: int, continuations: list[tuple[int, list[int]]], max_nodes: int, least_p: float) -> Tree:
        """Grow the tree by its most likely next node until the budget is used up, or no node is likely enough."""
        parents, tokens_of, p_of = [-1], [root], [1.0]
        codes = self._codes = [-1]
        child: dict[tuple[int, int], int] = {}
        rates, code_of = self._rates.p, self._rates.code
        # A head is the next node of a continuation: (-p, continuation, depth, parent, first guess of the parent).
        heads = [(-rates[code_of(match, 0, True)], i, 0, 0, True) for i, (match, _) in enumerate(continuations)]
        heapq.heapify(heads)
        while heads and len(parents) < max_nodes:
            minus_p, i, depth, parent, first = heapq.heappop(heads)
            if -minus_p < least_p:
                break
            match, tokens = continuations[i]
            token = tokens[depth]
            node = child.get((parent, token))
            if node is None:
                code = code_of(match, depth, first)
                if first and parent in parents:
                    second = code_of(match, depth, False)
                    heapq.heappush(heads, (minus_p / rates[code] * rates[second], i, depth, parent, False))
                    continue
                node = child[parent, token] = len(parents)
                parents.append(parent)
                tokens_of.append(token)
                p_of.append(min(-minus_p, p_of[parent]))
                codes.append(code)
            depth += 1
            p = p_of[node] * rates[code_of(match, depth, True)]
            if p >= least_p and depth < len(tokens):
                heapq.heappush(heads, (-p, i, depth, node, True))
        return Tree.of(parents, tokens_of, p_of)

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        """Count every judged draft (its parent was reached), verified or pruned, and take the new tokens in."""
        if self._drafted is not None:
            self._judge(self._drafted, walk)
            self._drafted = None
        self._extend(walk.tokens)

    def _judge(self, drafted: Tree, walk: Walk) -> None:
        topology = drafted.topology
        node = 0
        for token in walk.tokens:
            following = 0
            for child in topology.children[node]:
                hit = drafted.tokens[child] == token
                self._rates.count(self._codes[child], hit)
                if hit:
                    following = child
            if not following:
                return
            node = following
