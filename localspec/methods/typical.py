"""Typical acceptance, as published with Medusa and used by Hydra and EntMTP. Not lossless: it exists to compare.

A drafted token x is accepted when the target finds it typical enough: p(x) > min(epsilon, delta * exp(-H(p))), with
the entropy H in nats (Cai et al. 2024, section 2.3.1). Of the accepted paths the longest is taken, among equally long
ones the likeliest; the token after it is the target's best, so that every step emits one at least. Nothing is drawn.

The text does not have the target's distribution. `forgiven` counts accepted tokens that were not the target's best.
"""

from __future__ import annotations

import math

import numpy as np

from localspec.engine.base import Law, Rows
from localspec.methods.base import Sampler, Walk
from localspec.tree import Tree

#: the published defaults: posterior threshold and posterior alpha
EPSILON, DELTA = 0.09, 0.3


def threshold(p: np.ndarray, epsilon: float = EPSILON, delta: float = DELTA) -> float:
    """The probability that a token of the law `p` [n], float64 without zeros, has to exceed."""
    entropy = -float(p @ np.log(p))
    return min(epsilon, delta * math.exp(-entropy))


class TypicalVerifier:
    """Walks the longest typical path. `p` is the law of the sampler chain; the published rule is that of a chain with a
    temperature and nothing else (top-k 0, top-p 1, min-p 0).

    Paths are compared before one is taken, so the law must not depend on the text: no penalties, no grammar.
    """

    name = "typical"
    lossless = False

    def __init__(self, epsilon: float = EPSILON, delta: float = DELTA) -> None:
        self._epsilon, self._delta = epsilon, delta

    def walk(self, tree: Tree, rows: Rows, sampler: Sampler, stop: frozenset[int], limit: int) -> Walk:
        """Emit at most `limit` (>= 1) tokens, ending with the first token in `stop`."""
        laws: dict[int, Law] = {}
        path = self._longest(tree, rows, sampler, laws)
        best = [_best(laws[node]) for node in (0, *path)]
        tokens = [*(tree.tokens[node] for node in path), best[-1]][:limit]
        end = next((n for n, token in enumerate(tokens, start=1) if token in stop), len(tokens))
        tokens, path = tokens[:end], path[:end]
        for token in tokens:
            sampler.accept(token)
        forgiven = tuple(i for i in range(len(path)) if tokens[i] != best[i])
        return Walk(tuple(path), tuple(tokens), forgiven)

    def _longest(self, tree: Tree, rows: Rows, sampler: Sampler, laws: dict[int, Law]) -> list[int]:
        """The nodes of the path, without the root. `laws` gains the target's law at every node that was reached."""
        topology = tree.topology
        # by node: depth and log probability of the path to it, for nodes whose whole path is accepted
        reached: dict[int, tuple[int, float]] = {0: (0, 0.0)}
        for node in range(len(tree)):
            if node not in reached:
                continue
            law = laws[node] = sampler.law(rows, node)
            children = topology.children[node]
            if not children:
                continue
            least = threshold(law.p, self._epsilon, self._delta)
            depth, likelihood = reached[node]
            for child in children:
                p = float(law.p[law.ids == tree.tokens[child]].sum())
                if p > least:
                    reached[child] = (depth + 1, likelihood + math.log(p))
        last = max(reached, key=reached.__getitem__)
        return list(topology.path(last)[1:])


def _best(law: Law) -> int:
    return int(law.ids[law.p.argmax()])
