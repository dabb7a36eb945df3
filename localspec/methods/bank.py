"""EntMTP's online stage in the loop: a policy picks one tree of a bank for every step (section 4).

The heads fill one tree that contains all trees of the bank; what the policy picks is a part of it, known beforehand:
so choosing is a look-up. The governor stays in charge: while speculation does not pay there is nothing to pick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from localspec.calibrate.curve import CostCurve
from localspec.entmtp.policies import Policy
from localspec.errors import UsageError
from localspec.events import Choice
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
        self.union = StaticTree.union(trees)
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


@dataclass(slots=True)
class BankUse:
    """What a generation made of its bank: the steps that each tree was picked for and the drafts accepted in them, and
    the seconds that picking a tree took, in all and at most."""

    steps: list[int]
    accepted: list[int]
    seconds: float = 0.0
    longest: float = 0.0

    @classmethod
    def none(cls, n_trees: int) -> BankUse:
        """Nothing was picked yet."""
        return cls([0] * n_trees, [0] * n_trees)


class BankGovernor(Governor):
    """A governor that leaves the choice of the tree to `policy` while speculation is on.

    `score` is asked once a step, after the tree was filled. `use` is of the generation that began last; `clock` is for
    what it tells about itself, nothing depends on it.
    """

    def __init__(
        self,
        curve: CostCurve | None,
        max_nodes: int,
        bank: TreeBank,
        policy: Policy,
        score: Callable[[int], float],
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        if policy.n_trees != len(bank):
            raise UsageError(f"a policy for {policy.n_trees} trees does not fit a bank of {len(bank)}", "fit it again")
        super().__init__(curve, max_nodes)
        self.use = BankUse.none(len(bank))
        self._bank = bank
        self._policy = policy
        self._score = score
        self._clock = clock
        #: the tree of this step, if it is one of the bank, and the score that it was picked by
        self._picked: int | None = None
        self._scored = 0.0

    def start(self) -> None:
        """A new generation: speculation gets a new chance, and the policy begins anew."""
        super().start()
        self._policy.reset()
        self.use = BankUse.none(len(self._bank))
        self._picked = None

    def budget(self) -> int:
        """All nodes of the bank while speculation is on; see `Governor`, which goes by itself in company: the trees
        were chosen for a step alone."""
        n = super().budget()
        # the policy picks whole trees: without its unlikely nodes what was drafted would be none of the bank
        self.least_p = 0.0
        return self._bank.union.n_nodes if n > 1 and self.on and not self._cost.in_company else n

    def select(self, tree: Tree) -> Tree:
        """The tree of the policy; the governor's own choice where the tree is not that of the bank."""
        self._picked = None
        if not self.on or self._cost.in_company or len(tree) != self._bank.union.n_nodes:
            return super().select(tree)
        self._candidate = tree
        began = self._clock()
        self._scored = self._score(self._policy.depth)
        index = self._policy.choose(self._scored)
        part = self._bank.part(tree, index)
        seconds = self._clock() - began
        use = self.use
        use.steps[index] += 1
        use.seconds += seconds
        use.longest = max(use.longest, seconds)
        self._picked = index
        self._keep = list(self._bank.nodes(index))
        return part

    def choice(self) -> Choice:
        """How this step was seen, for those who watch: with the tree that the policy picked, if it did."""
        plain = super().choice()
        if self._picked is None:
            return replace(plain, n_trees=len(self._bank))
        score = self._scored if self._policy.edges else None
        return replace(plain, tree=self._picked, n_trees=len(self._bank), score=score, edges=self._policy.edges)

    def observe(self, tree: Tree, walk: Walk, seconds: float, propose_seconds: float = 0.0) -> str | None:
        """Learn from a step; returns a note when speculation went off or on."""
        if self._picked is not None:
            self._policy.observe(len(walk.path))
            self.use.accepted[self._picked] += len(walk.path)
            self._picked = None
        return super().observe(tree, walk, seconds, propose_seconds)
