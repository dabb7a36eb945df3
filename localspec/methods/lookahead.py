"""Lookahead decoding (arXiv 2402.02057): n-grams from parallel Jacobi iterations, kept and verified.

A window of `window` columns holds the guesses of the last n - 1 iterations, one level each. Column i of the lowest
level stands i positions after the last token of the text (column 0 is that token), and each higher level continues its
own column. That is a plain token tree: the lowest level is a chain, and every column hangs below its place in it. One
pass gives the next level and checks known n-grams that start with the last token.

The rules are those of the official code (github.com/hao-ai-lab/LookaheadDecoding): the window does not move by the
number of accepted tokens, and drafting is greedy whatever the sampling. As in llama.cpp's example all levels are filled
from the start. The verifier makes the text exact. Knows token ids only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from localspec.engine.base import Rows
from localspec.errors import UsageError
from localspec.methods.base import Walk
from localspec.tree import Tree, TreeBuilder

#: most first tokens with n-grams; the oldest one goes. Ours: the official code has no bound
MAX_KEYS = 8192
#: a verified n-gram token is believed half as much as the one before it
CANDIDATE_P = 0.5
#: estimate of a window node: it is there to be read, not to be accepted
DRAFT_P = 1e-6

Gram = tuple[int, ...]


class NgramPool:
    """At most `guesses` n-grams for each first token, the most recent last."""

    def __init__(self, guesses: int, max_keys: int = MAX_KEYS) -> None:
        self._guesses, self._max_keys = guesses, max_keys
        self._grams: dict[int, list[Gram]] = {}

    def __len__(self) -> int:
        """Number of first tokens."""
        return len(self._grams)

    def clear(self) -> None:
        """Forget everything."""
        self._grams.clear()

    def get(self, first: int) -> Sequence[Gram]:
        """What followed `first`, the oldest n-gram first, each without `first` itself."""
        return self._grams.get(first, ())

    def add(self, first: int, rest: Gram) -> None:
        """Remember an n-gram. A known one becomes the most recent; a full list loses its oldest."""
        grams = self._grams.get(first)
        if grams is None:
            if len(self._grams) >= self._max_keys:
                del self._grams[next(iter(self._grams))]
            grams = self._grams[first] = []
        if rest in grams:
            grams.remove(rest)
        elif len(grams) >= self._guesses:
            del grams[0]
        grams.append(rest)

    def draft(self, first: int, builder: TreeBuilder, max_nodes: int) -> None:
        """Add the n-grams of `first` below the root, depth by depth and newest first, up to `max_nodes` nodes."""
        heads = [(0, gram) for gram in reversed(self.get(first))]
        for node, gram in heads:  # grows while it is walked: breadth first
            if len(builder) >= max_nodes:
                return
            node = builder.add(node, gram[0], CANDIDATE_P * builder.p[node])
            if len(gram) > 1:
                heads.append((node, gram[1:]))


class LookaheadDrafter:
    """Lookahead decoding with `window` columns, n-grams of `ngram` tokens and `guesses` n-grams verified a step.

    `eog` are the ids that end a text. The window starts from random prompt tokens, a function of `seed`. A full tree
    has window * (ngram - 1) + guesses * (ngram - 1) nodes (120 at the defaults), fewer where equal ones are merged.

    Raises `UsageError` when the window or `guesses` is below 1, or `ngram` below 2.
    """

    def __init__(
        self, eog: frozenset[int], *, window: int = 15, ngram: int = 5, guesses: int = 15, seed: int = 10
    ) -> None:
        for name, size, least in (("window", window, 1), ("ngram", ngram, 2), ("guesses", guesses, 1)):
            if size < least:
                raise UsageError(f"lookahead cannot work with {name} {size}", f"give {least} or more")
        self._eog = frozenset(eog)
        self._window, self._levels, self._seed = window, ngram - 1, seed
        self._last = -1
        self._rng = Random(seed)
        self._fillers: list[int] = []
        self.pool = NgramPool(guesses)
        #: by column, lowest level first; the first token of column 0 is the last token of the text instead
        self.columns: list[Gram] = []

    def start(self, prompt: Sequence[int]) -> None:
        """A new generation begins after `prompt`: the pool is emptied and the window filled with random tokens."""
        self._last = prompt[-1]
        self._rng = Random(self._seed)
        self._fillers = [token for token in prompt if token not in self._eog] or list(prompt)
        self.pool.clear()
        self.columns = [tuple(self._filler() for _ in range(self._levels)) for _ in range(self._window)]

    def _filler(self) -> int:
        """A random prompt token."""
        return self._rng.choice(self._fillers)

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        """The known n-grams of the last token, then the window column by column, as far as `max_nodes` reaches."""
        builder = TreeBuilder(self._last)
        self.pool.draft(self._last, builder, max_nodes)
        self._draft_window(builder, max_nodes)
        return builder.build()

    def _draft_window(self, builder: TreeBuilder, max_nodes: int) -> None:
        """Whole columns first: one without its top level teaches nothing."""
        foot = 0
        for i, (first, *upper) in enumerate(self.columns):
            node = foot = builder.add(foot, first, DRAFT_P) if i else 0
            for token in upper:
                if len(builder) >= max_nodes:
                    return
                node = builder.add(node, token, DRAFT_P)
            if len(builder) >= max_nodes:
                return

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        """Move every column of the window that is in `tree` one iteration on, and remember its n-gram.

        Columns are found by their tokens; one that was cut or not verified stays as it is.
        """
        self._last = walk.tokens[-1]
        foot = 0
        for i, (first, *upper) in enumerate(self.columns):
            if i:
                next_foot = tree.child(foot, first)
                if next_foot is None:
                    return
                foot = next_foot
            top = _descend(tree, foot, upper)
            if top is None:
                continue
            new = rows.argmax(top)
            self.pool.add(tree.tokens[foot], (*upper, new))
            self.columns[i] = (*upper, self._filler() if new in self._eog else new)


def _descend(tree: Tree, node: int, tokens: Iterable[int]) -> int | None:
    """The node at the end of `tokens` below `node`, None when the tree does not hold all of them."""
    at: int | None = node
    for token in tokens:
        if at is None:
            return None
        at = tree.child(at, token)
    return at
