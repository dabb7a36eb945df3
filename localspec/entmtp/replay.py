"""Exact replay of static trees, and of policies that choose among them, over a rank log.

At position t a tree has the longest prefix of the ranks (r_0, .., r_{D-1}) accepted that is one of its paths: a tokens,
say. The step then writes 1 + a tokens and the next one stands at t + 1 + a. As ranks behind the end of an answer are
missing, no step leaves its answer, and every tree writes exactly as many tokens as there are positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from localspec.calibrate.curve import CostCurve
from localspec.entmtp.ranks import RankArray, RankLog
from localspec.errors import UsageError
from localspec.static_tree import MAX_RANK, StaticTree

Lengths = npt.NDArray[np.int16]
Ints = npt.NDArray[np.int64]
#: seconds of one step with a tree, drafting included
StepSeconds = Callable[[StaticTree], float]

_F = TypeVar("_F", contravariant=True)
_G = TypeVar("_G")

#: columns of a child table: one for a missing rank, then one a rank
_WIDTH = MAX_RANK + 2


class Chooser(Protocol[_F]):
    """What a policy is to a replay: it picks the index of a tree from the features of a step and its own state."""

    def reset(self) -> None:
        """A new answer begins."""

    def choose(self, features: _F, /) -> int:
        """The tree of the coming step."""

    def observe(self, n_accepted: int, /) -> None:
        """The step had this many drafts accepted."""


def step_seconds(curve: CostCurve, head_seconds: float = 0.0, scored_depth: int = 0) -> StepSeconds:
    """The cost of a step by a measured curve: verification of all nodes, and `head_seconds` for every head that runs.

    A head runs once for all its parents. With a policy that scores `scored_depth` heads before it chooses, these run
    in every step, whatever the tree.
    """
    return lambda tree: curve.cost(tree.n_nodes) + head_seconds * max(tree.depth, scored_depth)


@dataclass(frozen=True)
class TreeReplay:
    """One tree over a log: `tokens` written in `steps`."""

    tree: StaticTree
    tokens: int
    steps: int

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens of a step, the bonus token included."""
        return self.tokens / self.steps

    @property
    def mean_accepted(self) -> float:
        """Mean accepted drafts of a step, as in EntMTP: one less than `tokens_per_step`."""
        return (self.tokens - self.steps) / self.steps


def _child_table(tree: StaticTree) -> Lengths:
    """Flat [n_nodes * _WIDTH]: entry node * _WIDTH + rank + 1 is that child, 0 for none."""
    table = np.zeros(tree.n_nodes * _WIDTH, dtype=np.int16)
    parents = tree.topology.parent_array[1:].astype(np.int64)
    table[parents * _WIDTH + np.array(tree.ranks[1:], dtype=np.int64) + 1] = np.arange(1, tree.n_nodes)
    return table


def accepted_everywhere(ranks: RankArray, tree: StaticTree) -> Lengths:
    """Drafts that a step at each position has accepted, int16 [N], for ranks of shape [N, D]."""
    table = _child_table(tree)
    accepted = np.zeros(len(ranks), dtype=np.int16)
    alive = np.arange(len(ranks))
    nodes = np.zeros(len(ranks), dtype=np.int64)
    for depth in range(min(tree.depth, ranks.shape[1])):
        children = table.take(nodes * _WIDTH + ranks[alive, depth] + 1)
        go_on = children.nonzero()[0]
        alive, nodes = alive[go_on], children[go_on].astype(np.int64)
        accepted[alive] = depth + 1
    return accepted


def visited(accepted: Lengths) -> list[int]:
    """Positions at which steps stand, for what is accepted at every position of a log [N]."""
    # a list and a loop: each jump depends on the one before, and NumPy scalars are slow
    jumps = (accepted + 1).tolist()
    n = len(jumps)
    positions: list[int] = []
    t = 0
    while t < n:
        positions.append(t)
        t += jumps[t]
    return positions


def accepted_per_step(log: RankLog, tree: StaticTree) -> Lengths:
    """Accepted drafts of each step, int16 [steps], of all answers in turn."""
    accepted = accepted_everywhere(log.ranks, tree)
    return accepted[visited(accepted)]


def replay_tree(log: RankLog, tree: StaticTree) -> TreeReplay:
    """All answers of a log with one tree."""
    return TreeReplay(tree, len(log), len(visited(accepted_everywhere(log.ranks, tree))))


class Bench:
    """K trees with their step costs over one log, ready for many replays of policies.

    `seconds[k]` is the cost of a step with tree k, drafting included. `accepted` is int16 [K, N]. Raises `UsageError`
    without trees, or unless there is one positive cost a tree.
    """

    def __init__(self, log: RankLog, trees: Sequence[StaticTree], seconds: Sequence[float]) -> None:
        if not trees:
            raise UsageError("a policy needs at least one tree to choose from")
        if len(seconds) != len(trees):
            raise UsageError(f"{len(trees)} trees need as many step costs, not {len(seconds)}")
        for k, cost in enumerate(seconds):
            if not (math.isfinite(cost) and cost > 0):
                raise UsageError(f"the step cost of tree {k} is {cost}, not a positive number of seconds")
        self.log = log
        self.seconds = np.array(seconds, dtype=np.float64)
        self.accepted = np.stack([accepted_everywhere(log.ranks, tree) for tree in trees])
        self._rows: list[list[int]] = self.accepted.tolist()

    @property
    def n_trees(self) -> int:
        """Number of trees, K."""
        return len(self._rows)

    def run(self, policy: Chooser[_G], features: Sequence[_G]) -> PolicyReplay:
        """All answers with the trees that `policy` picks; `features` has one entry a position, [N].

        Raises `UsageError` when there are other features than positions, or when the policy picks a tree that is not
        there.
        """
        if len(features) != len(self.log):
            raise UsageError(f"{len(self.log)} positions need as many features, not {len(features)}")
        rows, choose, observe = self._rows, policy.choose, policy.observe
        positions: list[int] = []
        choices: list[int] = []
        for t, end in self.log.bounds:
            policy.reset()
            while t < end:
                k = choose(features[t])
                if not 0 <= k < len(rows):
                    raise UsageError(f"the policy picked tree {k} of {len(rows)}", "fit it to these trees")
                n_accepted = rows[k][t]
                observe(n_accepted)
                positions.append(t)
                choices.append(k)
                t += 1 + n_accepted
        return self._replay(positions, np.array(choices, dtype=np.int64))

    def run_choices(self, choices: Ints) -> PolicyReplay:
        """The same for a policy without a state: `choices` has the tree of every position, int [N], from 0 to K - 1."""
        positions = visited(self.accepted[choices, np.arange(len(self.log))])
        return self._replay(positions, choices[positions])

    def _replay(self, positions: list[int], choices: Ints) -> PolicyReplay:
        counts = np.bincount(choices, minlength=self.n_trees)
        return PolicyReplay(len(self.log), float(counts @ self.seconds), tuple(counts.tolist()), positions, choices)


@dataclass(frozen=True, eq=False)
class PolicyReplay:
    """A policy over a log: `tokens` written in estimated `seconds`, with tree k used in `counts[k]` steps.

    `positions` and `choices` tell where each step stood and which tree it used, both of length `steps`.
    """

    tokens: int
    seconds: float
    counts: tuple[int, ...]
    positions: list[int]
    choices: Ints

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.positions)

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens of a step, the bonus token included."""
        return self.tokens / self.steps

    @property
    def tokens_per_second(self) -> float:
        """Estimated speed."""
        return self.tokens / self.seconds

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of the steps that used each tree; they add up to 1."""
        return tuple(count / self.steps for count in self.counts)
