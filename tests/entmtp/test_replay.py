"""Replay against a direct simulation, step by step and path by path."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.calibrate.curve import CostCurve
from localspec.entmtp.ranks import RankedAnswer, RankLog
from localspec.entmtp.replay import Bench, accepted_everywhere, accepted_per_step, replay_tree, step_seconds
from localspec.errors import UsageError
from localspec.static_tree import MAX_RANK, MC_SIM_7B_63, StaticTree
from tests.entmtp.logs import answer, random_log, real_like_log
from tests.test_static_tree import ANY_PATHS, closed


def slow_accepted(ranks: Sequence[int], tree: StaticTree) -> int:
    """The longest prefix of the ranks that is a path."""
    return max((d for d in range(1, len(ranks) + 1) if tuple(ranks[:d]) in tree.paths), default=0)


def slow_steps(ranked: RankedAnswer, tree: StaticTree) -> list[int]:
    """What each step of an answer has accepted."""
    ranks, t, accepted = ranked.ranks.tolist(), 0, []
    while t < len(ranks):
        accepted.append(slow_accepted(ranks[t], tree))
        t += 1 + accepted[-1]
    assert t == len(ranks), "a step left the answer"
    return accepted


class InTurn:
    """Picks by the features and by what was accepted since the start of the answer."""

    def __init__(self, n_trees: int) -> None:
        self.n_trees, self.sum, self.resets = n_trees, 0, 0

    def reset(self) -> None:
        self.sum = 0
        self.resets += 1

    def choose(self, features: tuple[int, float]) -> int:
        return (features[0] + self.sum) % self.n_trees

    def observe(self, n_accepted: int) -> None:
        self.sum += 1 + n_accepted


@settings(deadline=None)
@given(st.integers(0, 10_000), ANY_PATHS)
def test_a_tree_is_replayed_as_a_simulation_would(seed: int, paths: set[tuple[int, ...]]) -> None:
    log, tree = random_log(seed), StaticTree.from_paths(closed(paths))
    assert accepted_everywhere(log.ranks, tree).tolist() == [slow_accepted(row, tree) for row in log.ranks.tolist()]
    steps = [n for ranked in log.answers for n in slow_steps(ranked, tree)]
    assert accepted_per_step(log, tree).tolist() == steps
    replayed = replay_tree(log, tree)
    assert (replayed.tokens, replayed.steps) == (len(log), len(steps))
    assert replayed.mean_accepted == pytest.approx(np.mean(steps))
    assert replayed.tokens_per_step == pytest.approx(1 + np.mean(steps))


def test_the_published_tree_on_a_long_log() -> None:
    log = real_like_log(1)
    steps = [n for ranked in log.answers for n in slow_steps(ranked, MC_SIM_7B_63)]
    assert accepted_per_step(log, MC_SIM_7B_63).tolist() == steps
    assert 2.5 < replay_tree(log, MC_SIM_7B_63).tokens_per_step < 4, "the log should be like the published figures"


def test_plain_decoding_needs_a_step_a_token() -> None:
    log = random_log(3)
    assert replay_tree(log, StaticTree()).steps == len(log)


def test_a_capped_rank_is_in_no_tree() -> None:
    log = RankLog((answer("a", [[MAX_RANK + 5], [MAX_RANK], [MAX_RANK - 1], [0]]),))
    widest = StaticTree.from_paths([[rank] for rank in range(MAX_RANK)])
    assert accepted_everywhere(log.ranks, widest).tolist() == [0, 0, 1, 0]


def test_a_missing_rank_ends_the_walk_and_deeper_trees_than_heads_are_no_harm() -> None:
    log = RankLog((answer("a", [[0, 0], [-1, 0], [0, 0], [0, 0], [0, 0]]),))
    tree = StaticTree.from_paths([[0], [0, 0], [0, 0, 0]])
    assert accepted_everywhere(log.ranks, tree).tolist() == [2, 0, 2, 1, 0]


def three_trees() -> list[StaticTree]:
    return [StaticTree(), StaticTree.from_paths([[0], [1], [0, 0]]), MC_SIM_7B_63]


@settings(deadline=None)
@given(st.integers(0, 10_000))
def test_a_policy_is_replayed_as_a_simulation_would(seed: int) -> None:
    log, trees, seconds = random_log(seed), three_trees(), [1.0, 1.5, 4.0]
    features = [(int(row[0]) % 5, 0.5) for row in log.ranks]
    policy = InTurn(3)
    replayed = Bench(log, trees, seconds).run(policy, features)
    assert policy.resets == len(log.answers)
    positions, choices = [], []
    for ranked, (start, _) in zip(log.answers, log.bounds, strict=True):
        t = since = 0
        while t < len(ranked):
            k = (features[start + t][0] + since) % 3
            positions.append(start + t)
            choices.append(k)
            step = 1 + slow_accepted(ranked.ranks[t].tolist(), trees[k])
            t += step
            since += step
    assert replayed.positions == positions and replayed.choices.tolist() == choices
    assert replayed.seconds == pytest.approx(sum(seconds[k] for k in choices))
    assert replayed.counts == tuple(choices.count(k) for k in range(3))
    assert sum(replayed.shares) == pytest.approx(1)
    assert replayed.tokens_per_step == pytest.approx(len(log) / len(choices))
    assert replayed.tokens_per_second == pytest.approx(len(log) / replayed.seconds)


@settings(deadline=None)
@given(st.integers(0, 10_000))
def test_choices_by_position_are_a_policy_without_state(seed: int) -> None:
    log = random_log(seed)
    bench = Bench(log, three_trees(), [1.0, 1.5, 4.0])
    choices = np.random.default_rng(seed).integers(0, 3, len(log))

    class ByPosition:
        def reset(self) -> None: ...

        def choose(self, features: int) -> int:
            return features

        def observe(self, n_accepted: int) -> None: ...

    one, other = bench.run_choices(choices), bench.run(ByPosition(), choices.tolist())
    assert one.positions == other.positions and one.choices.tolist() == other.choices.tolist()
    assert (one.seconds, one.counts) == (other.seconds, other.counts)


def test_a_bench_refuses_what_does_not_fit() -> None:
    log = random_log(1)
    with pytest.raises(UsageError, match="at least one tree"):
        Bench(log, [], [])
    with pytest.raises(UsageError, match="3 trees need as many step costs, not 2"):
        Bench(log, three_trees(), [1.0, 2.0])
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="step cost of tree 1"):
            Bench(log, three_trees(), [1.0, bad, 1.0])
    bench = Bench(log, three_trees(), [1.0, 1.5, 4.0])
    with pytest.raises(UsageError, match="as many features, not 1"):
        bench.run(InTurn(3), [(0, 0.5)])
    with pytest.raises(UsageError, match="the policy picked tree 3 of 3"):
        bench.run(InTurn(99), [(3, 0.5)] * len(log))
    with pytest.raises(UsageError, match="the policy picked tree -1 of 3"):
        bench.run(Negative(), [0.0] * len(log))


class Negative:
    def reset(self) -> None: ...

    def choose(self, features: float) -> int:
        return -1

    def observe(self, n_accepted: int) -> None: ...


def test_step_seconds_follow_the_curve_and_the_heads() -> None:
    curve = CostCurve((1, 4, 64), (0.01, 0.02, 0.05))
    tree = StaticTree.from_paths([[0], [1], [0, 0]])
    assert step_seconds(curve)(tree) == pytest.approx(0.02)
    assert step_seconds(curve, 0.001)(tree) == pytest.approx(0.022)
    assert step_seconds(curve, 0.001, scored_depth=4)(tree) == pytest.approx(0.024)
    assert step_seconds(curve, 0.001, scored_depth=1)(StaticTree()) == pytest.approx(0.011)
