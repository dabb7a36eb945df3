"""Static trees of ranks: which of the heads' candidates are verified, whatever the tokens are.

A path (r_1, .., r_d) names the node that is reached by taking candidate r_1 of the root, then candidate r_2 of that
node, and so on: the notation of Medusa's tree files. Published node counts leave the root out (`n_drafts`); the cost of
a step counts it (`n_nodes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from numbers import Integral
from typing import Any

from localspec.errors import UsageError
from localspec.tree import MAX_NODES, Topology

#: trees use smaller ranks than this, so that logs of ranks can keep larger ones as this one
MAX_RANK = 127

Path = tuple[int, ...]


@dataclass(frozen=True)
class Level:
    """The nodes of one depth that have children: what one head is asked.

    `widths` is how many candidates each of them needs, `above` the place of its own parent in the level before (0 for
    the root), `greedy` the place of the node on the path of rank 0, None when that path ended.
    """

    parents: tuple[int, ...]
    widths: tuple[int, ...]
    above: tuple[int, ...]
    greedy: int | None


@dataclass(frozen=True)
class StaticTree:
    """A set of rank paths, closed under prefixes. No paths at all make the tree of plain decoding.

    `paths` are kept by depth, then in order: path i belongs to node i + 1 of `topology`. Two trees are equal when their
    paths are. Raises `UsageError` for a path without its prefix, a rank outside 0 to 126, or too many nodes.
    """

    paths: tuple[Path, ...] = ()
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for path in self.paths:
            if not len(path) or not all(isinstance(rank, Integral) and 0 <= rank < MAX_RANK for rank in path):
                raise UsageError(f"{list(path)} is not a path of ranks from 0 to {MAX_RANK - 1}")
        paths = sorted({tuple(map(int, path)) for path in self.paths}, key=lambda path: (len(path), path))
        if len(paths) >= MAX_NODES:
            raise UsageError(f"a tree has at most {MAX_NODES} nodes with its root, not {len(paths) + 1}")
        object.__setattr__(self, "paths", tuple(paths))
        _ = self.topology  # tells of a path without its prefix

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[int]], name: str = "") -> StaticTree:
        """The tree with these paths, in any order and notation: `[[0], [0, 0], [1]]`."""
        return cls(tuple(tuple(path) for path in paths), name)

    @classmethod
    def greedy(cls, depth: int) -> StaticTree:
        """The chain of the most likely tokens."""
        return cls(tuple((0,) * d for d in range(1, depth + 1)))

    @classmethod
    def by_ranks(cls, limits: Sequence[int], name: str = "") -> StaticTree:
        """All paths of d nodes whose (rank + 1) multiply to `limits[d - 1]` at most, for every depth d.

        Less likely candidates have fewer children, as in trees of greedy growth, without any figures of the heads.
        Limits must not ascend.
        """
        paths: list[tuple[int, ...]] = []
        level: list[tuple[tuple[int, ...], int]] = [((), 1)]
        for limit in limits:
            level = [((*path, r), product * (r + 1)) for path, product in level for r in range(limit // product)]
            paths += [path for path, _ in level]
        return cls.from_paths(paths, name)

    @classmethod
    def union(cls, trees: Iterable[StaticTree]) -> StaticTree:
        """The smallest tree that contains all of `trees`."""
        return cls.from_paths({path for tree in trees for path in tree.paths}, "union")

    def to_paths(self) -> list[list[int]]:
        """The paths in Medusa's notation, by depth, then in order."""
        return [list(path) for path in self.paths]

    @cached_property
    def topology(self) -> Topology:
        """The shape: node 0 is the root, node i + 1 ends path i."""
        return Topology.from_paths(self.paths, self.name)

    @property
    def n_nodes(self) -> int:
        """Nodes with the root: the rows of one verification pass."""
        return len(self.paths) + 1

    @property
    def n_drafts(self) -> int:
        """Nodes without the root, as in the published counts."""
        return len(self.paths)

    @property
    def depth(self) -> int:
        """Depth of the deepest node: the heads that are needed."""
        return len(self.paths[-1]) if self.paths else 0

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Rank of each node among the candidates of its parent; -1 for the root."""
        return (-1, *(path[-1] for path in self.paths))

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Candidates that each node has to propose: its largest child's rank + 1, 0 for a leaf."""
        widths = [0] * self.n_nodes
        for parent, rank in zip(self.topology.parents[1:], self.ranks[1:], strict=True):
            widths[parent] = rank + 1  # the last child of a parent has the largest rank
        return tuple(widths)

    @property
    def contiguous(self) -> bool:
        """Whether the children of every node have the ranks 0, 1, .. without a gap."""
        return all(w == len(c) for w, c in zip(self.widths, self.topology.children, strict=True))

    @property
    def nodes_per_depth(self) -> tuple[int, ...]:
        """Number of nodes at depth 1, 2, .."""
        depths = [len(path) for path in self.paths]
        return tuple(depths.count(d) for d in range(1, self.depth + 1))

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Number of nodes, the root among them, down to depth 0, 1, ..: those are the first ones."""
        return tuple(accumulate(self.nodes_per_depth, initial=1))

    @property
    def parents_per_depth(self) -> tuple[int, ...]:
        """Number of rows that head 0, 1, .. has to be run on: nodes at that depth that have children."""
        depths = [d for d, children in zip(self.topology.depths, self.topology.children, strict=True) if children]
        return tuple(depths.count(d) for d in range(self.depth))

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """What each head is asked: one entry a depth that has children, the root's first."""
        topology = self.topology
        expanded: list[list[int]] = [[] for _ in range(self.depth)]
        for node, children in enumerate(topology.children):
            if children:
                expanded[topology.depths[node]].append(node)
        levels: list[Level] = []
        place = {-1: 0}
        greedy = {0}
        for nodes in expanded:
            on_path = next((at for at, node in enumerate(nodes) if node in greedy), None)
            widths = tuple(self.widths[node] for node in nodes)
            levels.append(Level(tuple(nodes), widths, tuple(place[topology.parents[node]] for node in nodes), on_path))
            place = {node: at for at, node in enumerate(nodes)}
            path = () if on_path is None else topology.children[nodes[on_path]]
            greedy = {child for child in path if self.ranks[child] == 0}
        return tuple(levels)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, read back by `from_dict`."""
        return {"name": self.name, "paths": self.to_paths()}

    @classmethod
    def from_dict(cls, data: object) -> StaticTree:
        """Rebuild a tree from `to_dict` data. Raises `UsageError` for anything else."""
        if not isinstance(data, Mapping) or not isinstance(data.get("paths"), list):
            raise UsageError("a static tree is an object with a list 'paths'", "build it again")
        name, paths = data.get("name", ""), data["paths"]
        if not isinstance(name, str):
            raise UsageError(f"the name of a static tree is a string, not {name!r}", "build it again")
        for path in paths:
            if not isinstance(path, list) or any(type(rank) is not int for rank in path):
                raise UsageError(f"a path of tree {name!r} is a list of ranks, not {path!r}", "build it again")
        return cls.from_paths(paths, name)


def _published(text: str, name: str) -> StaticTree:
    """A tree written as the digits of its ranks; published trees use ranks 0 to 9 only."""
    return StaticTree.from_paths(([int(digit) for digit in path] for path in text.split()), name)


#: the default tree of Medusa and Hydra for 7B models, found on Vicuna-7B (a fact of Medusa's tree file)
MC_SIM_7B_63 = _published(
    "0 1 2 3 4 5 6 7 8 9 "
    "00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 20 21 22 30 31 40 50 60 70 80 90 "
    "000 001 002 003 004 005 006 007 008 009 010 011 012 020 021 030 040 050 060 070 100 101 200 "
    "0000 0001",
    "mc_sim_7b_63",
)
