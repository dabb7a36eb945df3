"""Token trees: their shape (`Topology`), a bank of shapes, and a shape filled with tokens (`Tree`).

Node 0 is the root: the last emitted token, which has no K/V row yet. Every other node is a drafted token. Nodes are
stored parents first, so `parents[i] < i`; the root's parent is -1. Shapes are made once and shared by reference: all
derived arrays are computed lazily, once, and are read-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from localspec.errors import UsageError

MAX_NODES = 256

IntArray = npt.NDArray[np.int32]


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


@dataclass(frozen=True)
class Topology:
    """The shape of a token tree.

    `parents` has one entry a node, parents first. Two topologies are equal when their parents are.

    Raises `UsageError` when the parents do not describe one tree of 1 to 256 nodes.
    """

    parents: tuple[int, ...]
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not 1 <= len(self.parents) <= MAX_NODES:
            raise UsageError(f"a tree has 1 to {MAX_NODES} nodes, not {len(self.parents)}")
        if self.parents[0] != -1:
            raise UsageError(f"node 0 is the root, so its parent is -1, not {self.parents[0]}")
        for node, parent in enumerate(self.parents[1:], start=1):
            if not 0 <= parent < node:
                raise UsageError(f"node {node} has parent {parent}: a parent comes before its children")

    @classmethod
    def chain(cls, n_nodes: int) -> Topology:
        """The shape without branches: root, child, grandchild, ..."""
        return _chain(n_nodes)

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[int]], name: str = "") -> Topology:
        """Build from rank paths in the notation of Medusa's tree files: `[0]`, `[0, 0]`, `[1]`, ...

        Each path names a node by the ranks taken from the root; every proper prefix must be present as well. Children
        are ordered by rank and nodes by (depth, path).
        """
        ordered = sorted({tuple(path) for path in paths if len(path)}, key=lambda path: (len(path), path))
        index: dict[tuple[int, ...], int] = {(): 0}
        parents = [-1]
        for path in ordered:
            if path[:-1] not in index:
                raise UsageError(f"path {list(path)} lacks its prefix {list(path[:-1])}")
            index[path] = len(parents)
            parents.append(index[path[:-1]])
        return cls(tuple(parents), name)

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def n_nodes(self) -> int:
        """Number of nodes, the root included: the rows of one verification pass."""
        return len(self.parents)

    @cached_property
    def parent_array(self) -> IntArray:
        """`parents` as int32, shape [n_nodes]."""
        return _frozen(np.array(self.parents, dtype=np.int32))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Distance of each node from the root."""
        depths = [0]
        for parent in self.parents[1:]:
            depths.append(depths[parent] + 1)
        return tuple(depths)

    @property
    def depth(self) -> int:
        """Depth of the deepest node; 0 for a lone root."""
        return max(self.depths)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of each node, in node order."""
        children: list[list[int]] = [[] for _ in self.parents]
        for node, parent in enumerate(self.parents[1:], start=1):
            children[parent].append(node)
        return tuple(map(tuple, children))

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """How many levels there are below each node; 0 for a leaf."""
        heights = [0] * self.n_nodes
        for node in range(self.n_nodes - 1, 0, -1):
            parent = self.parents[node]
            heights[parent] = max(heights[parent], heights[node] + 1)
        return tuple(heights)

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """Nodes without children."""
        return tuple(node for node, children in enumerate(self.children) if not children)

    @cached_property
    def ancestors(self) -> npt.NDArray[np.uint32]:
        """Ancestor-or-self bitsets, uint32 words, shape [n_nodes, ceil(n_nodes / 32)]; bit g of row i: g is on the
        path from the root to i."""
        words = np.zeros((self.n_nodes, (self.n_nodes + 31) // 32), dtype=np.uint32)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                words[node] = words[parent]
            words[node, node // 32] |= np.uint32(1) << np.uint32(node % 32)
        return _frozen(words)

    def path(self, node: int) -> tuple[int, ...]:
        """Nodes from the root to `node`, both included."""
        path = [node]
        while (node := self.parents[node]) >= 0:
            path.append(node)
        return tuple(reversed(path))

    def prune(self, keep: Sequence[int]) -> Topology:
        """The sub-tree of the nodes in `keep` (sorted, closed under parents, with the root)."""
        position = {-1: -1}
        position.update(zip(keep, range(len(keep)), strict=True))
        parents = self.parents
        return Topology._of(tuple([position[parents[node]] for node in keep]))

    @classmethod
    def _of(cls, parents: tuple[int, ...]) -> Topology:
        """A topology of parents that are right by construction: a step makes one, so it pays to skip the checks."""
        topology = cls.__new__(cls)
        object.__setattr__(topology, "parents", parents)
        object.__setattr__(topology, "name", "")
        return topology


@lru_cache(maxsize=MAX_NODES)
def _chain(n_nodes: int) -> Topology:
    return Topology(tuple(range(-1, n_nodes - 1)), f"chain{n_nodes}")


@dataclass(frozen=True)
class TopologyBank:
    """An ordered set of shapes to choose from, smallest first. Choosing one is an index look-up."""

    topologies: tuple[Topology, ...]

    def __post_init__(self) -> None:
        if not self.topologies:
            raise UsageError("a tree bank needs at least one tree")
        ordered = tuple(sorted(self.topologies, key=lambda topology: topology.n_nodes))
        object.__setattr__(self, "topologies", ordered)

    def __len__(self) -> int:
        return len(self.topologies)

    def __iter__(self) -> Iterator[Topology]:
        return iter(self.topologies)

    def __getitem__(self, index: int) -> Topology:
        return self.topologies[index]

    def largest_within(self, n_nodes: int) -> Topology:
        """The largest shape of at most `n_nodes` nodes, else the smallest there is."""
        fitting = [topology for topology in self.topologies if topology.n_nodes <= n_nodes]
        return fitting[-1] if fitting else self.topologies[0]


# made once, as every plain step uses it
_LONE_ROOT = Topology.chain(1)


@dataclass(frozen=True)
class Tree:
    """A shape with a token at every node.

    `tokens` has one id a node; `p` is the drafter's estimate of the probability that the node ends up accepted (its
    whole path, so it never increases with depth); `p[0]` is 1. Plain tuples: trees are small, and a step looks at
    single nodes, where arrays are slow.
    """

    topology: Topology
    tokens: tuple[int, ...]
    p: tuple[float, ...]

    @classmethod
    def root(cls, token: int) -> Tree:
        """The tree of plain decoding: the last token alone."""
        return cls(_LONE_ROOT, (token,), (1.0,))

    @classmethod
    def of(cls, parents: Sequence[int], tokens: Sequence[int], p: Sequence[float]) -> Tree:
        """The tree with these nodes, one entry a node in each list. They are trusted: see `Topology` and above."""
        return cls(Topology._of(tuple(parents)), tuple(tokens), tuple(p))

    def __len__(self) -> int:
        return len(self.tokens)

    def child(self, node: int, token: int) -> int | None:
        """The child of `node` that carries `token`, if any."""
        for child in self.topology.children[node]:
            if self.tokens[child] == token:
                return child
        return None

    def prune(self, keep: Sequence[int]) -> Tree:
        """The sub-tree of the nodes in `keep` (sorted, closed under parents, with the root)."""
        if len(keep) == len(self):
            return self
        tokens, p = self.tokens, self.p
        return Tree(self.topology.prune(keep), tuple([tokens[i] for i in keep]), tuple([p[i] for i in keep]))

    def likeliest(self, n: int, least_p: float = 0.0) -> Tree:
        """The sub-tree of the `n` nodes with the largest p, those of less than `least_p` left out; the first of equals,
        the root always."""
        if n >= len(self) and least_p <= 0:
            return self
        # parents come first and are never less likely, so a stable sort keeps them before their children
        order = sorted(range(len(self)), key=self.p.__getitem__, reverse=True)[:n]
        return self.prune(sorted(node for node in order if self.p[node] >= least_p or node == 0))


class TreeBuilder:
    """Grows a tree node by node; a token that its parent already has as a child is merged, not repeated."""

    def __init__(self, root_token: int) -> None:
        self.parents: list[int] = [-1]
        self.tokens: list[int] = [root_token]
        self.p: list[float] = [1.0]
        self._child: dict[tuple[int, int], int] = {}

    @classmethod
    def of(cls, tree: Tree) -> TreeBuilder:
        """A builder that goes on with `tree`."""
        builder = cls(tree.tokens[0])
        for parent, token, p in zip(tree.topology.parents[1:], tree.tokens[1:], tree.p[1:], strict=True):
            builder.add(parent, token, p)
        return builder

    def __len__(self) -> int:
        return len(self.parents)

    def add(self, parent: int, token: int, p: float) -> int:
        """Add a child and return its node; an existing one keeps the larger estimate of the two."""
        p = min(p, self.p[parent])
        node = self._child.get((parent, token))
        if node is not None:
            self.p[node] = max(self.p[node], p)
            return node
        node = len(self.parents)
        self._child[parent, token] = node
        self.parents.append(parent)
        self.tokens.append(token)
        self.p.append(p)
        return node

    def add_path(self, parent: int, tokens: Iterable[int], p: Iterable[float]) -> int:
        """Add a chain below `parent`, one estimate a token, and return its last node."""
        for token, estimate in zip(tokens, p, strict=True):
            parent = self.add(parent, token, estimate)
        return parent

    def build(self) -> Tree:
        """The finished tree."""
        return Tree.of(self.parents, self.tokens, self.p)
