"""What a calibration found: trees as they ran, and policies as they were fitted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.entmtp.policies import Ladder, Star, Tau, Value, policy_from_dict
from localspec.errors import UsageError
from localspec.static_tree import StaticTree

_HINT = "calibrate again"


def _number(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UsageError(f"{what} is {value!r}, not a number", _HINT)
    return float(value)


def _numbers(what: str, data: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, float]:
    """Finite numbers by name. Raises `UsageError`."""
    return {name: _number(f"{name} of {what}", data.get(name)) for name in names}


@dataclass(frozen=True)
class MeasuredTree:
    """A tree that was run.

    `mean_accepted` is that of the replay of the whole log. On the answers that were run again, `expected` is the mean
    acceptance by replay, counted as the loop counts, and `measured` the one that came out. `draft_seconds` is what the
    heads take, `planned_seconds` a step by the cost curve, `seconds` a step as answers ran: all that they took over
    their steps. `tokens_per_second` is the speed of the answers, end to end but for reading the prompt.
    """

    tree: StaticTree
    mean_accepted: float
    expected: float
    measured: float
    draft_seconds: float
    planned_seconds: float
    seconds: float
    tokens_per_second: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, read back by `from_dict`."""
        return {**self.tree.to_dict(), **{name: getattr(self, name) for name in _TREE_NUMBERS}}

    @classmethod
    def from_dict(cls, data: object) -> MeasuredTree:
        """Rebuild a tree from `to_dict` data. Raises `UsageError` for anything else."""
        tree = StaticTree.from_dict(data)
        assert isinstance(data, Mapping)  # a tree is one
        return cls(tree, **_numbers(f"the measured tree {tree.name!r}", data, _TREE_NUMBERS))


_TREE_NUMBERS = (
    "mean_accepted",
    "expected",
    "measured",
    "draft_seconds",
    "planned_seconds",
    "seconds",
    "tokens_per_second",
)


@dataclass(frozen=True)
class FittedPolicy:
    """A policy with the speed that the replay of the whole log estimates, and `held_out`, the estimate on answers that
    it was not fitted on (two halves that judge each other; the same as the former where there is one answer only).

    `shares` are the parts of the steps that use each tree of the bank, and `accepted` the mean accepted drafts of these
    steps, 0 where there are none: a policy picks a tree where it suits, so they differ from those of the tree at every
    step. Empty in banks of older versions.
    """

    policy: Star | Ladder | Tau | Value
    tokens_per_second: float
    held_out: float
    shares: tuple[float, ...]
    accepted: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, read back by `from_dict`."""
        return {
            "policy": self.policy.to_dict(),
            "tokens_per_second": self.tokens_per_second,
            "held_out": self.held_out,
            "shares": list(self.shares),
            "accepted": list(self.accepted),
        }

    @classmethod
    def from_dict(cls, data: object) -> FittedPolicy:
        """Rebuild a policy from `to_dict` data. Raises `UsageError` for anything else."""
        if not isinstance(data, Mapping):
            raise UsageError(f"a fitted policy is an object, not {type(data).__name__}", _HINT)
        policy = policy_from_dict(data.get("policy"))
        numbers = _numbers(f"policy {policy.kind!r}", data, ("tokens_per_second", "held_out"))
        shares = _per_tree("shares", data.get("shares"), policy)
        accepted = _per_tree("accepted", data["accepted"], policy) if data.get("accepted") else ()
        return cls(policy, **numbers, shares=shares, accepted=accepted)


def _per_tree(name: str, values: object, policy: Star | Ladder | Tau | Value) -> tuple[float, ...]:
    """Numbers, one a tree of the policy. Raises `UsageError`."""
    if not isinstance(values, list) or len(values) != policy.n_trees:
        raise UsageError(f"policy {policy.kind!r} has {name} {values!r}, not one a tree", _HINT)
    return tuple(_number(f"one of the {name} of policy {policy.kind!r}", value) for value in values)
