"""What a draft costs beside those of other texts."""

from __future__ import annotations

import pytest

from localspec.calibrate.curve import CostCurve
from localspec.methods.base import Walk
from localspec.methods.company import CompanyGovernor, SharedCost, TextCost
from localspec.methods.governor import Governor
from localspec.tree import Tree

#: nodes are nearly free up to 8, then each costs a plain step
CURVE = CostCurve((1, 8, 64), (0.010, 0.012, 0.572))


def shared(n_texts: int, n_others: int) -> tuple[SharedCost, TextCost]:
    cost = SharedCost(CURVE, 63)
    cost.n_texts, cost.n_others = n_texts, n_others
    return cost, TextCost(cost)


def test_alone_a_text_sees_the_curve() -> None:
    cost, own = shared(1, 0)
    assert own.relative is cost.cost.relative and not own.in_company
    assert own.plain_seconds == pytest.approx(0.010)
    own.observe(1, 0.011)
    assert cost.cost.plain_known and own.plain_seconds == pytest.approx(0.011)


def test_the_tokens_of_a_pass_share_its_cost() -> None:
    """k plain texts: each token costs c(k) / k, which is the unit; a first node is what one has anyway."""
    cost, own = shared(4, 3)
    assert own.in_company and own.plain_known
    assert own.relative[0] == 1.0
    unit = cost.relative(4) / 4
    assert own.relative[2] == pytest.approx(1 + (cost.relative(6) - cost.relative(4)) / unit)
    assert own.plain_seconds == pytest.approx(0.010 * unit)
    assert cost.plain_pass == pytest.approx(0.010 * cost.relative(4))
    # plain steps and measured ones are those of the pass
    assert own.observe(3, 99.0) == pytest.approx(own.relative[2])
    assert cost.cost.plain_seconds == pytest.approx(0.010)


def test_a_full_pass_has_room_for_the_root_alone() -> None:
    _, own = shared(3, 62)
    assert own.relative[0] == 1.0 and min(own.relative[1:]) > 1000
    assert len(own.relative) == 63


@pytest.mark.parametrize(("n_texts", "n_others", "size"), [(1, 0, 6), (2, 1, 6), (4, 7, 1), (8, 7, 1)])
def test_the_more_write_the_smaller_the_trees(n_texts: int, n_others: int, size: int) -> None:
    """A chain of likely drafts is verified while nodes are cheap, and not where every node costs a token or more."""
    _, own = shared(n_texts, n_others)
    governor = Governor(CURVE, 63)
    governor.share(own)
    governor.start()
    own.observe(1, 0.010)
    tree = Tree.of([-1, 0, 1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [1.0, 0.8, 0.7, 0.6, 0.5, 0.4])
    if governor.budget() > 1:
        assert len(governor.select(tree)) == size
    else:
        assert size == 1


def test_a_draft_that_delays_all_costs_every_text_a_token() -> None:
    """A draft of a whole pass costs as many tokens as there are texts: it must bring more than those, or end."""
    _, own = shared(4, 3)
    governor = Governor(CURVE, 63)
    governor.share(own)
    governor.start()
    tree = Tree.of([-1, 0, 1], [1, 2, 3], [1.0, 0.9, 0.8])
    for _ in range(4):
        if governor.budget() > 1:
            governor.select(tree)
            governor.observe(tree, Walk((1, 2), (2, 3, 4)), 0.0, own.plain_seconds * own.n_texts)
    assert not governor.on


def passes(governor: CompanyGovernor, n: int, plain: float, drafted: float, tokens: int) -> list[bool]:
    """`n` passes for 4 texts: a plain one takes `plain` seconds, one with drafts `drafted`, and writes `tokens`."""
    made = []
    for _ in range(n):
        draft = governor.may_draft(4)
        made.append(draft)
        governor.observe(4, tokens if draft else 4, 12 if draft else 4, drafted if draft else plain)
    return made


def test_drafts_that_lose_are_left_out_and_tried_more_and_more_seldom() -> None:
    made = passes(CompanyGovernor(), 1000, 0.040, 0.060, 5)
    lost = sum(4 * 0.060 / 0.040 - 5 for draft in made if draft)
    assert 0 < lost <= 0.03 * 4 * len(made)
    assert sum(made[500:]) < sum(made[:500])


def test_drafts_that_win_stay_and_plain_passes_keep_the_measure() -> None:
    made = passes(CompanyGovernor(), 500, 0.040, 0.050, 7)
    assert sum(made) > 480
    assert 8 <= made[3:].count(False) <= 12


def test_drafts_come_back_when_they_pay_again() -> None:
    governor = CompanyGovernor()
    passes(governor, 100, 0.040, 0.060, 5)
    assert not any(passes(governor, 5, 0.040, 0.060, 5))
    assert sum(passes(governor, 400, 0.040, 0.044, 7)[-20:]) >= 18


def test_one_hiccup_of_the_machine_ends_nothing() -> None:
    governor = CompanyGovernor()
    passes(governor, 20, 0.040, 0.050, 7)
    governor.may_draft(4)
    governor.observe(4, 7, 12, 5.0)
    governor.may_draft(4)
    governor.observe(4, 7, 12, 0.050)
    assert any(passes(governor, 60, 0.040, 0.050, 7))
