"""Drafting with heads on the model's own hidden state (Hydra, Medusa): one static tree of their most likely tokens.

At each step the heads fill the tree below the last token; a node's estimate is the product of their probabilities along
its path. What of it is verified is for the scheduler to say: all of a static tree, or the nodes that pay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from localspec.engine.base import Rows
from localspec.entmtp.policies import score
from localspec.errors import UsageError
from localspec.heads.draws import SampledDraft
from localspec.heads.reference import HeadDraft
from localspec.heads.spec import FloatArray
from localspec.methods.base import Walk
from localspec.methods.sampled import DraftSampling, DrawRates
from localspec.static_tree import StaticTree
from localspec.tree import Tree

#: nodes so many times as likely as one has to be to pay have their children drafted: these have about half their p, and
#: cost a level beside. With 2, 3 and 7 `heads` and `ptd+heads` were slower (by cost, 26 prompts)
DEEPER = 4.0


class Evaluator(Protocol):
    """Heads that can draft: `localspec.heads.reference`, or native ones. `depth` is that of their deepest tree.

    Levels that would hang below nodes less likely than `least_p` only are not drafted; all are at 0.
    """

    depth: int

    def draft(self, g: FloatArray, root: int, tree: StaticTree, least_p: float = 0.0) -> HeadDraft: ...


@runtime_checkable
class SamplingEvaluator(Evaluator, Protocol):
    """Heads that can also draft by chance."""

    def draft_sampled(
        self, g: FloatArray, root: int, tree: StaticTree, temperature: float, rng: np.random.Generator
    ) -> SampledDraft: ...


class HeadsDrafter:
    """Drafts one of `trees` with `heads`: the smallest that has as many nodes as are asked for, else the largest. The
    first step of a text has no hidden state yet: it is plain.

    With `scored`, which costs a pass over the row, `score` tells how sure model and heads are of the coming step. After
    `sample_drafts` the tree is drawn by chance, for `localspec.methods.sequoia`.
    """

    def __init__(self, heads: Evaluator, *trees: StaticTree, scored: bool = False) -> None:
        self._heads = heads
        self._trees = sorted(trees, key=lambda tree: tree.n_nodes)
        self._tree = self._trees[-1]
        self._scored = scored
        self._root = -1
        self._hidden: FloatArray | None = None
        self._p_base = 0.0
        self._top1: tuple[float, ...] = ()
        self._chance: tuple[DraftSampling, SamplingEvaluator] | None = None
        self._rates = DrawRates()

    def sample_drafts(self, sampling: DraftSampling | None) -> None:
        """Draw the trees from now on, or (None) take the most likely tokens again.

        Raises `UsageError` for heads that cannot draw.
        """
        if sampling is None:
            self._chance = None
        elif isinstance(self._heads, SamplingEvaluator):
            self._chance = (sampling, self._heads)
        else:
            raise UsageError("these heads cannot draft by chance", "leave out --draft-sampling")

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
        self._tree = next((tree for tree in self._trees if tree.n_nodes >= max_nodes), self._trees[-1])
        hidden, chance = self._hidden, self._chance
        tree = self._likely(hidden, least_p) if chance is None else self._drawn(hidden, *chance)
        return tree.likeliest(max_nodes, least_p)

    def _likely(self, hidden: FloatArray, least_p: float) -> Tree:
        """The drafted levels of the tree: all where a score needs them, else those that may have nodes of `least_p`."""
        deeper = 0.0 if self._scored else DEEPER * least_p
        draft = self._heads.draft(hidden, self._root, self._tree, deeper)
        self._top1 = draft.top1
        n = self._tree.ends[draft.n_levels]
        parents = self._tree.topology.parents[:n]
        p = [1.0]
        for parent, q in zip(parents[1:], draft.q[1:n].tolist(), strict=True):
            p.append(p[parent] * q)
        return Tree.of(parents, draft.tokens[:n].tolist(), p)

    def _drawn(self, hidden: FloatArray, sampling: DraftSampling, heads: SamplingEvaluator) -> Tree:
        """The tree by chance. Nothing that decides which of it is verified may look at what was drawn: not the
        estimates, and not the score, which is that of the most likely tokens here as well."""
        tree = self._tree
        if self._scored:
            self._top1 = heads.draft(hidden, self._root, StaticTree.greedy(tree.depth)).top1
        drawn = heads.draft_sampled(hidden, self._root, tree, sampling.temperature, sampling.rng)
        sampling.drawn = drawn
        return Tree.of(tree.topology.parents, drawn.tokens.tolist(), self._rates.estimates(tree.topology))

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        """Keep the hidden state that the last token was drawn from."""
        row = (0, *walk.path)[len(walk.tokens) - 1]
        self._root, self._hidden = walk.tokens[-1], rows.hidden(row)
        if self._chance is not None:
            self._rates.observe(tree, walk)
        if self._scored:
            self._p_base = math.exp(rows.top_k(row, 1)[1][0] - rows.logsumexp(row))
