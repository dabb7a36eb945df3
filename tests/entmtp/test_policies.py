"""Policies against their rules written out, and their JSON."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.entmtp.policies import ABOVE_ALL, BELOW_ALL, Ladder, Star, Tau, Value, policy_from_dict, score
from localspec.errors import UsageError

SCORES = st.floats(0, 1)


def a_value(**changes: Any) -> Value:
    """Two score bins, two bins of the average, three trees: entry i holds a tree that tells the bins."""
    table = (0, 0, 0, 1, 1, 2, 2, 2, 2, 0, 1, 2)
    fields = {"n_trees": 3, "score_edges": (0.5,), "ema_edges": (1.0,), "table": table, "ema_start": 1.5, "first": 1}
    return Value(**{**fields, "depth": 4, "span": 3, "rate": 40.0, "margin": 0.1, **changes})  # type: ignore[arg-type]


POLICIES = [Star(3, 2), Ladder(3, (0.25, 0.5), 4), Tau(4, 1, 3, 0.1, 0.2, 2), a_value()]


@given(SCORES, st.lists(SCORES, max_size=5))
def test_a_score_is_a_product(p_base: float, q: list[float]) -> None:
    expected = p_base
    for factor in q:
        expected *= factor
    assert score(p_base, q) == expected


def test_a_score_with_an_unknown_factor_is_zero() -> None:
    assert score(float("nan"), [0.5]) == score(0.5, [float("nan"), 0.5]) == 0.0
    assert score(0.5, []) == 0.5


def test_star_never_changes() -> None:
    star = Star(3, 1)
    assert {star.choose(s / 10) for s in range(11)} == {1}


@given(st.lists(SCORES, min_size=1, max_size=5).map(sorted), SCORES)
def test_a_ladder_counts_the_thresholds_that_are_reached(thresholds: list[float], s: float) -> None:
    ladder = Ladder(len(thresholds) + 1, tuple(thresholds), 4)
    assert ladder.choose(s) == sum(threshold <= s for threshold in thresholds)


def test_a_ladder_can_skip_trees() -> None:
    ladder = Ladder(4, (BELOW_ALL, 0.5, ABOVE_ALL), 4)
    assert {ladder.choose(s / 10) for s in range(5)} == {1}
    assert {ladder.choose(s / 10) for s in range(5, 11)} == {2}


@pytest.mark.parametrize(("off", "on"), [(0.2, 0.6), (0.4, 0.4), (BELOW_ALL, 0.4), (0.0, 0.0), (ABOVE_ALL, ABOVE_ALL)])
def test_tau_follows_its_rules_on_all_short_sequences(off: float, on: float) -> None:
    scores = sorted(
        {0.0, max(off - 0.1, 0.0), off, (off + on) / 2, on, min(on + 0.1, 1.0), 1.0} - {BELOW_ALL, ABOVE_ALL}
    )
    policy = Tau(5, 1, 3, off, on, 4)
    for sequence in product(scores, repeat=4):
        policy.reset()
        big = False
        for s in sequence:
            big = not s <= off if big else s > on
            assert policy.choose(s) == (3 if big else 1)
            policy.observe(2)


def test_tau_forgets_its_tree_at_a_new_answer() -> None:
    policy = Tau(2, 0, 1, 0.2, 0.6, 4)
    assert [policy.choose(s) for s in (0.4, 0.7, 0.4)] == [0, 1, 1]
    policy.reset()
    assert policy.choose(0.4) == 0


@given(st.lists(st.tuples(SCORES, st.integers(0, 4), st.booleans()), max_size=30))
def test_value_looks_up_bins_and_the_tree_in_use(steps: list[tuple[float, int, bool]]) -> None:
    policy = a_value()
    ema, now = 1.5, 1
    for s, accepted, restart in steps:
        if restart:
            policy.reset()
            ema, now = 1.5, 1
        now = policy.table[(2 * (s >= 0.5) + (ema >= 1.0)) * 3 + now]
        assert policy.choose(s) == now
        policy.observe(accepted)
        ema = ema + 2 / (1 + 3) * (accepted - ema)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.kind)
def test_json_keeps_a_policy_and_not_its_state(policy: Any) -> None:
    for s in (0.9, 0.05, 0.4):
        policy.choose(s)
        policy.observe(4)
    again = policy_from_dict(json.loads(json.dumps(policy.to_dict())))
    assert again == policy and type(again) is type(policy)
    policy.reset()
    for s in (0.3, 0.9, 0.15, 0.05, 0.7):
        assert again.choose(s) == policy.choose(s)
        again.observe(1)
        policy.observe(1)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.kind)
def test_json_with_a_field_too_few_or_too_many_is_refused_by_name(policy: Any) -> None:
    data = policy.to_dict()
    for key in set(data) - {"policy"}:
        with pytest.raises(UsageError, match=f"lacks or does not know {key}"):
            policy_from_dict({k: v for k, v in data.items() if k != key})
        with pytest.raises(UsageError, match=key):
            policy_from_dict({**data, key: "text"})
        with pytest.raises(UsageError, match=key):
            policy_from_dict({**data, key: None})
    with pytest.raises(UsageError, match="does not know extra"):
        policy_from_dict({**data, "extra": 1})


def test_other_json_is_refused() -> None:
    for data in (None, [], "star", {}, {"policy": "other"}, {"policy": ["star"]}):
        with pytest.raises(UsageError, match="policy"):
            policy_from_dict(data)


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        (0, {"index": 3}),
        (0, {"index": -1}),
        (0, {"index": True}),
        (0, {"n_trees": 0}),
        (1, {"thresholds": [0.5, 0.25]}),
        (1, {"thresholds": [0.5]}),
        (1, {"thresholds": [0.5, float("nan")]}),
        (1, {"thresholds": [0.5, True]}),
        (1, {"depth": -1}),
        (2, {"small": 4}),
        (2, {"big": 4}),
        (2, {"tau_off": 0.3}),
        (2, {"tau_on": float("inf")}),
        (3, {"table": [0] * 11}),
        (3, {"table": [0] * 11 + [3]}),
        (3, {"table": [0] * 11 + [0.5]}),
        (3, {"score_edges": [0.5, 0.1]}),
        (3, {"score_edges": [0.5, 0.6]}),
        (3, {"first": 3}),
        (3, {"span": 0}),
        (3, {"ema_start": float("nan")}),
    ],
)
def test_impossible_fields_are_refused(policy: int, changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="fit the policy again"):
        policy_from_dict({**POLICIES[policy].to_dict(), **changes})
