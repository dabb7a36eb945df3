"""Drafting with heads on the model's own hidden state (Hydra, Medusa): one static tree of their most likely tokens.

At each step the heads fill the tree below the last token; a node's estimate is the product of their probabilities along
its path. What of it is verified is for the scheduler to say: all of a static tree, or the nodes that pay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from localspec.engine.base import Rows
from localspec.entmtp.policies import score
from localspec.heads.reference import HeadDraft
from localspec.heads.spec import FloatArray
from localspec.methods.base import Walk
from localspec.static_tree import StaticTree
from localspec.tree import Tree


class Evaluator(Protocol):
    """Heads that can draft: `localspec.heads.reference`, or native ones."""

    def draft(self, g: FloatArray, root: int, tree: StaticTree) -> HeadDraft: ...


class HeadsDrafter:
    """Drafts `tree` with `heads`. The first step of a text has no hidden state yet: it is plain.

    With `scored`, which costs a pass over the row, `score` tells how sure model and heads are of the coming step.
    """

    def __init__(self, heads: Evaluator, tree: StaticTree, *, scored: bool = False) -> None:
        self._heads = heads
        self._tree = tree
        self._scored = scored
        self._root = -1
        self._hidden: FloatArray | None = None
        self._p_base = 0.0
        self._top1: tuple[float, ...] = ()

    def score(self, depth: int) -> float:
        """p_base * q_1 * .. * q_depth of the tree proposed last: the probability of the model's best token where the
        root was drawn, and of the heads' on their own path of most likely tokens (EntMTP section 4)."""
        return score(self._p_base, self._top1[:depth])

    def start(self, prompt: Sequence[int]) -> None:
        """A new generation begins after `prompt`."""
        self._root, self._hidden = prompt[-1], None

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        """The nodes of the tree with the largest estimates, at most `max_nodes`, none below `least_p`."""
        if max_nodes <= 1 or self._hidden is None:
            return Tree.root(self._root)
        draft = self._heads.draft(self._hidden, self._root, self._tree)
        self._top1 = draft.top1
        parents = self._tree.topology.parents
        p = [1.0]
        for parent, q in zip(parents[1:], draft.q[1:].tolist(), strict=True):
            p.append(p[parent] * q)
        return Tree.of(parents, draft.tokens.tolist(), p).likeliest(max_nodes, least_p)

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        """Keep the hidden state that the last token was drawn from."""
        row = (0, *walk.path)[len(walk.tokens) - 1]
        self._root, self._hidden = walk.tokens[-1], rows.hidden(row)
        if self._scored:
            self._p_base = math.exp(rows.top_k(row, 1)[1][0] - rows.logsumexp(row))
