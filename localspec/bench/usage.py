"""What runs made of their trees and heads: the trees of the steps, what was accepted in them, what choosing took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.events import StepEvent
from localspec.methods.bank import BankGovernor
from localspec.methods.base import Method
from localspec.methods.union import UnionDrafter


@dataclass(frozen=True, slots=True)
class TreeUse:
    """A static tree in one run: the `steps` that had it and the drafts `accepted` in them. `expected` is the mean
    acceptance of such steps by the replay of a calibration, None when not known."""

    nodes: int
    steps: int
    accepted: int
    expected: float | None


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one run. `expected` is the mean acceptance of all its trees together, None when not known.

    `n_picked` trees were chosen at a step, which took `pick_seconds` in all and `longest_pick` at most. Of `n_drafted`
    steps that could ask the heads beside another drafter, `n_asked` did.
    """

    trees: tuple[TreeUse, ...] = ()
    expected: float | None = None
    n_picked: int = 0
    pick_seconds: float = 0.0
    longest_pick: float = 0.0
    n_drafted: int = 0
    n_asked: int = 0


def usage_of(method: Method, steps: Sequence[StepEvent]) -> Usage | None:
    """What the generation that `method` made last, in `steps`, used; None for a method without trees and heads."""
    drafter, scheduler, known = method.drafter, method.scheduler, method.trees
    if isinstance(drafter, UnionDrafter):
        return Usage(n_drafted=drafter.n_steps, n_asked=drafter.n_asked)
    if known is None:
        return None
    expected = known.accepted or (None,) * len(known.shapes)
    if isinstance(scheduler, BankGovernor):
        use = scheduler.use
        counts = zip(known.shapes, use.steps, use.accepted, expected, strict=True)
        trees = tuple(TreeUse(tree.n_nodes, n, accepted, mean) for tree, n, accepted, mean in counts)
        return Usage(trees, known.mixed, sum(use.steps), use.seconds, use.longest)
    (tree,) = known.shapes
    # one tree for all steps, but for the first: there is no hidden state yet
    drafted = [event for event in steps if len(event.tree_tokens) > 1 or not tree.n_drafts]
    accepted = sum(len(event.path) for event in drafted)
    return Usage((TreeUse(tree.n_nodes, len(drafted), accepted, expected[0]),), known.mixed)
