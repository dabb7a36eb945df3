"""What forgiving is worth to a chain, against the mean of what the rule itself makes of all its outcomes."""

from __future__ import annotations

import itertools
import math

import pytest

from localspec.methods.base import Walk
from localspec.methods.draft.forgiving import Forgiving, matching, spine
from localspec.methods.fly import ENTROPY_FORMS, EntropyForm, LooseRule, judge
from localspec.tree import Topology, Tree

MATCH, SURE, UNSURE = range(3)


class Known(Forgiving):
    share = 0.0  # type: ignore[assignment]


def mean_accepted(c: float, gate: float, K: int, rule: LooseRule) -> float:
    """Over all patterns of matches, with chance `c` each, and of mismatches that pass the gate with chance `gate`."""
    chance = {MATCH: c, SURE: (1 - c) * (1 - gate), UNSURE: (1 - c) * gate}
    total = 0.0
    for kinds in itertools.product(chance, repeat=K):
        target = [1 if kind == MATCH else 2 for kind in kinds]
        entropies = [float(kind == UNSURE) for kind in kinds]
        made = judge([1] * K, target, entropies, [1.0] * K, [False] * K, {9}, rule)
        total += made.accepted * math.prod(chance[kind] for kind in kinds)
    return total


@pytest.mark.parametrize("form", ENTROPY_FORMS)
@pytest.mark.parametrize("W", [1, 2, 3])
@pytest.mark.parametrize(("c", "gate"), [(0.8, 0.6), (0.5, 1.0), (0.9, 0.0), (1.0, 0.5)])
def test_the_worth_of_a_chain_is_the_mean_over_all_that_can_come_of_it(
    c: float, gate: float, W: int, form: EntropyForm
) -> None:
    rule = LooseRule(0.5, W, form)
    forgiving = Known(rule)
    forgiving.share = gate * c**rule.followers  # type: ignore[misc]
    for K in range(9):
        p = [c**depth for depth in range(1, K + 1)]
        assert sum(p) + forgiving.bonus(p) == pytest.approx(mean_accepted(c, gate, K, rule))
        assert forgiving.bonuses(p) == [forgiving.bonus(p[:k]) for k in range(1, K + 1)]


def test_a_chain_no_longer_than_the_window_brings_nothing_by_it() -> None:
    bonuses = Forgiving(LooseRule()).bonuses([0.9**depth for depth in range(1, 16)])
    assert bonuses[:6] == [0.0] * 6
    assert all(a < b for a, b in itertools.pairwise(bonuses[5:]))


def test_the_share_is_that_of_mismatches_with_a_full_window() -> None:
    forgiving = Forgiving(LooseRule(window=2))
    tree = Tree(Topology.chain(8), tuple(range(1, 9)), (0.5,) * 8)
    before = forgiving.share
    # the end of the draft, the end of the text, and a mismatch too close to the end tell nothing
    for length in (7, 6, 5):
        forgiving.learn(tree, Walk(tuple(range(1, length + 1)), (*range(2, length + 2), 99)))
    forgiving.learn(tree, Walk((1, 2), (2, 3)))
    assert forgiving.share == before
    forgiving.learn(tree, Walk((1, 2, 3, 4), (2, 3, 4, 5, 99)))
    assert forgiving.share < before
    for _ in range(200):
        forgiving.learn(tree, Walk((1, 2, 3, 4), (2, 3, 4, 5, 99), (1,)))
    assert forgiving.share == pytest.approx(0.5, abs=0.05)
    for _ in range(200):
        forgiving.learn(tree, Walk((1, 2, 3, 4), (2, 3, 4, 5, 99)))
    least = forgiving.share
    forgiving.start()
    assert 0.1 < forgiving.share < before and least < 0.05, "a new text may be another kind of text"


def test_what_matched_ends_before_the_first_forgiven_token() -> None:
    assert matching(Walk((1, 2, 3), (5, 6, 7, 8), (1, 2))) == Walk((1,), (5,))
    whole = Walk((1, 2), (5, 6, 7))
    assert matching(whole) is whole


def test_the_spine_leads_to_the_deepest_leaf() -> None:
    tree = Tree.of([-1, 0, 0, 1, 1, 3], [1, 2, 3, 4, 5, 6], [1.0, 0.9, 0.1, 0.8, 0.1, 0.7])
    assert [tree.tokens[node] for node in spine(tree)] == [1, 2, 4, 6]
    assert spine(Tree.root(3)) == (0,)
