"""The pool of progressive tree drafting: what the model guessed after each token, one tree a token.

Whole sub-trees of the draft are merged in, and verified candidates gain the model's argmax. The tree of the last token
is the next set of candidates. The rules are those of the code released with arXiv 2607.10661
(github.com/MINE-USTC/PTD); only the two bounds marked as ours are new. Knows token ids only.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.engine.base import Rows
from localspec.methods.ptd.window import Node
from localspec.tree import MAX_NODES, Tree, TreeBuilder

#: most keys; the oldest one goes. Ours: the released code has no bound
MAX_KEYS = 8192
#: a candidate is believed half as much as its parent
CANDIDATE_P = 0.5


@dataclass(slots=True)
class _Entry:
    """The continuations of one token: `root` carries the key, `n_nodes` counts the nodes below it."""

    root: Node
    n_nodes: int = 0


class Pool:
    """Trees of continuations by their root token.

    A merge that leaves more than `max_nodes` (>= 1) nodes below a key removes one child of the root, the oldest.
    """

    def __init__(self, max_nodes: int = 60, max_keys: int = MAX_KEYS) -> None:
        self._max_nodes, self._max_keys = max_nodes, max_keys
        self._entries: dict[int, _Entry] = {}

    def __len__(self) -> int:
        """Number of keys."""
        return len(self._entries)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def candidates(self, key: int) -> Node | None:
        """The tree below `key` (its root carries the key itself), None when nothing is known. Not to be changed."""
        entry = self._entries.get(key)
        return None if entry is None else entry.root

    def n_nodes(self, key: int) -> int:
        """Nodes below `key`; 0 when nothing is known."""
        entry = self._entries.get(key)
        return 0 if entry is None else entry.n_nodes

    def draft(self, key: int, builder: TreeBuilder, max_nodes: int) -> None:
        """Add the candidates of `key` below the root, breadth first and newest first, up to `max_nodes` nodes in all.

        The whole tree is verified when it fits, as in the released code; then the order says nothing.
        """
        root = self.candidates(key)
        heads = [] if root is None else [(0, root)]
        for node, parent in heads:  # grows while it is walked: breadth first
            for child in reversed(parent.children.values()):
                if len(builder) >= max_nodes:
                    return
                heads.append((builder.add(node, child.token, CANDIDATE_P * builder.p[node]), child))

    def merge(self, source: Node) -> None:
        """Add what is below `source` to the tree of its token; `source` itself stays as it is.

        Equal children are merged, others are copied, and the argmax of each node of `source` counts as its child
        (released: `merge_trees_with_draft_token`).
        """
        entry = self._entry(source.token)
        stack = [(entry.root, source)]
        while stack:
            into, node = stack.pop()
            before = len(into.children)
            stack.extend([(into.add(child.token), child) for child in node.children.values()])
            if node.draft is not None:
                into.add(node.draft)
            entry.n_nodes += len(into.children) - before
        self._trim(entry)

    def recycle(self, tree: Tree, rows: Rows) -> None:
        """Give every candidate that was verified in `tree` its own argmax as a new child.

        The candidates are those of the tree's root token (released: `expand_guess_tree_by_verify_res`). A key with more
        nodes than any pass can verify stays as it is. (Ours: the released code waits for the next merge.)
        """
        entry = self._entries.get(tree.tokens[0])
        if entry is None or entry.n_nodes >= MAX_NODES:
            return
        stack = [(0, entry.root)]
        while stack:
            at, parent = stack.pop()
            for child in parent.children.values():
                node = tree.child(at, child.token)
                if node is not None:
                    stack.append((node, child))
            if at:  # the root's own argmax is the text, not a candidate
                before = len(parent.children)
                parent.add(rows.argmax(at))
                entry.n_nodes += len(parent.children) - before

    def _entry(self, key: int) -> _Entry:
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) >= self._max_keys:
                del self._entries[next(iter(self._entries))]
            entry = self._entries[key] = _Entry(Node(key))
        return entry

    def _trim(self, entry: _Entry) -> None:
        """One child a merge, so a tree that grew fast is above the bound for a while (released: `prune`)."""
        if entry.n_nodes > self._max_nodes:
            children = entry.root.children
            oldest = children.pop(next(iter(children)))
            entry.n_nodes -= sum(1 for _ in oldest.nodes())
