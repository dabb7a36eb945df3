"""From measured trees to a bank with policies.

What a policy costs differs from what its trees cost alone: before it chooses, the heads fill the smallest tree that
contains them all (`localspec.methods.bank`). One tree for all steps needs no such thing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from localspec.entmtp.fit import Fit, fit_ladder, fit_star, fit_tau, fit_value
from localspec.entmtp.measured import FittedPolicy
from localspec.entmtp.pareto import Bank
from localspec.entmtp.ranks import RankLog
from localspec.entmtp.replay import Bench, PolicyReplay, accepted_everywhere
from localspec.static_tree import StaticTree

if TYPE_CHECKING:
    from localspec.entmtp.bank_file import StoredBank

_STAR = "star"
_FITS: dict[str, Callable[..., Fit[Any]]] = {_STAR: fit_star, "ladder": fit_ladder, "tau": fit_tau, "value": fit_value}
#: a policy that switches replaces a single tree if it is better by so much on answers that it was not fitted on
LEAST_GAIN = 1.002


@dataclass(frozen=True)
class Costs:
    """Seconds of a step with each tree of a bank, `alone`, and `chosen` when a policy picks it."""

    alone: tuple[float, ...]
    chosen: tuple[float, ...]

    @classmethod
    def of(cls, bank: Bank, draft_seconds: Sequence[float], union_seconds: float) -> Costs:
        """Costs from what it takes to draft each tree, and the smallest that contains them all."""
        pairs = zip(bank.seconds, draft_seconds, strict=True)
        # a measured step is never shorter than its draft, unless the machine was busy with one of the two
        chosen = tuple(max(step - draft, 0.1 * step) + union_seconds for step, draft in pairs)
        return cls(bank.seconds, chosen)

    def of_policy(self, name: str) -> tuple[float, ...]:
        """The costs that the policy called `name` has."""
        return self.alone if name == _STAR else self.chosen


def expected_of_policy(stored: StoredBank, name: str) -> float:
    """Accepted drafts of a step by the replay of a bank with its policy called `name`."""
    fitted = stored.policies[name]
    costs = Costs.of(stored.bank, stored.draft_seconds, stored.union_seconds).of_policy(name)
    # the speed is tokens over the seconds of all steps, and those are known by tree
    seconds = sum(share * cost for share, cost in zip(fitted.shares, costs, strict=True))
    return fitted.tokens_per_second * seconds - 1


def score_depth(trees: Sequence[StaticTree]) -> int:
    """Heads in the score of a step: those on the path of most likely tokens of the tree that is filled."""
    paths = {path for tree in trees for path in tree.paths}
    depth = 0
    while (0,) * (depth + 1) in paths:
        depth += 1
    return depth


def fit_policies(log: RankLog, trees: Sequence[StaticTree], costs: Costs) -> dict[str, FittedPolicy]:
    """All policies, fitted to the whole log, and judged on halves that they were not fitted on."""
    depth = score_depth(trees)
    policies = {}
    for name, kind in _FITS.items():
        fit = partial(kind, trees=trees, seconds=costs.of_policy(name), **({} if name == _STAR else {"depth": depth}))
        whole = fit(log)
        speed = whole.replay.tokens_per_second
        held_out = _held_out(fit, log, trees, costs.of_policy(name))
        accepted = _accepted(log, trees, whole.replay)
        policies[name] = FittedPolicy(whole.policy, speed, held_out or speed, whole.replay.shares, accepted)
    return policies


def _accepted(log: RankLog, trees: Sequence[StaticTree], replayed: PolicyReplay) -> tuple[float, ...]:
    """Mean accepted drafts of the steps that use each tree, 0 where there are none."""
    positions = np.array(replayed.positions)
    steps = [positions[replayed.choices == k] for k in range(len(trees))]
    return tuple(
        float(accepted_everywhere(log.ranks, tree)[mine].mean()) if len(mine) else 0.0
        for tree, mine in zip(trees, steps, strict=True)
    )


def _held_out(
    fit: Callable[[RankLog], Fit[Any]], log: RankLog, trees: Sequence[StaticTree], seconds: Sequence[float]
) -> float | None:
    """Tokens per second over two halves, each with what was fitted on the other; None for one answer."""
    n = len(log.answers)
    if n < 2:
        return None
    # every other answer, so that each half has all tasks
    halves = [log.subset(range(first, n, 2)) for first in (0, 1)]
    total = 0.0
    for learned, judged in (halves, halves[::-1]):
        policy = fit(learned).policy
        total += Bench(judged, trees, seconds).run(policy, judged.scores(policy.depth).tolist()).seconds
    return len(log) / total


def best_policy(policies: dict[str, FittedPolicy]) -> str:
    """The name of the policy to use."""
    best = max(policies, key=lambda name: policies[name].held_out)
    return best if policies[best].held_out > LEAST_GAIN * policies[_STAR].held_out else _STAR
