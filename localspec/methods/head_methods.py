"""The methods that draft with heads: what EntMTP is measured against, and EntMTP itself (papers.md sections 1 and 2).

"medusa" and "hydra-static" verify the 63-node tree that both were published with at every step, "hydra-best" the best
tree of this machine's bank. "entmtp-..." pick a tree of the bank for every step by a policy, under the governor.
"heads" has no bank: it verifies those nodes of a wide tree that pay at this step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from localspec.calibrate.curve import CostCurve
from localspec.entmtp.policies import Policy, Star
from localspec.errors import UsageError
from localspec.methods.bank import BankGovernor, TreeBank
from localspec.methods.base import KnownTrees, Method
from localspec.methods.fixed import Fixed
from localspec.methods.governor import Governor
from localspec.methods.heads import Evaluator, HeadsDrafter
from localspec.methods.strict import StrictVerifier
from localspec.static_tree import MC_SIM_7B_63, StaticTree
from localspec.tree import MAX_NODES

POLICY_NAMES = ("star", "ladder", "tau", "value")
#: methods whose trees are of a bank
BANK_NAMES = ("hydra-best", *(f"entmtp-{name}" for name in POLICY_NAMES))
HEAD_NAMES = ("heads", "medusa", "hydra-static", *BANK_NAMES)
#: what the EntMTP paper compares, and its policies
BASELINES = ("medusa", "hydra-static", *BANK_NAMES)

#: the tree of "heads" and of the union with ptd, of which each step verifies what pays: about the first 17 drafts of
#: greedy growth (`localspec.entmtp.growth`) for the heads of SmolLM2
WIDE = StaticTree.from_paths(
    [
        *([a] for a in range(6)),
        *([0, b] for b in range(4)),
        *([1, b] for b in range(2)),
        [2, 0],
        *([0, 0, c] for c in range(2)),
        [0, 1, 0],
        [0, 0, 0, 0],
    ],
    "wide",
)
#: the same where more nodes pay. With 28 verified, four heads of SmolLM2 wrote 1.7 % more tokens a step out of its
#: first four levels than out of the 62 drafts of `MC_SIM_7B_63` (19 prompts); a fifth level brought 0.3 % (38 prompts)
WIDER = StaticTree.by_ranks((24, 12, 8, 6, 4), "wider")


@dataclass(frozen=True)
class PolicyBank:
    """The trees of a calibrated bank, the smallest first, and policies fitted to them by name.

    By policy, what the replay expects to be accepted in a step: `accepted` in those that use each tree (empty when not
    known), `mixed` in all.
    """

    trees: Sequence[StaticTree]
    policies: Mapping[str, Policy]
    accepted: Mapping[str, Sequence[float]] = field(default_factory=dict)
    mixed: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class HeadKit:
    """What methods on heads are made of. Evaluators are None where the model has no such heads.

    `bank` is called when a method needs it; it raises `UsageError` when nothing was calibrated.
    """

    hydra: Evaluator | None = None
    medusa: Evaluator | None = None
    bank: Callable[[], PolicyBank] | None = None


def make_head_method(
    name: str, kit: HeadKit, curve: CostCurve | None, max_nodes: int, *, governed: bool = True
) -> Method:
    """The method called `name`, one of `HEAD_NAMES`; see `registry.make_method`.

    Raises `UsageError` when the model lacks the heads, or the machine the bank, that it needs.
    """
    heads = _evaluator(name, kit)
    if name in ("medusa", "hydra-static"):
        # with the root it has one node more than give the text of plain decoding: the last leaf goes
        return _static(name, heads, within(MC_SIM_7B_63, heads.depth, max_nodes))
    if name == "heads":
        scheduler = Governor(curve, max_nodes) if governed else Fixed(max_nodes)
        return Method(name, make_head_drafter(name, kit), scheduler, StrictVerifier())
    if kit.bank is None:
        raise UsageError(f"{name} needs a bank of trees, which this model cannot have here")
    stored = kit.bank()
    kind = name.removeprefix("entmtp-")
    star = stored.trees[stored.policies["star"].choose(0.0)]
    if name == "hydra-best":
        return _static(name, heads, star, stored.mixed.get("star"))
    if kind == "star":  # one tree: there is nothing else to fill, and no score to look at
        trees = _known(star, stored.mixed.get(kind))
        policy: Policy = Star(1, 0)
    else:
        trees = KnownTrees(tuple(stored.trees), tuple(stored.accepted.get(kind, ())), stored.mixed.get(kind))
        policy = stored.policies[kind]
    bank = TreeBank(trees.shapes)
    drafter = HeadsDrafter(heads, bank.union, scored=kind != "star")
    governor = BankGovernor(curve, max_nodes, bank, policy, drafter.score)
    return Method(name, drafter, governor, StrictVerifier(), trees=trees)


def make_head_drafter(name: str, kit: HeadKit) -> HeadsDrafter:
    """What drafts trees to choose nodes from, for a method of that name. Raises `UsageError` where there are no Hydra
    heads."""
    heads = _evaluator(name, kit)
    return HeadsDrafter(heads, *(within(tree, heads.depth) for tree in (WIDE, WIDER)))


def _evaluator(name: str, kit: HeadKit) -> Evaluator:
    heads = kit.medusa if name == "medusa" else kit.hydra
    if heads is None:
        raise UsageError(
            f"{name} drafts with {'Medusa' if name == 'medusa' else 'Hydra'} heads, and there are none for this model",
            "give some with --heads FILE, or make them: `localspec train-heads --help`",
        )
    return heads


def _static(name: str, heads: Evaluator, tree: StaticTree, expected: float | None = None) -> Method:
    trees = _known(tree, expected)
    return Method(name, HeadsDrafter(heads, tree), Fixed(tree.n_nodes), StrictVerifier(), trees=trees)


def _known(tree: StaticTree, expected: float | None) -> KnownTrees:
    return KnownTrees((tree,), () if expected is None else (expected,), expected)


def within(tree: StaticTree, depth: int, max_nodes: int = MAX_NODES) -> StaticTree:
    """The part of `tree` that is at most `depth` deep, and its first `max_nodes` nodes, the root among them."""
    if tree.topology.depth <= depth and tree.n_nodes <= max_nodes:
        return tree
    return StaticTree.from_paths([path for path in tree.paths if len(path) <= depth][: max_nodes - 1], tree.name)
