"""The progressive draft tree: a short window of guessed tokens, each of which grows a sub-tree of its own.

The window is a chain: its i-th token stands i positions after the last token of the text and sees the window tokens
before it. The children of a window token follow it, beside the next window token. So the whole draft is a plain token
tree below the last token, and every node's context is its path. Nothing here is meant to be accepted: the model's own
argmax at each node makes the next generation of nodes, and what grows is worth remembering (`published_pool`).

All rules are those of the code released with arXiv 2607.10661 (github.com/MINE-USTC/PTD); each one names its function
there. Knows token ids only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from localspec.engine.base import Rows
from localspec.tree import Tree, TreeBuilder

#: window tokens at the start, and most tokens of the chain that each of them begins
SEEDS = 2
SEED_LENGTH = 2
#: an end token takes the sub-tree up to this many levels above it along
END_LEVELS = 4
#: estimate of a drafted window node: it is there to be read, not to be accepted
DRAFT_P = 1e-6


@dataclass(slots=True, eq=False)
class Node:
    """A token and what may follow it, oldest child first. `draft` is the argmax of its row in the last step, if it had
    one."""

    token: int
    children: dict[int, Node] = field(default_factory=dict)
    draft: int | None = None

    def add(self, token: int) -> Node:
        """The child with this token, made if there is none."""
        node = self.children.get(token)
        if node is None:
            node = self.children[token] = Node(token)
        return node

    def nodes(self) -> Iterator[Node]:
        """This node and all below it, depth first, oldest child first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children.values()))

    def levels(self) -> int:
        """Levels below this node; 0 for a leaf."""
        n, level = 0, list(self.children.values())
        while level:
            n += 1
            level = [child for node in level for child in node.children.values()]
        return n


def random_seeds(prompt: Sequence[int], eog: frozenset[int], rng: Random) -> list[list[int]]:
    """Chains of random prompt tokens that begin differently: the stochastic seeds.

    End tokens are left out, as they would be pruned in the first step. (Released: `init_only_several_nodes`.)
    """
    tokens = [token for token in prompt if token not in eog]
    chains: list[list[int]] = []
    while tokens and len(chains) < SEEDS:
        first = tokens.pop(rng.randrange(len(tokens)))
        if any(chain[0] == first for chain in chains):
            continue
        more = rng.randint(1, SEED_LENGTH) - 1 if tokens else 0
        chains.append([first, *(rng.choice(tokens) for _ in range(more))])
    return chains


def context_seeds(prompt: Sequence[int], eog: frozenset[int]) -> list[list[int]]:
    """Chains taken from the prompt in order: the context-derived seeds. The released code has none, so
    the definition is ours.

    They are what followed the last token at its previous occurrence, or the last tokens themselves when it has none.
    Chain i begins at the i-th of these tokens, as the window's i-th token stands one position further.
    """
    tokens = [token for token in prompt if token not in eog]
    wanted = SEEDS + SEED_LENGTH - 1
    before = next((i for i in range(len(tokens) - 2, -1, -1) if tokens[i] == tokens[-1]), None)
    source = tokens[-wanted:] if before is None else tokens[before + 1 :][:wanted]
    chains: list[list[int]] = []
    for i, first in enumerate(source):
        if len(chains) < SEEDS and all(chain[0] != first for chain in chains):
            chains.append(source[i : i + SEED_LENGTH])
    return chains


