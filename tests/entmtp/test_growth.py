"""Growth against a slow one that replays every candidate from scratch, and its ties."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.calibrate.curve import CostCurve
from localspec.entmtp.growth import accuracies, best_under_cost, grow, grow_all, grow_by_products
from localspec.entmtp.ranks import MISSING, RankLog
from localspec.entmtp.replay import TreeReplay, replay_tree, step_seconds
from localspec.errors import UsageError
from localspec.static_tree import MC_SIM_7B_63, StaticTree
from tests.entmtp.logs import answer, random_log, real_like_log

Node = tuple[int, ...]


def frontier(paths: set[Node], max_depth: int, max_children: int) -> list[Node]:
    """The next contiguous child of every parent that may have one."""
    candidates = []
    for parent in [(), *paths]:
        n = sum(len(path) == len(parent) + 1 and path[:-1] == parent for path in paths)
        if len(parent) < max_depth and n < max_children:
            candidates.append((*parent, n))
    return candidates


def slow_grow(log: RankLog, max_nodes: int, max_depth: int, max_children: int) -> list[set[Node]]:
    """The paper's rules word by word, with a full replay of every candidate."""
    paths: set[Node] = set()
    grown = [set(paths)]
    while len(grown) < max_nodes:
        rated = []
        for path in frontier(paths, max_depth, max_children):
            accepted = replay_tree(log, StaticTree.from_paths(paths | {path})).mean_accepted
            rated.append((-accepted, sum(path), len(path), path))
        if not rated:
            break
        paths = paths | {min(rated)[-1]}
        grown.append(paths)
    return grown


def slow_products(log: RankLog, max_nodes: int, max_depth: int, max_children: int) -> list[tuple[set[Node], float]]:
    """Medusa's rule word by word."""
    table = accuracies(log, max_children)

    def product(path: Node) -> float:
        value = 1.0
        for d, rank in enumerate(path):
            value = value * table[d][rank]
        return value

    paths: set[Node] = set()
    grown = [(set(paths), 1.0)]
    while len(grown) < max_nodes:
        rated = [(-product(p), sum(p), len(p), p) for p in frontier(paths, max_depth, max_children)]
        if not rated:
            break
        paths = paths | {min(rated)[-1]}
        grown.append((paths, 1 + sum(map(product, paths))))
    return grown


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 4))
def test_growth_is_that_of_full_replays(seed: int, max_depth: int, max_children: int) -> None:
    log = random_log(seed)
    grown = grow(log, 20, max_depth, max_children)
    assert [set(replayed.tree.paths) for replayed in grown] == slow_grow(log, 20, max_depth, max_children)
    for replayed in grown:
        assert replayed == replay_tree(log, replayed.tree)


@pytest.mark.parametrize("seed", [1, 2])
def test_growth_on_a_real_like_log_is_that_of_full_replays(seed: int) -> None:
    log = real_like_log(seed, n_answers=10)
    grown = grow(log, 24)
    assert [set(replayed.tree.paths) for replayed in grown] == slow_grow(log, 24, 4, 100)


def test_every_size_is_exactly_replayed_and_never_worse_than_the_one_before() -> None:
    log = real_like_log(3)
    grown = grow(log, 64)
    assert [replayed.tree.n_nodes for replayed in grown] == list(range(1, 65))
    for before, after in itertools.pairwise(grown):
        assert set(before.tree.paths) < set(after.tree.paths)
        assert after.steps == replay_tree(log, after.tree).steps
        assert after.tree.contiguous


def test_grown_trees_beat_the_published_one_where_they_were_grown() -> None:
    log = real_like_log(4)
    assert grow(log, 64)[-1].steps < replay_tree(log, MC_SIM_7B_63).steps


def test_of_equal_candidates_the_smaller_rank_sum_wins_then_the_shallower() -> None:
    # nothing but rank 0 is ever right, and only at depth 1: all candidates after it are worth nothing
    log = RankLog((answer("a", [[0, 5]] * 9),))
    order = [set(r.tree.paths) - set(b.tree.paths) for b, r in itertools.pairwise(grow(log, 8))]
    assert [next(iter(new)) for new in order] == [(0,), (0, 0), (1,), (0, 1), (1, 0), (2,), (0, 2)]


