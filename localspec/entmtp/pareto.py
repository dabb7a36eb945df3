"""The bank of trees: the Pareto front on size and acceptance, then on speed (EntMTP, section 3).

The front holds the trees that have more accepted than every smaller one: few enough to measure. The bank keeps a tree
only if it is faster than all smaller ones, by measured tokens per second or by replay and step costs. So a bank ascends
in size and in speed, and its last tree is the one that EntMTP* uses alone.

Where heads cost something, the front may lack the fastest tree: a shallow one that has slightly less accepted. Costs
are known for all trees, so a bank by cost need not go by the front.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.entmtp.replay import StepSeconds, TreeReplay
from localspec.errors import UsageError
from localspec.static_tree import StaticTree

#: acceptance that differs by no more than this is equal
TOLERANCE = 1e-9
_HINT = "build the bank again"


def pareto_front(replays: Iterable[TreeReplay]) -> list[TreeReplay]:
    """The trees with a strictly higher mean acceptance than every tree of as many or fewer nodes, by size."""
    front: list[TreeReplay] = []
    for replayed in sorted(replays, key=lambda r: (r.tree.n_nodes, -r.mean_accepted, r.tree.paths)):
        if not front or replayed.mean_accepted > front[-1].mean_accepted + TOLERANCE:
            front.append(replayed)
    return front


@dataclass(frozen=True)
class BankTree:
    """A tree of a bank: mean accepted drafts of a step, seconds of a step, and tokens per second."""

    tree: StaticTree
    mean_accepted: float
    seconds: float
    tokens_per_second: float

    def __post_init__(self) -> None:
        numbers = (self.mean_accepted, self.seconds, self.tokens_per_second)
        if not all(map(math.isfinite, numbers)) or self.mean_accepted < 0 or min(numbers[1:]) <= 0:
            raise UsageError(f"the figures of tree {self.tree.name!r} are not positive numbers: {numbers}", _HINT)


@dataclass(frozen=True)
class Bank:
    """Trees to choose from, each larger and faster than the one before.

    Raises `UsageError` when it is empty or does not ascend.
    """

    entries: tuple[BankTree, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", tuple(self.entries))
        if not self.entries:
            raise UsageError("a bank needs at least one tree", _HINT)
        for a, b in zip(self.entries, self.entries[1:], strict=False):
            if a.tree.n_nodes >= b.tree.n_nodes or a.tokens_per_second >= b.tokens_per_second:
                raise UsageError("the trees of a bank ascend in size and in speed", _HINT)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def trees(self) -> tuple[StaticTree, ...]:
        """The trees, the smallest first."""
        return tuple(entry.tree for entry in self.entries)

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds of a step with each tree."""
        return tuple(entry.seconds for entry in self.entries)

    def spread(self, n_trees: int) -> Bank:
        """At most `n_trees` of the trees, evenly by rank, with the fastest one: fewer are faster to fit policies to."""
        if n_trees < 1:
            raise UsageError(f"a bank cannot have {n_trees} trees", "give 1 or more")
        last = len(self) - 1
        kept = {last - round(i * last / max(n_trees - 1, 1)) for i in range(n_trees)}
        return Bank(tuple(self.entries[i] for i in sorted(kept)))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, read back by `from_dict`."""
        keys = ("mean_accepted", "seconds", "tokens_per_second")
        return {"trees": [{**e.tree.to_dict(), **{key: getattr(e, key) for key in keys}} for e in self.entries]}

    @classmethod
    def from_dict(cls, data: object) -> Bank:
        """Rebuild a bank from `to_dict` data. Raises `UsageError` for anything else."""
        rows = data.get("trees") if isinstance(data, Mapping) else None
        if not isinstance(rows, list):
            raise UsageError("a bank is an object with a list 'trees'", _HINT)
        entries = []
        for row in rows:
            tree = StaticTree.from_dict(row)
            numbers = [row.get(key) for key in ("mean_accepted", "seconds", "tokens_per_second")]
            if any(isinstance(number, bool) or not isinstance(number, (int, float)) for number in numbers):
                raise UsageError(f"tree {tree.name!r} of a bank lacks a number: {numbers}", _HINT)
            entries.append(BankTree(tree, *map(float, numbers)))
        return cls(tuple(entries))


def _ascending(entries: Iterable[BankTree]) -> Bank:
    kept: list[BankTree] = []
    for entry in sorted(entries, key=lambda e: (e.tree.n_nodes, -e.tokens_per_second)):
        if not kept or entry.tokens_per_second > kept[-1].tokens_per_second:
            kept.append(entry)
    return Bank(tuple(kept))


def bank_by_cost(replays: Iterable[TreeReplay], seconds: StepSeconds) -> Bank:
    """The bank by estimated speed: tokens per step over `seconds(tree)`.

    Raises `UsageError` without trees, or when a cost is not positive.
    """
    entries = []
    for replayed in replays:
        cost = seconds(replayed.tree)
        if not (math.isfinite(cost) and cost > 0):
            raise UsageError(f"a step with tree {replayed.tree.name!r} costs {cost} seconds, not a positive number")
        rate = replayed.tokens_per_step / cost
        entries.append(BankTree(replayed.tree, replayed.mean_accepted, cost, rate))
    return _ascending(entries)


def bank_by_speed(replays: Sequence[TreeReplay], tokens_per_second: Sequence[float]) -> Bank:
    """The bank by measured speed, one figure a tree. A step's seconds follow from it and the replayed tokens.

    Raises `UsageError` unless there are trees and as many positive figures.
    """
    if len(tokens_per_second) != len(replays):
        raise UsageError(f"{len(replays)} trees need as many measured speeds, not {len(tokens_per_second)}")
    entries = []
    for replayed, speed in zip(replays, tokens_per_second, strict=True):
        if not (math.isfinite(speed) and speed > 0):
            raise UsageError(f"the measured speed of tree {replayed.tree.name!r} is {speed}", "measure it again")
        entries.append(BankTree(replayed.tree, replayed.mean_accepted, replayed.tokens_per_step / speed, speed))
    return _ascending(entries)
