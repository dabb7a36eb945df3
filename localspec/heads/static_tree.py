"""The shape of a draft tree whose nodes are ranks of a head's candidates, made once and used at every step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from localspec.errors import UsageError
from localspec.tree import Topology


@dataclass(frozen=True)
class Level:
    """The nodes of one depth that have children.

    `widths` is how many candidates each of them needs, `above` the place of its own parent in the level before (0 for
    the root), `greedy` the place of the node on the path of rank 0, None when that path ended.
    """

    parents: tuple[int, ...]
    widths: tuple[int, ...]
    above: tuple[int, ...]
    greedy: int | None


@dataclass(frozen=True)
class StaticTree:
    """A topology and each node's rank among the candidates of its parent, 0 for the most likely; 0 at the root.

    Raises `UsageError` for ranks that do not fit the topology, or that two children of a node share.
    """

    topology: Topology
    ranks: tuple[int, ...]

    def __post_init__(self) -> None:
        parents = self.topology.parents
        if len(self.ranks) != len(parents):
            raise UsageError(f"a tree of {len(parents)} nodes has {len(self.ranks)} ranks", "give one rank a node")
        seen: set[tuple[int, int]] = set()
        for node, (parent, rank) in enumerate(zip(parents, self.ranks, strict=True)):
            if rank < 0 or (parent < 0 and rank != 0):
                raise UsageError(f"node {node} has the rank {rank}: ranks begin at 0, and the root's is 0")
            if (parent, rank) in seen:
                raise UsageError(f"node {node} has the rank {rank}, as another child of node {parent} does")
            seen.add((parent, rank))

    @classmethod
    def of(cls, parents: Sequence[int], ranks: Sequence[int]) -> StaticTree:
        """The tree with these parents and ranks, one a node, the root first. Raises `UsageError`."""
        return cls(Topology(tuple(parents)), tuple(ranks))

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[int]], name: str = "") -> StaticTree:
        """Build from rank paths in the notation of Medusa's tree files: `[0]`, `[0, 0]`, `[1]`, ...

        Raises `UsageError` when a proper prefix of a path is missing.
        """
        ordered = sorted({tuple(path) for path in paths if len(path)}, key=lambda path: (len(path), path))
        return cls(Topology.from_paths(ordered, name), (0, *(path[-1] for path in ordered)))

    @classmethod
    def greedy(cls, depth: int) -> StaticTree:
        """The chain of the most likely tokens."""
        return cls(Topology.chain(depth + 1), (0,) * (depth + 1))

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """What each head is asked: one entry a depth that has children, the root's first."""
        topology = self.topology
        expanded: list[list[int]] = [[] for _ in range(topology.depth)]
        for node, children in enumerate(topology.children):
            if children:
                expanded[topology.depths[node]].append(node)
        levels: list[Level] = []
        place = {-1: 0}
        greedy = {0}
        for nodes in expanded:
            on_path = next((at for at, node in enumerate(nodes) if node in greedy), None)
            widths = tuple(1 + max(self.ranks[child] for child in topology.children[node]) for node in nodes)
            levels.append(Level(tuple(nodes), widths, tuple(place[topology.parents[node]] for node in nodes), on_path))
            place = {node: at for at, node in enumerate(nodes)}
            path = () if on_path is None else topology.children[nodes[on_path]]
            greedy = {child for child in path if self.ranks[child] == 0}
        return tuple(levels)
