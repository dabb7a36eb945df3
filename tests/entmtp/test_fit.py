"""Fits against brute force over the same grid, and promises that hold on every log."""

from __future__ import annotations

from functools import cache
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.entmtp import fit as fitting
from localspec.entmtp.fit import fit_ladder, fit_star, fit_tau, fit_value, threshold_grid
from localspec.entmtp.policies import ABOVE_ALL, BELOW_ALL, Ladder, Tau, Value
from localspec.entmtp.ranks import RankLog
from localspec.entmtp.replay import Bench, replay_tree
from localspec.errors import UsageError
from localspec.static_tree import StaticTree
from tests.entmtp.logs import random_log, real_like_log

TREES = [
    StaticTree(),
    StaticTree.from_paths([[0]]),
    StaticTree.from_paths([[0], [0, 0], [0, 0, 0]]),
    StaticTree.from_paths([[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0], [0, 0, 0, 0]]),
]
#: a step over the last tree costs more than two plain ones, as on a CPU
SECONDS = [0.010, 0.012, 0.016, 0.025]


@cache
def log_of(seed: int) -> RankLog:
    return real_like_log(seed, n_answers=8, length=60)


def seconds_of(policy: Any, log: RankLog, depth: int = 4) -> float:
    return Bench(log, TREES, SECONDS).run(policy, log.scores(depth).tolist()).seconds


def test_star_is_the_tree_with_the_most_tokens_a_second() -> None:
    log = log_of(1)
    rates = [replay_tree(log, tree).tokens_per_step / cost for tree, cost in zip(TREES, SECONDS, strict=True)]
    fit = fit_star(log, TREES, SECONDS)
    assert fit.policy.index == int(np.argmax(rates)) != 0
    assert fit.replay.tokens_per_second == pytest.approx(max(rates))


def test_a_grid_spans_all_scores() -> None:
    grid = threshold_grid(np.array([0.1, 0.2, 0.2, 0.9]), 5)
    assert grid == sorted(set(grid)) and (grid[0], grid[-1]) == (BELOW_ALL, ABOVE_ALL)
    assert all(0.1 <= value <= 0.9 for value in grid[1:-1])
    assert threshold_grid(np.zeros(9), 5) == [BELOW_ALL, 0.0, ABOVE_ALL]
    with pytest.raises(UsageError, match="nothing to try"):
        threshold_grid(np.zeros(9), 0)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("depth", [1, None])
def test_a_fitted_ladder_is_the_best_on_the_grid(seed: int, depth: int | None) -> None:
    log = log_of(seed)
    fit = fit_ladder(log, TREES, SECONDS, depth=depth, grid=4)
    n_heads = depth or log.n_heads
    grid = threshold_grid(log.scores(depth), 4)
    ladders = [Ladder(4, thresholds, n_heads) for thresholds in combinations_with_replacement(grid, 3)]
    best = min(seconds_of(ladder, log, n_heads) for ladder in ladders)
    assert fit.policy in ladders
    assert fit.replay.seconds == seconds_of(fit.policy, log, n_heads) == best


def test_a_climbed_ladder_is_on_the_grid_and_no_move_betters_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "MAX_LADDERS", 0)
    for seed in range(4):
        log = log_of(seed)
        fit = fit_ladder(log, TREES, SECONDS, grid=4)
        grid = threshold_grid(log.scores(), 4)
        thresholds = fit.policy.thresholds
        assert set(thresholds) <= set(grid)
        assert fit.replay.seconds == seconds_of(fit.policy, log) < fit_star(log, TREES, SECONDS).replay.seconds
        for i, j in combinations(range(4), 2):
            for value in grid:
                moved = (*thresholds[:i], *[value] * (j - i), *thresholds[j:])
                if moved == tuple(sorted(moved)):
                    assert seconds_of(Ladder(4, moved, 4), log) >= fit.replay.seconds


@pytest.mark.parametrize("seed", [1, 2])
def test_a_fitted_tau_is_the_best_on_the_grid(seed: int) -> None:
    log = log_of(seed)
    fit = fit_tau(log, TREES, SECONDS, grid=3)
    grid = threshold_grid(log.scores(), 3)
    best = min(
        seconds_of(Tau(4, small, big, off, on, 4), log)
        for small, big in combinations(range(4), 2)
        for off in grid
        for on in grid
        if off <= on
    )
    assert {fit.policy.tau_off, fit.policy.tau_on} <= set(grid)
    assert fit.replay.seconds == seconds_of(fit.policy, log) == best


