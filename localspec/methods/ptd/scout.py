"""Draft-only nodes: places that the text may reach, evaluated ahead of time for what the model would write there.

They are the window of progressive drafting (`window`, PTD section 3), with one change: the window moves on by as many
tokens as were written. What the model thinks at its nodes goes to the pool as from any verified row. Whether that is
worth a row is measured: tokens accepted at places that draft-only nodes told of, and such nodes that came true, for
each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.engine.base import Rows
from localspec.methods.base import Walk
from localspec.methods.ptd.window import Window, context_seeds
from localspec.tree import Tree, TreeBuilder

WIDTH, DEPTH = 4, 6
#: tokens that a draft-only node brings, assumed at first (SmolLM2, beside trees of 8 nodes: 0.02 to 0.04), and the
#: number of nodes that this assumption counts for
FIRST_WORTH = 0.03
FIRST_NODES = 400.0
#: nodes at which the counts are halved
MAX_NODES_COUNTED = 4000.0
#: places remembered as told of by draft-only nodes
MAX_PLACES = 4096
#: tokens of text that new seeds are taken from
RECENT = 256

Place = tuple[int, int]


class Scout:
    """The draft-only nodes of one text. `worth` is how many tokens one of them brings, later."""

    def __init__(self, eog: frozenset[int]) -> None:
        self._eog = eog
        self._window = Window(WIDTH, DEPTH, eog)
        self._brought, self._nodes = FIRST_WORTH * FIRST_NODES, FIRST_NODES
        self._told: dict[Place, None] = {}
        self._n_drafted = self._n_unseen = 0
        self._extended: Tree | None = None
        self._recent: list[int] = []

    @property
    def worth(self) -> float:
        return self._brought / self._nodes

    def start(self, prompt: Sequence[int]) -> None:
        """A new generation begins after `prompt`."""
        self._recent = [-1, *prompt]
        self._told.clear()
        self._n_drafted = self._n_unseen = 0
        self._window = Window(WIDTH, DEPTH, self._eog)

    def extend(self, tree: Tree, n_nodes: int) -> Tree:
        """The tree and up to `n_nodes` draft-only nodes, whose estimates are next to nothing."""
        self._catch_up()
        builder = TreeBuilder.of(tree)
        self._window.draft(builder, len(tree) + n_nodes)
        self._n_drafted = len(builder) - len(tree)
        self._extended = builder.build() if self._n_drafted else tree
        return self._extended

    def _catch_up(self) -> None:
        """Move the window to the end of the text; where it ends before that, take new seeds."""
        self._window.shift(self._n_unseen)
        self._n_unseen = 0
        del self._recent[:-RECENT]
        if not self._window.roots:
            self._window = Window(WIDTH, DEPTH, self._eog, context_seeds(self._recent, self._eog))

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        """Learn from a verified tree, the draft-only nodes being its last ones."""
        if self._told:
            self._judge(walk)
        if self._n_drafted and tree is self._extended:  # one that was cut since has no draft-only nodes to count on
            first = len(tree) - self._n_drafted
            self._brought += sum([node >= first for node in walk.path])  # it happens that one is right
            self._remember(tree)
            self._window.read(tree, rows)
            self._window.advance(walk.tokens[0])
        self._n_drafted, self._extended = 0, None
        self._recent += walk.tokens  # the window follows when it is wanted: most steps have no draft-only nodes
        self._n_unseen += len(walk.tokens)

    def _judge(self, walk: Walk) -> None:
        """Count accepted tokens at places that draft-only nodes told of; from then on a place has a row of its own."""
        before, last = self._recent[-2:]
        for i, token in enumerate(walk.tokens):
            if (before, last) in self._told:
                del self._told[before, last]
                self._brought += i < len(walk.path)
            before, last = last, token

    def _remember(self, tree: Tree) -> None:
        self._nodes += self._n_drafted
        if self._nodes > MAX_NODES_COUNTED:
            self._nodes /= 2
            self._brought /= 2
        parents, tokens = tree.topology.parents, tree.tokens
        for node in range(len(tree) - self._n_drafted, len(tree)):
            self._told[tokens[parents[node]], tokens[node]] = None
        while len(self._told) > MAX_PLACES:
            del self._told[next(iter(self._told))]
