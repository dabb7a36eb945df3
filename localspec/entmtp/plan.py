"""Which trees of a rank log are worth running: grown, thinned out, and ranked by what they should cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from localspec.calibrate.curve import CostCurve
from localspec.entmtp.growth import grow_all
from localspec.entmtp.pareto import bank_by_cost, pareto_front
from localspec.entmtp.ranks import RankLog
from localspec.entmtp.replay import TreeReplay
from localspec.methods.registry import MAX_TREE_NODES
from localspec.static_tree import StaticTree

#: sizes, root included, of the trees that may be used: neighbours of a large tree cost and bring nearly the same
SIZES = (*range(1, 17), 18, 20, 22, 24, 28, 32, 36, 40, 48, 56, MAX_TREE_NODES)
#: trees that are run: so many of the bank that the curve promises, and some that are larger than its largest
N_TREES, LARGER = 6, (1.35, 1.8)


@dataclass(frozen=True)
class Plan:
    """Trees by exact replay: the Pareto front of all that were grown, and those of usable sizes."""

    front: tuple[TreeReplay, ...]
    candidates: tuple[TreeReplay, ...]

    @classmethod
    def of(cls, log: RankLog, max_nodes: int) -> Plan:
        """Grow trees of up to `max_nodes` nodes for every depth of the heads."""
        grown = grow_all(log, min(max_nodes, MAX_TREE_NODES))
        candidates = (replayed for replayed in grown if replayed.tree.n_nodes in SIZES)
        return cls(tuple(pareto_front(grown)), tuple(candidates))

    @property
    def trees(self) -> tuple[StaticTree, ...]:
        """The trees that may be used."""
        return tuple(replayed.tree for replayed in self.candidates)

    def of_trees(self, trees: Iterable[StaticTree]) -> list[TreeReplay]:
        """The replays of some of them."""
        by_tree = {replayed.tree: replayed for replayed in self.candidates}
        return [by_tree[tree] for tree in trees]

    def shortlist(self, curve: CostCurve, draft_seconds: Mapping[StaticTree, float]) -> list[StaticTree]:
        """The trees to run, by size: plain decoding, the bank by the curve, and larger ones, should it be wrong."""

        def planned(tree: StaticTree) -> float:
            return curve.cost(tree.n_nodes) + draft_seconds[tree]

        bank = bank_by_cost(self.candidates, planned).spread(N_TREES)
        chosen = {StaticTree(), *bank.trees}
        last = least = bank.trees[-1].n_nodes
        for factor in LARGER:
            larger = [r for r in self.candidates if r.tree.n_nodes >= max(factor * last, least + 1)]
            if larger:
                least = min(r.tree.n_nodes for r in larger)
                same = (r for r in larger if r.tree.n_nodes == least)
                chosen.add(max(same, key=lambda r: r.tokens_per_step / planned(r.tree)).tree)
        return sorted(chosen, key=lambda tree: (tree.n_nodes, tree.paths))


def front_points(front: Sequence[TreeReplay]) -> list[list[float]]:
    """Nodes and mean acceptance of each tree of a front, for reports."""
    return [[replayed.tree.n_nodes, replayed.mean_accepted] for replayed in front]