def test_of_useful_candidates_the_one_with_fewer_steps_wins_whatever_its_ranks() -> None:
    # rank 2 is right most often, but a gap is not allowed: 0 and 1 must come first
    log = RankLog((answer("a", [[2], [2], [2], [2], [2], [2], [1], [2], [2], [0], [2], [2]]),))
    assert [r.tree.paths[-1] for r in grow(log, 4)[1:]] == [(0,), (1,), (2,)]


def test_growth_ends_when_all_parents_are_full() -> None:
    log = random_log(1)
    assert len(grow(log, 64, max_depth=1, max_children=2)) == 3
    assert len(grow(log, 64, max_depth=2, max_children=2)) == 7
    assert len(grow_by_products(log, 64, max_depth=2, max_children=2)) == 7


def test_all_depths_are_grown_and_equal_trees_come_once() -> None:
    log = random_log(5)
    everything = grow_all(log, 12)
    single = [replayed.tree for depth in (1, 2, 3) for replayed in grow(log, 12, depth)]
    assert {replayed.tree for replayed in everything} == set(single)
    assert len({replayed.tree for replayed in everything}) == len(everything) < len(single)
    assert max(replayed.tree.depth for replayed in everything) == 3


def test_accuracies_are_counted_where_the_token_is_known() -> None:
    log = RankLog((answer("a", [[0, 1], [1, 0], [MISSING, 0], [0, 0]]), answer("b", [[1, 0], [0, 0]])))
    # head 0: three known tokens in a (0, 1, missing) and one in b (1); head 1: two in a (1, 0) and none in b
    assert accuracies(log, 3).tolist() == [[1 / 4, 2 / 4, 0], [1 / 2, 1 / 2, 0]]
    assert accuracies(RankLog((answer("c", [[0, 0]]),)), 2).tolist() == [[0, 0], [0, 0]]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 4))
def test_growth_by_products_is_that_of_the_rule(seed: int, max_depth: int, max_children: int) -> None:
    log = random_log(seed)
    grown = grow_by_products(log, 20, max_depth, max_children)
    slow = slow_products(log, 20, max_depth, max_children)
    assert [set(tree.paths) for tree, _ in grown] == [paths for paths, _ in slow]
    assert [expected for _, expected in grown] == pytest.approx([expected for _, expected in slow])


def test_products_are_exact_for_one_head_that_is_always_alike() -> None:
    # a single head accepts at most one draft, so nothing is assumed about independence
    rng = np.random.default_rng(1)
    log = RankLog((answer("a", rng.integers(0, 4, (5000, 1))),))
    tree, expected = grow_by_products(log, 3)[-1]
    assert expected == pytest.approx(replay_tree(log, tree).tokens_per_step, abs=0.03)


def test_growth_by_measurement_is_at_least_about_as_good_as_by_products() -> None:
    log = real_like_log(6)
    measured = grow(log, 32)[-1]
    by_products = replay_tree(log, grow_by_products(log, 32)[-1][0])
    assert measured.mean_accepted > 0.99 * by_products.mean_accepted


def test_the_best_size_is_the_one_with_the_most_tokens_a_second() -> None:
    log = real_like_log(7)
    replays = grow_all(log, 40)
    for slope in (0.0001, 0.003, 0.02, 1.0):
        seconds = step_seconds(CostCurve((1, 40), (0.02, 0.02 + 39 * slope)), 0.001)
        best = best_under_cost(replays, seconds)
        rates = [r.tokens_per_step / seconds(r.tree) for r in replays]
        assert best.tokens_per_step / seconds(best.tree) == max(rates)
        if slope == 1.0:
            assert best.tree == StaticTree(), "nothing pays here"
    with pytest.raises(UsageError, match="no trees"):
        best_under_cost(list[TreeReplay](), lambda tree: 1.0)


@pytest.mark.parametrize("make", [grow, grow_by_products])
@pytest.mark.parametrize("sizes", [(0, 1, 1), (257, 1, 1), (8, 0, 1), (8, 4, 1), (8, 1, 0), (8, 1, 128)])
def test_impossible_sizes_are_refused(make: object, sizes: tuple[int, int, int]) -> None:
    assert callable(make)
    with pytest.raises(UsageError):
        make(random_log(1), *sizes)
