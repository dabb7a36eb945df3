"""How far a drafter's estimates are to be believed."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.methods.base import Walk
from localspec.tree import Tree


class Calibration:
    """Corrects a drafter's estimates by what came true, depth by depth.

    Learns from the children of verified nodes, which are judged by the emitted tokens even if they were not verified
    themselves: so a step that verified the root alone still tells something.
    """

    _DEPTHS = 9
    _MEMORY = 0.96
    _HEAVIEST = 1e30
    _PRIOR = 2.0
    #: largest factors by which an estimate is raised: that of a first node, and of deeper ones, where errors add up
    _MOST_FIRST, most = 1.25, 1.5

    def __init__(self) -> None:
        # plain lists: trees are small, and this runs in every step that drafted
        self._expected = [0.0] * self._DEPTHS
        self._seen = [0.0] * self._DEPTHS
        self._factor = [1.0] * self._DEPTHS
        #: of what is counted next: it grows from step to step, instead of all older counts being faded
        self._weight = 1.0

    def start(self) -> None:
        """A new text: little of the past remains."""
        self._fade(0.1)
        self._update()

    def _fade(self, share: float) -> None:
        share /= self._weight
        self._expected = [share * value for value in self._expected]
        self._seen = [share * value for value in self._seen]
        self._weight = 1.0

    def correct(self, tree: Tree) -> list[float]:
        """Corrected p of each node, never larger than the parent's."""
        factor, last = self._factor, self._DEPTHS - 1
        topology = tree.topology
        corrected = [1.0]
        for p, depth, parent in zip(tree.p[1:], topology.depths[1:], topology.parents[1:], strict=True):
            corrected.append(min(p * factor[min(depth, last)], corrected[parent]))
        return corrected

    def trusted(self, p: float, depth: int) -> float:
        """What an estimate `p` of a node at `depth` is worth."""
        return min(p * self._factor[min(depth, self._DEPTHS - 1)], 1.0)

    def observe(self, candidate: Tree, keep: Sequence[int], walk: Walk) -> None:
        """Compare a candidate tree, of which the nodes `keep` were verified, with the emitted tokens."""
        if self._weight > self._HEAVIEST:
            self._fade(1.0)
        self._weight = weight = self._weight / self._MEMORY
        last = self._DEPTHS - 1
        verified = set(keep)
        expected, seen = self._expected, self._seen
        topology = candidate.topology
        for parent, depth, p in zip(topology.parents, topology.depths, candidate.p, strict=True):
            # Only below a verified node would acceptance have been seen; counting more would count failures alone.
            if parent in verified:
                expected[min(depth, last)] += weight * p
        node: int | None = 0
        for depth, token in enumerate(walk.tokens, start=1):
            node = candidate.child(node, token) if node is not None else None
            if node is None:
                break
            seen[min(depth, last)] += weight
        self._update()

    def _update(self) -> None:
        factor = 1.0
        factors = [1.0]
        prior = self._PRIOR * self._weight
        for seen, expected in zip(self._seen[1:], self._expected[1:], strict=True):
            # A depth with few cases leans on the one above.
            most = self._MOST_FIRST if len(factors) == 1 else self.most
            factor = min((seen + prior * factor) / (expected + prior), most)
            factors.append(factor)
        self._factor = factors
