"""What loose acceptance is worth to a chain of drafts: tokens beyond those that match.

A mismatch is forgiven only with a window of drafts behind it, so the worth of a chain is not the sum of what its tokens
are worth: with one draft more, one place more can be forgiven. Chances that drafts match and the share of mismatches
that are forgiven are kept apart, as the first depend on the models alone, the other on the rule as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from localspec.methods.base import Walk
from localspec.methods.fly import LooseRule
from localspec.methods.rates import RunningRates
from localspec.tree import Tree

#: share of mismatches with a full window that are believed to be forgiven before any is counted, for how many cases
#: that counts, and at how many the counts are halved
_PRIOR, _WEIGHT, _MOST = 0.25, 4.0, 40.0


def spine(tree: Tree) -> tuple[int, ...]:
    """The nodes from the root to the deepest leaf, the first of equally deep ones."""
    topology = tree.topology
    return topology.path(max(topology.leaves, key=topology.depths.__getitem__))


class Forgiving:
    """The worth of forgiving by `rule`, learned from the steps of one method."""

    def __init__(self, rule: LooseRule) -> None:
        self.rule = rule
        self._rates = RunningRates((_PRIOR,), _WEIGHT, _MOST)

    def start(self) -> None:
        """A new text. Where little was forgiven chains are short, and tell nothing any more: so part of that is
        forgotten."""
        self._rates = RunningRates(((self.share + _PRIOR) / 2,), _WEIGHT, _MOST)

    @property
    def share(self) -> float:
        """The share of mismatches that are forgiven, of those that the drafts behind them are enough for."""
        return self._rates.p[0]

    def bonus(self, p: Sequence[float]) -> float:
        """Tokens that a chain brings by forgiving. `p` [K] are the chances that a draft and all before it match.

        A mismatch is forgiven with chance f = `share`; then the followers match as well. So from draft j on a chain
        brings V(j) = c (1 + V(j + 1)) + (1 - c) f (1 + F + V(j + 1 + F)) drafts, c being the chance of draft j alone, F
        the number of followers that the rule looks at; the second term only with a full window behind draft j.
        """
        return self.bonuses(p)[-1] if p else 0.0

    def bonuses(self, p: Sequence[float]) -> list[float]:
        """`bonus` of the first k drafts, for k = 1 to K."""
        window = self.rule.window
        chances = [new / old if old > 0.0 else 0.0 for old, new in pairwise((1.0, *p))]
        made, matching = [], 0.0
        for k, reached in enumerate(p, start=1):
            matching += reached
            made.append(self._drafts(chances[:k]) - matching if k > window else 0.0)
        return made

    def _drafts(self, chances: Sequence[float]) -> float:
        """Expected accepted drafts of a chain, forgiven ones counted."""
        n, followers, f = len(chances), self.rule.followers, self.share
        value = [0.0] * (n + 1)
        for j in range(n - 1, -1, -1):
            value[j] = chances[j] * (1.0 + value[j + 1])
            if j + self.rule.window < n:
                value[j] += (1.0 - chances[j]) * f * (1.0 + followers + value[j + 1 + followers])
        return value[0]

    def learn(self, tree: Tree, walk: Walk) -> None:
        """Count the mismatches of a verified tree that were forgiven, and the one that was not."""
        for _ in walk.forgiven:
            self._rates.count(0, True)
        if len(walk.tokens) == len(walk.path):
            return  # it ended where the text did
        end = walk.path[-1] if walk.path else 0
        topology = tree.topology
        if any(topology.heights[child] >= self.rule.window for child in topology.children[end]):
            self._rates.count(0, False)


def matching(walk: Walk) -> Walk:
    """The beginning of `walk` up to the first forgiven token, which is none that was expected to match."""
    if not walk.forgiven:
        return walk
    n = walk.forgiven[0]
    return Walk(walk.path[:n], walk.tokens[:n])
