"""The Pareto front and the bank: properties on random figures, against rules written out."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.calibrate.curve import CostCurve
from localspec.entmtp.growth import best_under_cost, grow_all
from localspec.entmtp.pareto import TOLERANCE, Bank, BankTree, bank_by_cost, bank_by_speed, pareto_front
from localspec.entmtp.replay import TreeReplay, step_seconds
from localspec.errors import UsageError
from localspec.static_tree import StaticTree
from tests.entmtp.logs import real_like_log


def wide(n_drafts: int, name: str = "") -> StaticTree:
    return StaticTree.from_paths([[rank] for rank in range(n_drafts)], name)


def row(n_drafts: int, mean_accepted: float) -> TreeReplay:
    """A tree of this size that had so many drafts accepted, in 1000 steps."""
    return TreeReplay(wide(n_drafts), 1000 + round(1000 * mean_accepted), 1000)


ROWS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 8)), max_size=20).map(
    lambda pairs: [row(n, accepted / 4) for n, accepted in pairs]
)


@given(ROWS, st.randoms())
def test_the_front_holds_what_no_other_tree_is_as_good_as(rows: list[TreeReplay], random: Any) -> None:
    front = pareto_front(rows)
    for a, b in pairwise(front):
        assert a.tree.n_nodes < b.tree.n_nodes and a.mean_accepted < b.mean_accepted
    for r in rows:
        better = [f for f in front if f.tree.n_nodes <= r.tree.n_nodes and f.mean_accepted >= r.mean_accepted]
        assert better, "every tree is on the front or has one that is at least as good"
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert pareto_front(shuffled) == front == pareto_front(front)


def test_more_nodes_need_more_than_the_tolerance() -> None:
    one = TreeReplay(wide(1), 2 * 10**10, 10**10)
    same = TreeReplay(wide(2), 2 * 10**10 + 9, 10**10)
    more = TreeReplay(wide(3), 2 * 10**10 + 11, 10**10)
    assert same.mean_accepted - one.mean_accepted < TOLERANCE < more.mean_accepted - one.mean_accepted
    assert pareto_front([more, same, one]) == [one, more]


@given(ROWS.filter(len), st.floats(0.001, 2))
def test_a_bank_keeps_what_is_faster_than_all_smaller_trees(rows: list[TreeReplay], slope: float) -> None:
    def seconds(tree: StaticTree) -> float:
        return 1 + slope * tree.n_nodes

    bank = bank_by_cost(rows, seconds)
    rates = {n: max(r.tokens_per_step for r in rows if r.tree.n_nodes == n) for n in {r.tree.n_nodes for r in rows}}
    rates = {n: tokens / seconds(wide(n - 1)) for n, tokens in rates.items()}
    kept = [n for n in sorted(rates) if all(rates[n] > rates[smaller] for smaller in rates if smaller < n)]
    assert [e.tree.n_nodes for e in bank.entries] == kept
    for e in bank.entries:
        assert e.tokens_per_second == rates[e.tree.n_nodes]
        assert e.seconds == seconds(e.tree) and (1 + e.mean_accepted) / e.seconds == pytest.approx(e.tokens_per_second)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=9))
def test_measured_speed_decides_where_there_is_some(speeds: list[int]) -> None:
    rows = [row(n, n / 4) for n in range(len(speeds))]
    bank = bank_by_speed(rows, speeds)
    kept = [n for n, speed in enumerate(speeds) if all(speed > smaller for smaller in speeds[:n])]
    assert [tree.n_drafts for tree in bank.trees] == kept
    for entry, n in zip(bank.entries, kept, strict=True):
        assert entry.tokens_per_second == speeds[n]
        assert entry.seconds * speeds[n] == pytest.approx(1 + entry.mean_accepted)


def test_a_bank_by_cost_holds_the_fastest_tree_where_the_front_lacks_it() -> None:
    shallow = TreeReplay(wide(3), 1990, 1000)
    deep = TreeReplay(StaticTree.from_paths([[0], [0, 0], [0, 0, 0]]), 2000, 1000)
    assert pareto_front([shallow, deep]) == [deep]
    assert bank_by_cost([deep, shallow], lambda tree: 1 + 0.1 * tree.depth).trees == (shallow.tree,)


def test_the_last_tree_of_a_bank_is_the_fastest_of_all() -> None:
    replays = grow_all(real_like_log(1), 32)
    seconds = step_seconds(CostCurve((1, 32), (0.02, 0.06)), 0.001)
    bank = bank_by_cost(replays, seconds)
    assert len(bank) > 3 and bank.entries[0].tree == StaticTree()
    best = best_under_cost(replays, seconds)
    assert bank.entries[-1].tokens_per_second == best.tokens_per_step / seconds(best.tree)


def test_a_bank_can_be_spread() -> None:
    bank = bank_by_cost([row(n, n / 2) for n in range(10)], lambda tree: 1.0)
    sizes = [[tree.n_drafts for tree in bank.spread(n).trees] for n in (1, 2, 4, 10, 99)]
    assert sizes == [[9], [0, 9], [0, 3, 6, 9], list(range(10)), list(range(10))]
    with pytest.raises(UsageError, match="cannot have 0 trees"):
        bank.spread(0)


def test_json_keeps_a_bank() -> None:
    bank = bank_by_cost([row(n, n / 3) for n in range(6)], lambda tree: 1 + 0.01 * tree.n_nodes)
    assert Bank.from_dict(json.loads(json.dumps(bank.to_dict()))) == bank


def test_what_is_no_bank_is_refused() -> None:
    entry = {**wide(1).to_dict(), "mean_accepted": 0.5, "seconds": 1, "tokens_per_second": 1.5}
    assert len(Bank.from_dict({"trees": [entry]})) == 1
    wrong: list[Any] = [None, {}, {"trees": 3}, {"trees": []}, {"trees": [3]}, {"trees": [entry, entry]}]
    wrong += [{"trees": [{**entry, "seconds": value}]} for value in (None, "1", True, 0, -1, float("nan"))]
    wrong += [{"trees": [{**entry, "mean_accepted": -1}]}, {"trees": [{**entry, "paths": [[1, 0]]}]}]
    for data in wrong:
        with pytest.raises(UsageError):
            Bank.from_dict(data)
    with pytest.raises(UsageError, match="ascend"):
        Bank((BankTree(wide(1), 1.0, 1.0, 2.0), BankTree(wide(2), 1.0, 1.0, 2.0)))


def test_impossible_figures_are_refused() -> None:
    with pytest.raises(UsageError, match="at least one tree"):
        bank_by_cost([], lambda tree: 1.0)
    with pytest.raises(UsageError, match=r"costs 0\.0 seconds"):
        bank_by_cost([row(1, 1)], lambda tree: 0.0)
    with pytest.raises(UsageError, match="1 trees need as many measured speeds, not 2"):
        bank_by_speed([row(1, 1)], [1, 2])
    for speed in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="measured speed"):
            bank_by_speed([row(1, 1)], [speed])
