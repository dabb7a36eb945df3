"""Draft-only nodes: places that the text may reach, evaluated ahead of time for what the model would write there.

They are the window of progressive drafting (`window`, PTD section 3), with one change: the window moves on by as many
tokens as were written. What the model thinks at its nodes goes to the pool as from any verified row. Whether that is
worth a row is measured: tokens accepted at places that only draft-only nodes told of, for each such node.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.engine.base import Rows
from localspec.methods.base import Walk
from localspec.methods.ptd.window import Window, context_seeds
from localspec.tree import Tree, TreeBuilder

WIDTH, DEPTH = 4, 6
#: tokens that a draft-only node brings, assumed at first, and the number of nodes that this assumption counts for.
#: Measured with two models: 0.00x to 0.0x
FIRST_WORTH = 0.01
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
        self._told: dict[Place, int] = {}
        self._n_drafted = 0
        self._recent: list[int] = []

    @property
    def worth(self) -> float:
        return self._brought / self._nodes

    def start(self, prompt: Sequence[int]) -> None:
        """A new generation begins after `prompt`."""
        self._recent = [-1, *prompt][-RECENT:]
        self._told.clear()
        self._n_drafted = 0
        self._seed()

    def _seed(self) -> None:
        self._window = Window(WIDTH, DEPTH, self._eog, context_seeds(self._recent, self._eog))

    def extend(self, tree: Tree, n_nodes: int) -> Tree:
        """The tree and up to `n_nodes` draft-only nodes, whose estimates are next to nothing."""
        builder = TreeBuilder.of(tree)
        self._window.draft(builder, len(tree) + n_nodes)
        self._n_drafted = len(builder) - len(tree)
        return builder.build() if self._n_drafted else tree

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        """Learn from a verified tree, the draft-only nodes being its last ones."""
        self._judge(walk)
        if self._n_drafted:
            self._remember(tree)
            self._window.read(tree, rows)
            self._window.advance(walk.tokens[0])
            self._n_drafted = 0
        self._window.shift(len(walk.tokens))
        self._recent = [*self._recent, *walk.tokens][-RECENT:]
        if not self._window.roots:
            self._seed()

    def _judge(self, walk: Walk) -> None:
        """Count accepted tokens at places that draft-only nodes told of; from then on a place has a row of its own."""
        if not self._told:
            return
        before, last = self._recent[-2:]
        for i, token in enumerate(walk.tokens):
            if self._told.pop((before, last), None) is not None and i < len(walk.path):
                self._brought += 1
            before, last = last, token

    def _remember(self, tree: Tree) -> None:
        self._nodes += self._n_drafted
        if self._nodes > MAX_NODES_COUNTED:
            self._nodes /= 2
            self._brought /= 2
        parents, tokens = tree.topology.parents, tree.tokens
        for node in range(len(tree) - self._n_drafted, len(tree)):
            self._told[tokens[parents[node]], tokens[node]] = 1
        while len(self._told) > MAX_PLACES:
            del self._told[next(iter(self._told))]
