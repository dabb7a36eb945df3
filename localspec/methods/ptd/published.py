"""Progressive tree drafting as published (arXiv 2607.10661, code at github.com/MINE-USTC/PTD).

In one pass the model verifies the pool's tree of the last token and computes the argmax of all nodes of the draft
window; deep enough sub-trees of the window go to the pool, and the window grows on. There is no training and no second
model.

Not copied from the released code are its defects: sampling is made exact by the verifier, all merges take effect at
once, and the tokens that end a text are given rather than assumed to be id 2. Equal nodes of candidates and window
share a row; as their contexts are equal too, that changes the cost and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from localspec.engine.base import Rows
from localspec.errors import UsageError
from localspec.methods.base import Walk
from localspec.methods.ptd.published_pool import Pool
from localspec.methods.ptd.window import Window, context_seeds, random_seeds
from localspec.tree import Tree, TreeBuilder


class PublishedDrafter:
    """Drafts a window of `width` tokens with sub-trees of `depth` levels, and candidates from a pool of `pool_nodes`
    nodes a token. The defaults are the published ones.

    `eog` are the ids that end a text. The window starts from random prompt tokens, a function of `seed`, or with
    `context_seeds` from tokens of the prompt in their order. A tree has up to 1 + pool_nodes + some 25 to 80 nodes at
    the defaults, before equal ones are merged.

    Raises `UsageError` when a size is below 1.
    """

    def __init__(
        self,
        eog: frozenset[int],
        *,
        width: int = 4,
        depth: int = 6,
        pool_nodes: int = 60,
        seed: int = 10,
        context_seeds: bool = False,
    ) -> None:
        for name, size in (("width", width), ("depth", depth), ("pool_nodes", pool_nodes)):
            if size < 1:
                raise UsageError(f"progressive drafting cannot work with {name} {size}", "give 1 or more")
        self._eog, self._width, self._depth = frozenset(eog), width, depth
        self._seed, self._context_seeds = seed, context_seeds
        self._last = -1
        self.pool = Pool(pool_nodes)
        self.window = Window(width, depth, self._eog)

    def start(self, prompt: Sequence[int]) -> None:
        """A new generation begins after `prompt`: the pool is emptied and the window seeded again."""
        self._last = prompt[-1]
        self.pool.clear()
        if self._context_seeds:
            seeds = context_seeds(prompt, self._eog)
        else:
            seeds = random_seeds(prompt, self._eog, Random(self._seed))
        self.window = Window(self._width, self._depth, self._eog, seeds)

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        """The candidates of the last token, then the window, as far as `max_nodes` reaches."""
        builder = TreeBuilder(self._last)
        self.pool.draft(self._last, builder, max_nodes)
        self.window.draft(builder, max_nodes)
        return builder.build()

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        """Recycle the verified candidates, harvest the window into the pool and let it grow.

        Only nodes that are in `tree` count, so a cut or missing draft is no harm.
        """
        self._last = walk.tokens[-1]
        self.pool.recycle(tree, rows)
        if self.window.read(tree, rows) and self.window.ripe():
            self.harvest()
        self.window.advance(walk.tokens[0])

    def harvest(self) -> None:
        """Merge the sub-tree of every window node that was just read, its argmax included, into the pool."""
        for node in self.window.nodes():
            if node.draft is not None:
                self.pool.merge(node)
