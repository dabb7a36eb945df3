"""Drafting with heads on the model's own hidden state (Hydra, Medusa): one static tree of their most likely tokens.

At each step the heads fill the tree below the last token; a node's estimate is the product of their probabilities along
its path. What of it is verified is for the scheduler to say: all of a static tree, or the nodes that pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from localspec.engine.base import Rows
from localspec.heads.reference import HeadDraft
from localspec.heads.spec import FloatArray
from localspec.methods.base import Walk
from localspec.static_tree import StaticTree
from localspec.tree import Tree


class Evaluator(Protocol):
    """Heads that can draft: `localspec.heads.reference`, or native ones."""

    def draft(self, g: FloatArray, root: int, tree: StaticTree) -> HeadDraft: ...


class HeadsDrafter:
    """Drafts `tree` with `heads`. The first step of a text has no hidden state yet: it is plain."""

    def __init__(self, heads: Evaluator, tree: StaticTree) -> None:
        self._heads = heads
        self._tree = tree
        self._root = -1
        self._hidden: FloatArray | None = None

    def start(self, prompt: Sequence[int]) -> None:
        """A new generation begins after `prompt`."""
        self._root, self._hidden = prompt[-1], None

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        """The nodes of the tree with the largest estimates, at most `max_nodes`, none below `least_p`."""
        if max_nodes <= 1 or self._hidden is None:
            return Tree.root(self._root)
        draft = self._heads.draft(self._hidden, self._root, self._tree)
        parents = self._tree.topology.parents
        p = [1.0]
        for parent, q in zip(parents[1:], draft.q[1:].tolist(), strict=True):
            p.append(p[parent] * q)
        tree = Tree.of(parents, draft.tokens.tolist(), p)
        # parents come first and are never less likely, so a stable sort keeps them before their children
        order = sorted(range(len(p)), key=p.__getitem__, reverse=True)[:max_nodes]
        return tree.prune(sorted(node for node in order if p[node] >= least_p))

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        """Keep the hidden state that the last token was drawn from."""
        self._root = walk.tokens[-1]
        self._hidden = rows.hidden((0, *walk.path)[len(walk.tokens) - 1])
