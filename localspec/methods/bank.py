"""EntMTP's online stage in the loop: a policy picks one tree of a bank for every step (section 4).

The heads fill one tree that contains all trees of the bank; what the policy picks is a part of it, known beforehand:
so choosing is a look-up. The governor stays in charge: while speculation does not pay there is nothing to pick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.calibrate.curve import CostCurve
from localspec.entmtp.policies import Policy
from localspec.errors import UsageError
from localspec.methods.base import Walk
from localspec.methods.governor import Governor
from localspec.static_tree import StaticTree
from localspec.tree import Topology, Tree


class TreeBank:
    """Static trees to pick from. `union` is the smallest tree that contains them all.

    Raises `UsageError` for no trees.
    """

    def __init__(self, trees: Sequence[StaticTree]) -> None:
        if not trees:
            raise UsageError("a bank has at least one tree", "calibrate again")
        self.trees = tuple(trees)
        self.union = StaticTree.from_paths({path for tree in trees for path in tree.paths}, "union")
        node_of = {path: node for node, path in enumerate(((), *self.union.paths))}
        self._parts: list[tuple[tuple[int, ...], Topology]] = [
            (tuple(node_of[path] for path in ((), *tree.paths)), tree.topology) for tree in trees
        ]

    def __len__(self) -> int:
        return len(self.trees)

    def nodes(self, index: int) -> tuple[int, ...]:
        """The nodes of `union` that make tree `index`, in its order."""
        return self._parts[index][0]

    def part(self, filled: Tree, index: int) -> Tree:
        """Tree `index` with the tokens of `filled`, which has the shape of `union`."""
        nodes, topology = self._parts[index]
        tokens, p = filled.tokens, filled.p
        return Tree(topology, tuple([tokens[node] for node in nodes]), tuple([p[node] for node in nodes]))


class BankGovernor(Governor):
    """A governor that leaves the choice of the tree to `policy` while speculation is on.

    `score` is asked once a step, after the tree was filled. `counts` are the steps of each tree so far.
    """

    def __init__(
        self,
        curve: CostCurve | None,
        max_nodes: int,
        bank: TreeBank,
        policy: Policy,
        score: Callable[[int], float],
    ) -> None:
        if policy.n_trees != len(bank):
            raise UsageError(f"a policy for {policy.n_trees} trees does not fit a bank of {len(bank)}", "fit it again")
        super().__init__(curve, max_nodes)
        self.counts = [0] * len(bank)
        self._bank = bank
        self._policy = policy
        self._score = score
        self._picked = False

    def start(self) -> None:
        """A new generation: speculation gets a new chance, and the policy begins anew."""
        super().start()
        self._policy.reset()

    def budget(self) -> int:
        """All nodes of the bank while speculation is on; see `Governor`."""
        n = super().budget()
        return self._bank.union.n_nodes if n > 1 and self.on else n

    def select(self, tree: Tree) -> Tree:
        """The tree of the policy; the governor's own choice where the tree is not that of the bank."""
        chosen = super().select(tree)
        self._picked = self.on and len(tree) == self._bank.union.n_nodes
        if not self._picked:
            return chosen
        index = self._policy.choose(self._score(self._policy.depth))
        self.counts[index] += 1
        self._keep = list(self._bank.nodes(index))
        return self._bank.part(tree, index)

    def observe(self, tree: Tree, walk: Walk, seconds: float, propose_seconds: float = 0.0) -> str | None:
        """Learn from a step; returns a note when speculation went off or on."""
        if self._picked:
            self._policy.observe(len(walk.path))
            self._picked = False
        return super().observe(tree, walk, seconds, propose_seconds)