class Window:
    """At most `width` (>= 1) window tokens and children a node; a sub-tree has fewer than `depth` (>= 1) levels below
    its window token between steps. `eog` are the tokens that end a text.

    `seeds` are chains of at least one token, which begin differently; what exceeds the sizes is left out. `roots` are
    the window tokens in order, by token: no token is twice in the window.
    """

    def __init__(self, width: int, depth: int, eog: frozenset[int], seeds: Sequence[Sequence[int]] = ()) -> None:
        self.width, self.depth, self.eog = width, depth, eog
        self.roots: dict[int, Node] = {}
        for seed in seeds[:width]:
            node = self.roots[seed[0]] = Node(seed[0])
            for token in seed[1:depth]:
                node = node.add(token)

    def nodes(self) -> Iterator[Node]:
        """All nodes: each window token with its sub-tree, depth first."""
        for root in self.roots.values():
            yield from root.nodes()

    def __len__(self) -> int:
        """Number of nodes, window tokens included (before equal ones of different sub-trees meet in the draft)."""
        return sum(1 for _ in self.nodes())

    def ripe(self) -> bool:
        """Whether some sub-tree has its full `depth` levels, its window token included: time to harvest."""
        return any(root.levels() + 1 >= self.depth for root in self.roots.values())

    def draft(self, builder: TreeBuilder, max_nodes: int) -> None:
        """Add the window below the root, up to `max_nodes` nodes in all: first its tokens, then level by level.

        Nodes that are there already (candidates, or the same guess of an earlier window token) are shared.
        """
        heads: list[tuple[int, Node]] = []
        node = 0
        for root in self.roots.values():
            if len(builder) >= max_nodes:
                return
            node = builder.add(node, root.token, DRAFT_P)
            heads.append((node, root))
        for node, parent in heads:  # grows while it is walked: breadth first
            for child in parent.children.values():
                if len(builder) >= max_nodes:
                    return
                heads.append((builder.add(node, child.token, DRAFT_P), child))

    def read(self, tree: Tree, rows: Rows) -> int:
        """Take the argmax at every node that `tree` holds, and forget it at the others. Returns how many it holds.

        Nodes are found by their tokens, so a draft that was cut or not verified at all is read as far as it goes.
        """
        n_read = 0
        above: int | None = 0
        for root in self.roots.values():
            above = None if above is None else tree.child(above, root.token)
            stack: list[tuple[int | None, Node]] = [(above, root)]
            while stack:
                at, node = stack.pop()
                node.draft = None if at is None else rows.argmax(at)
                n_read += at is not None
                for child in node.children.values():
                    stack.append((None if at is None else tree.child(at, child.token), child))
        return n_read

    def advance(self, next_token: int) -> None:
        """One step of growth, in the released order. `next_token` is what the model put after the last token."""
        self.expand()
        self.lengthen(next_token)
        self.slide()
        self.prune_ends()

    def expand(self) -> None:
        """Every node, not the leaves alone, gets its own argmax as a child while it has fewer than `width`
        (released: `update_sub_nodes_by_draft_token`)."""
        for node in list(self.nodes()):
            if node.draft is not None and len(node.children) < self.width:
                node.add(node.draft)

    def lengthen(self, next_token: int) -> None:
        """A window below `width` gets one more token: the argmax of its last one, which loses that child.

        An empty window starts again with `next_token` (released: `update_sub_tree_root`).
        """
        if len(self.roots) >= self.width:
            return
        token: int | None = next_token
        if self.roots:
            last = next(reversed(self.roots.values()))
            token = last.draft
            if token is not None:
                last.children.pop(token, None)
        if token is not None and token not in self.roots:
            self.roots[token] = Node(token)

    def slide(self) -> None:
        """A window token with `depth` levels below it gives way to its oldest child that is not in the window.

        The child keeps its sub-tree and goes to the end of the window. Without such a child the sub-tree is dropped
        (released: `go_deeper_for_only_exceed_sub_trees_keep_struct`).
        """
        for token, root in list(self.roots.items()):
            if root.levels() < self.depth:
                continue
            heir = next((child for child in root.children.values() if child.token not in self.roots), None)
            del self.roots[token]
            if heir is not None:
                self.roots[heir.token] = heir

    def shift(self, n: int) -> None:
        """The text went on by `n` tokens: the window gives up as many at its front and goes on at its end.

        What follows is the oldest child of the last window token that is not in the window, with its sub-tree, as in
        `slide`. Ours: as released the window stays, as if every step wrote one token.
        """
        for _ in range(n):
            if not self.roots:
                return
            last = next(reversed(self.roots.values()))
            del self.roots[next(iter(self.roots))]
            heir = next((child for child in last.children.values() if child.token not in self.roots), None)
            if heir is not None:
                last.children.pop(heir.token)
                self.roots[heir.token] = heir

    def prune_ends(self) -> None:
        """Nothing is drafted around an end token: the sub-tree goes that begins `END_LEVELS` above it, or at its
        window token if that is nearer (released: `remove_eos_sub_trees`)."""
        for token, root in list(self.roots.items()):
            for path in [path for path in _paths(root) if path[-1].token in self.eog]:
                top = max(0, len(path) - 1 - END_LEVELS)
                if top == 0:
                    self.roots.pop(token, None)
                else:
                    path[top - 1].children.pop(path[top].token, None)


def _paths(root: Node) -> Iterator[tuple[Node, ...]]:
    """The path from `root` to every node of its sub-tree, both included, depth first."""
    stack: list[tuple[Node, ...]] = [(root,)]
    while stack:
        path = stack.pop()
        yield path
        stack.extend((*path, child) for child in reversed(path[-1].children.values()))
