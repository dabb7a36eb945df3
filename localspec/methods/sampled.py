"""What drafting by chance needs beside heads: where the draws of a step are kept, and estimates that do not see them.

A drafted tree is cut to what pays by the estimates of its nodes. For trees of the most likely tokens these are the
heads' probabilities. For trees that were drawn they must not be: choosing among draws by their probability favours some
tokens, and the text would no longer have the target's law. So a drawn node is judged by its depth and its place in the
order of the draws alone, by how often draws of that kind were accepted before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localspec.heads.draws import SampledDraft
from localspec.methods.base import Walk
from localspec.methods.rates import RunningRates
from localspec.tree import Topology, Tree

#: below this the heads' most likely tokens are accepted more often than draws
LEAST_TEMPERATURE = 0.7


@dataclass
class DraftSampling:
    """How one generation drafts by chance, and what was drawn for the tree proposed last.

    The drafter writes `drawn`, the verifier of the same method reads it. `temperature` is the target's.
    """

    temperature: float
    rng: np.random.Generator
    drawn: SampledDraft | None = None


class DrawRates:
    """How often the i-th draw at a depth is accepted when it is tried: the estimates of drawn trees."""

    _DEPTHS, _PLACES = 8, 16
    #: of the first draw of a node, before anything is known; further ones are a little less likely each
    _FIRST = 0.6
    _WEIGHT, _MOST = 8.0, 400.0

    def __init__(self) -> None:
        priors = [self._FIRST / (1 + 0.7 * place) for place in range(self._PLACES)]
        self._rates = RunningRates(priors * self._DEPTHS, self._WEIGHT, self._MOST)

    def _kind(self, depth: int, place: int) -> int:
        return min(depth, self._DEPTHS - 1) * self._PLACES + min(place, self._PLACES - 1)

    def estimates(self, topology: Topology) -> list[float]:
        """The chance of each node to be accepted: its parent is, all draws before it are not, and it is."""
        p = [1.0] * len(topology)
        for node, children in enumerate(topology.children):
            left = p[node]
            for place, child in enumerate(children):
                p[child] = left * self._rates.p[self._kind(topology.depths[node], place)]
                left -= p[child]
        return p

    def observe(self, tree: Tree, walk: Walk) -> None:
        """Learn from a verified tree."""
        topology = tree.topology
        taken: Sequence[int | None] = (*walk.path, None)
        for node, child in zip((0, *walk.path)[: len(walk.tokens)], taken, strict=False):
            for place, tried in enumerate(topology.children[node]):
                self._rates.count(self._kind(topology.depths[node], place), tried == child)
                if tried == child:
                    break
