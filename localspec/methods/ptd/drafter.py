"""Training-free drafting: all that the text and the model's own rows tell about what comes next, in one tree.

The sources are those of PTD (arXiv 2607.10661), Token Recycling (2408.08696), SAM-Decoding (2411.10666), LogitSpec
(2507.01449) and GOOSE (2604.02047); `core` tells how they meet. Knows token ids only.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.engine.base import Rows
from localspec.methods.base import Walk
from localspec.methods.ptd.core import MAX_TEXT
from localspec.methods.ptd.native import Corpus, Pool, new_core, new_pool
from localspec.methods.ptd.recycling import TOP_K
from localspec.tree import Topology, Tree

#: plain steps that wait at most until the core hears of them
MAX_WAITING = 32


class PtdDrafter:
    """Drafts from everything seen so far.

    `pool` is shared with whoever else gets it; without one the drafter has its own, which knows `corpus`. `keep` is
    whether the pool outlives a text that does not continue the last one. `width` limits the children of a node: 1 makes
    chains.
    """

    def __init__(
        self,
        pool: Pool | None = None,
        *,
        corpus: Corpus | None = None,
        keep: bool = True,
        width: int | None = None,
    ) -> None:
        self.pool = pool if pool is not None else new_pool(corpus=corpus)
        self.core = new_core(self.pool, width)
        self._learn_rows = getattr(self.core, "learn_rows", None)
        self._keep = keep
        self._text: list[int] = []
        #: whether the core was asked for a draft that it has not heard of since
        self._asked = False
        #: plain steps that nobody asked a draft for, not yet told to the core: roots, their best tokens, what came
        self._roots: list[int] = []
        self._tops: list[tuple[list[int], list[float]]] = []
        self._came: list[int] = []
        self._n_clears = self.pool.n_clears

    def start(self, prompt: Sequence[int]) -> None:
        """A new generation begins after `prompt`; what is known of the same beginning is used again."""
        self._tell()
        known = len(self._text)
        if not (0 < known <= len(prompt) and list(prompt[:known]) == self._text):
            if not self._keep:
                self.pool.clear()
            self.core.reset()
            self._text, known = [], 0
        self._text += prompt[known:]
        self.core.extend(prompt[max(known, len(prompt) - MAX_TEXT // 2) :])

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        """The `max_nodes` most likely nodes, the root included; fewer when not as many are likely enough."""
        if max_nodes <= 1:
            return Tree.root(self._text[-1])
        self._tell()
        self._asked = True
        return self.core.propose(max_nodes, least_p)

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        """Judge the drafts, keep what the model thought at each verified node, and take the new tokens in."""
        self._text += walk.tokens
        if len(tree) == 1 and not self._asked:
            self._wait(tree.tokens[0], rows, walk.tokens[0])
            return
        self._tell()
        self._asked = False
        if self._learn_rows is not None:
            few_best = getattr(rows, "few_best", None)
            addresses = few_best() if few_best is not None else None
            if addresses is not None:
                self._learn_rows(tree, *addresses, walk.path, walk.tokens)
                return
        tops = [rows.top_k(node, TOP_K) for node in range(len(tree))]
        self.core.learn(tree, tops, walk.path, walk.tokens)

    def _wait(self, root: int, rows: Rows, token: int) -> None:
        """Keep a plain step for later: while speculation is off, telling the core of each would cost more."""
        if not self._roots:
            self._n_clears = self.pool.n_clears
        self._roots.append(root)
        self._tops.append(rows.top_k(0, TOP_K))
        self._came.append(token)
        if len(self._roots) == MAX_WAITING:
            self._tell()

    def _tell(self) -> None:
        """Tell the core of the steps that wait, as of one step whose chain was accepted whole."""
        n = len(self._roots)
        if n and self._n_clears == self.pool.n_clears:  # a cleared pool must not learn this text again
            chain = Tree(Topology.chain(n), tuple(self._roots), (1.0,) * n)
            self.core.learn(chain, self._tops, range(1, n), self._came)
        elif n:
            self.core.extend(self._came)
        self._roots, self._tops, self._came = [], [], []
