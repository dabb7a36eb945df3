"""A policy picks the tree of every step, and the governor stays in charge."""

from __future__ import annotations

import pytest

from localspec.calibrate.curve import CostCurve
from localspec.entmtp.policies import Star, Tau
from localspec.errors import UsageError
from localspec.events import Choice
from localspec.methods.bank import BankGovernor, TreeBank
from localspec.methods.base import Walk
from localspec.static_tree import MC_SIM_7B_63, StaticTree
from localspec.tree import Tree

SMALL = StaticTree.from_paths([[0], [0, 0]])
BIG = StaticTree.from_paths([[0], [1], [0, 0], [0, 1], [1, 0]])
OTHER = StaticTree.from_paths([[0], [2], [2, 0]])
FREE = CostCurve((1, 64), (0.01, 0.0101))
DEAR = CostCurve((1, 64), (0.01, 0.64))


def filled(bank: TreeBank, p: float = 0.5) -> Tree:
    """The union with node numbers as tokens."""
    topology = bank.union.topology
    return Tree.of(topology.parents, range(bank.union.n_nodes), [p**depth for depth in topology.depths])


def test_a_part_of_the_union_is_the_tree_itself() -> None:
    bank = TreeBank([SMALL, BIG, OTHER, MC_SIM_7B_63])
    union = filled(bank)
    paths = ((), *bank.union.paths)
    for index, tree in enumerate(bank.trees):
        part = bank.part(union, index)
        assert part.topology is tree.topology
        assert [paths[token] for token in part.tokens] == [(), *tree.paths]
        assert part.p == tuple(0.5**depth for depth in tree.topology.depths)
    with pytest.raises(UsageError, match="at least one tree"):
        TreeBank([])


def governed(curve: CostCurve, scores: list[float]) -> tuple[TreeBank, BankGovernor]:
    bank = TreeBank([SMALL, BIG])
    policy = Tau(n_trees=2, small=0, big=1, tau_off=0.3, tau_on=0.6, depth=2)
    governor = BankGovernor(curve, 63, bank, policy, lambda depth: scores[0])
    governor.start()
    return bank, governor


def steps(
    bank: TreeBank, governor: BankGovernor, scores: list[float], seconds: float
) -> tuple[list[int], list[Choice]]:
    """Sizes of the trees that were verified, one a score, and what was told of them; nothing is ever accepted beyond
    the first node."""
    sizes, choices = [], []
    current = scores.copy()
    for score in current:
        scores[0] = score
        tree = filled(bank) if governor.budget() > 1 else Tree.root(0)
        chosen = governor.select(tree) if len(tree) > 1 else tree
        choices.append(governor.choice())
        sizes.append(len(chosen))
        walk = Walk((1,), (chosen.tokens[1], 99)) if len(chosen) > 1 else Walk((), (99,))
        governor.observe(chosen, walk, seconds * (1 if len(chosen) == 1 else 1.01))
    return sizes, choices


def test_the_policy_picks_by_score_with_its_own_memory() -> None:
    scores = [0.5, 0.5, 0.7, 0.5, 0.2, 0.5]
    bank, governor = governed(FREE, scores)
    sizes, choices = steps(bank, governor, scores, 0.01)
    small, big = SMALL.n_nodes, BIG.n_nodes
    speculated = [size for size in sizes if size > 1]
    assert speculated[-4:] == [big, big, small, small]
    # one draft is accepted in every step with a tree
    assert governor.use.steps == governor.use.accepted == [speculated.count(small), speculated.count(big)]
    assert 0 < governor.use.longest < governor.use.seconds
    assert [choice.tree for choice in choices] == [{1: None, small: 0, big: 1}[size] for size in sizes]
    assert choices[0].score is None and not choices[0].measured, "a plain step comes first"
    last = choices[-1]
    assert (last.on, last.n_trees, last.score, last.edges) == (True, 2, 0.5, (0.3, 0.6))
    assert last.measured and last.plain_seconds == pytest.approx(0.01)
    governor.start()
    assert governor.use.steps == [0, 0], "an answer began"


def test_unlikely_nodes_are_drafted_for_the_policy_to_pick() -> None:
    bank, governor = governed(CostCurve((1, 2, 64), (0.01, 0.0105, 0.0415)), [0.9])
    for _ in range(8):
        n = governor.budget()
        # as a drafter does: it leaves out what will not be verified
        tree = filled(bank, 0.02).likeliest(n, governor.least_p) if n > 1 else Tree.root(0)
        chosen = governor.select(tree) if n > 1 else tree
        governor.observe(chosen, Walk((1, 3), (1, 3, 99)) if n > 1 else Walk((), (99,)), 0.01)
    assert governor.use.steps[1] >= 6, "the trees are of the bank, whatever the nodes promise one by one"


def test_where_nothing_pays_the_governor_says_so() -> None:
    scores = [0.9] * 200
    bank, governor = governed(DEAR, scores)
    notes = []
    for _ in range(200):
        tree = filled(bank, 0.2) if governor.budget() > 1 else Tree.root(0)
        chosen = governor.select(tree) if len(tree) > 1 else tree
        notes.append(governor.observe(chosen, Walk((), (99,)), 0.01 * len(chosen)))
    assert any(note and "off" in note for note in notes) and not governor.on
    assert sum(governor.use.steps) < 20


def test_a_policy_for_another_bank_is_refused() -> None:
    with pytest.raises(UsageError, match="3 trees does not fit a bank of 2"):
        BankGovernor(FREE, 63, TreeBank([SMALL, BIG]), Star(3, 0), lambda depth: 0.0)