def test_tau_can_be_limited_to_some_pairs() -> None:
    log = log_of(1)
    fit = fit_tau(log, TREES, SECONDS, grid=3, pairs=[(1, 2)])
    assert (fit.policy.small, fit.policy.big) == (1, 2)
    with pytest.raises(UsageError, match="no pairs"):
        fit_tau(log, TREES, SECONDS, pairs=[])


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.lists(st.floats(0.01, 0.1), min_size=4, max_size=4))
def test_no_policy_is_slower_than_star_on_its_own_log(seed: int, seconds: list[float]) -> None:
    log = random_log(seed)
    bench = Bench(log, TREES, seconds)
    star = fit_star(log, TREES, seconds).replay.seconds
    for fit in (
        fit_ladder(log, TREES, seconds, grid=3),
        fit_tau(log, TREES, seconds, grid=3),
        fit_value(log, TREES, seconds),
    ):
        assert fit.replay.seconds <= star
        again = bench.run(fit.policy, log.scores().tolist())
        assert (again.seconds, again.counts) == (fit.replay.seconds, fit.replay.counts)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_policies_gain_on_other_answers_where_the_score_tells_something(seed: int) -> None:
    log, other = log_of(seed), real_like_log(100 + seed)
    star = seconds_of(fit_star(log, TREES, SECONDS).policy, other)
    for fit in (fit_ladder(log, TREES, SECONDS), fit_tau(log, TREES, SECONDS), fit_value(log, TREES, SECONDS)):
        assert seconds_of(fit.policy, other) < 0.99 * star


def test_a_value_table_holds_the_best_tree_of_each_bin_at_its_rate() -> None:
    """The last round again, by loops: means over the steps of a bin, worth at the rate, margin for the tree in use."""
    log = log_of(2)
    first = fit_value(log, TREES, SECONDS, rounds=1, margins=[0.05])
    star = fit_star(log, TREES, SECONDS)
    policy = first.policy
    assert policy.rate == pytest.approx(star.replay.tokens_per_second)
    scores, bench = log.scores().tolist(), Bench(log, TREES, SECONDS)
    bins: dict[tuple[int, int], list[list[float]]] = {}
    everything: list[list[float]] = []
    for start, end in log.bounds:
        t, ema = start, policy.ema_start
        while t < end:
            accepted = bench.accepted[:, t].tolist()
            cell = (sum(e <= scores[t] for e in policy.score_edges), sum(e <= ema for e in policy.ema_edges))
            bins.setdefault(cell, []).append(accepted)
            everything.append(accepted)
            ema += 2 / 9 * (accepted[star.policy.index] - ema)
            t += 1 + accepted[star.policy.index]
    n_emas = len(policy.ema_edges) + 1
    assert len(policy.score_edges) == 7 and n_emas == 3
    overall = np.mean(everything, axis=0)
    for i in range(8):
        rows = [row for j in range(n_emas) for row in bins.get((i, j), [])]
        by_score = (np.sum(rows, axis=0) + 8 * overall) / (len(rows) + 8)
        for j in range(n_emas):
            cell_rows = bins.get((i, j), [])
            means = (np.sum(cell_rows, axis=0) + 8 * by_score) / (len(cell_rows) + 8)
            worth = (1 + means - policy.rate * np.array(SECONDS)).tolist()
            for now in range(4):
                stay = worth[now] >= max(worth) - 0.05
                expected = now if stay else worth.index(max(worth))
                assert policy.table[(i * n_emas + j) * 4 + now] == expected


def test_value_ends_at_a_fixed_point_or_says_so_by_its_figures() -> None:
    log = log_of(3)
    few, many = (fit_value(log, TREES, SECONDS, rounds=rounds) for rounds in (1, 8))
    assert many.replay.seconds <= few.replay.seconds < fit_star(log, TREES, SECONDS).replay.seconds


def test_where_nothing_pays_every_policy_is_plain() -> None:
    log = log_of(1)
    seconds = [0.01, 0.05, 0.09, 0.2]
    for fit in (
        fit_star(log, TREES, seconds),
        fit_ladder(log, TREES, seconds, grid=3),
        fit_tau(log, TREES, seconds, grid=3),
        fit_value(log, TREES, seconds),
    ):
        assert fit.replay.shares == (1.0, 0.0, 0.0, 0.0)


def test_one_tree_is_enough_for_every_policy() -> None:
    log = log_of(1)
    for fit in (fit_star, fit_ladder, fit_tau, fit_value):
        fitted: Any = fit(log, TREES[2:3], [0.01])  # type: ignore[operator]
        assert fitted.replay.shares == (1.0,) and fitted.policy.n_trees == 1


def test_impossible_fits_are_refused() -> None:
    log = log_of(1)
    with pytest.raises(UsageError, match="score_bins is 0"):
        fit_value(log, TREES, SECONDS, score_bins=0)
    with pytest.raises(UsageError, match="5 heads"):
        fit_ladder(log, TREES, SECONDS, depth=5)
    with pytest.raises(UsageError, match="step costs"):
        fit_star(log, TREES, SECONDS[1:])


def test_a_fitted_policy_is_ready_for_an_answer() -> None:
    log = log_of(1)
    for fit in (fit_tau(log, TREES, SECONDS, grid=3), fit_value(log, TREES, SECONDS)):
        policy: Tau | Value = fit.policy
        scores = log.scores().tolist()[:40]
        ready = [policy.choose(s) for s in scores]
        policy.reset()
        assert ready == [policy.choose(s) for s in scores]
