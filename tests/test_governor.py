"""The governor is never slower than plain decoding by more than a few per cent, and uses what pays.

Time is simulated: a plain step takes `PLAIN` seconds, and a drafted token comes true with a known chance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from localspec.calibrate.curve import CostCurve
from localspec.calibrate.online import OnlineCost
from localspec.errors import UsageError
from localspec.methods.base import Walk
from localspec.methods.calibration import Calibration
from localspec.methods.fixed import Fixed
from localspec.methods.governor import OFF_NOTE, ON_NOTE, PROBE_NODES, Governor
from localspec.tree import Tree, TreeBuilder

PLAIN = 0.02
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)

Cost = Callable[[int], float]


def flat(n: int) -> float:
    return 1 + 0.01 * (n - 1)


def gentle(n: int) -> float:
    return 1 + 0.12 * (n - 1)


def linear(n: int) -> float:
    return float(n)


def steep(n: int) -> float:
    """A mixture of experts on a CPU: cost(4) is more than three plain steps."""
    return 1 + 0.75 * (n - 1)


def curve_of(cost: Cost) -> CostCurve:
    return CostCurve(SIZES, tuple(PLAIN * cost(n) for n in SIZES))


@dataclass
class Workload:
    """Text where each drafted token comes true with chance `true(position)` and the drafter claims `claim`.

    `cost` is in plain steps, `draft` what a proposal costs; `noise` is the relative spread of step times. Hiccups are
    single steps; with chance `burst` a row of slow steps begins, four of them on average.
    """

    cost: Cost
    true: Callable[[int], float]
    claim: Callable[[int], float] | None = None
    draft: float = 0.002
    noise: float = 0.05
    drift: Callable[[int], float] = lambda position: 1.0
    hiccup: float = 0.0
    burst: float = 0.0
    sizes: list[int] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)
    proposals: int = 0

    def run(self, governor: Governor, n_tokens: int, seed: int = 1) -> float:
        """Generate, and return the time of plain decoding divided by the time taken (1: as fast)."""
        rng = random.Random(seed)
        governor.start()
        position, time, plain_time, slow = 0, 0.0, 0.0, False
        while position < n_tokens:
            unit = PLAIN * self.drift(position)
            budget = governor.budget()
            proposing, tree = 0.0, Tree.root(0)
            if budget > 1:
                self.proposals += 1
                proposing = self.draft * unit
                claim = (self.claim or self.true)(position)
                builder = TreeBuilder(0)
                if claim:
                    builder.add_path(0, range(1, budget), [claim**d for d in range(1, budget)])
                tree = governor.select(builder.build())
            n = len(tree)
            assert n <= max(1, budget)
            right = 0  # how far the text really follows the draft, whether verified or not
            while right < budget - 1 and rng.random() < self.true(position):
                right += 1
            tokens = [d if d <= right else -1 for d in range(1, min(right + 1, n) + 1)]
            seconds = unit * self.cost(n)
            measured = seconds * max(0.5, rng.gauss(1, self.noise)) * (8 if rng.random() < self.hiccup else 1)
            if self.burst:
                slow = rng.random() < (0.75 if slow else self.burst)
                measured *= rng.uniform(1.5, 3) if slow else 1
            walk = Walk(tuple(range(1, len(tokens))), tuple(tokens))
            note = governor.observe(tree, walk, measured, proposing)
            if note:
                self.notes.append((position, note))
            self.sizes.append(n)
            position += len(tokens)
            time += seconds + proposing
            plain_time += unit * len(tokens)
        return plain_time / time


def always(p: float) -> Callable[[int], float]:
    return lambda position: p


@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize("claim", [0.0, 0.1, 0.5, 0.95])
@pytest.mark.parametrize("cost", [linear, steep])
@pytest.mark.parametrize("draft", [0.002, 0.2])
def test_text_that_cannot_be_predicted_loses_less_than_three_per_cent(
    calibrated: bool, claim: float, cost: Cost, draft: float
) -> None:
    work = Workload(cost, always(0.0), always(claim), draft=draft)
    governor = Governor(curve_of(cost) if calibrated else None, 64)
    assert work.run(governor, 1000) > 0.97


def two_pay(n: int) -> float:
    """One draft is worth 1.2x with every other one accepted, a second one costs more than it brings."""
    return 1.0 if n == 1 else 1.19 + 0.6 * (n - 2)


@pytest.mark.parametrize(("noise", "burst", "most"), [(0.05, 0.0, 1), (0.1, 0.0, 4), (0.05, 0.01, 4)])
def test_a_noisy_machine_does_not_turn_off_what_pays(noise: float, burst: float, most: int) -> None:
    went_off = 0
    for seed in range(40):
        work = Workload(two_pay, always(0.5), draft=0.06, noise=noise, burst=burst)
        work.run(Governor(curve_of(two_pay), 64), 128, seed)
        went_off += bool(work.notes)
    assert went_off <= most


@pytest.mark.parametrize("noise", [0.05, 0.1])
def test_where_it_is_close_plain_steps_are_measured_often(noise: float) -> None:
    """A plain step that was measured as too slow makes drafts look good that are not."""
    ratios = []
    for seed in range(40):
        work = Workload(two_pay, always(0.1), always(0.5), draft=0.06, noise=noise)
        ratios.append(work.run(Governor(curve_of(two_pay), 64), 128, seed))
    assert sorted(ratios)[4] > 0.95 and sum(ratios) > 0.965 * len(ratios)


@pytest.mark.parametrize("seed", range(5))
def test_no_more_is_lost_than_was_won(seed: int) -> None:
    """The text stops following the drafts, whose drafter does not notice."""
    work = Workload(two_pay, lambda position: 0.5 if position < 100 else 0.0, always(0.5), draft=0.06)
    assert work.run(Governor(curve_of(two_pay), 64), 200, seed) > 0.97
    assert work.notes


@pytest.mark.parametrize("claim", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("cost", [flat, gentle])
def test_a_drafter_that_promises_too_much_is_found_out(claim: float, cost: Cost) -> None:
    work = Workload(cost, always(0.0), always(claim))
    assert work.run(Governor(curve_of(cost), 64), 1000) >= 0.97


@pytest.mark.parametrize("seed", range(5))
def test_a_curve_that_is_wrong_about_this_context_is_found_out(seed: int) -> None:
    """Calibrated as cheap, in truth eight nodes cost eight steps, and the drafter is rather good."""
    work = Workload(linear, always(0.8))
    assert work.run(Governor(curve_of(gentle), 64), 1000, seed) >= 0.95


def test_copied_text_with_a_flat_curve_uses_big_trees() -> None:
    work = Workload(flat, always(0.98))
    assert work.run(Governor(curve_of(flat), 64), 2000) > 8
    sizes = sorted(work.sizes)
    assert sizes[len(sizes) // 2] >= 24
    assert not work.notes


def test_cheap_trees_are_discovered_without_a_curve() -> None:
    work = Workload(flat, always(0.95))
    assert work.run(Governor(None, 64), 2000) > 4


@pytest.mark.parametrize(("true", "cost", "least"), [(0.6, gentle, 1.35), (0.8, gentle, 1.9), (0.5, flat, 1.7)])
def test_moderate_acceptance_is_turned_into_speed(true: float, cost: Cost, least: float) -> None:
    best = max((1 - true**n) / (1 - true) / cost(n) for n in range(1, 65))
    speed = Workload(cost, always(true)).run(Governor(curve_of(cost), 64), 3000)
    assert speed > least
    assert speed > 0.9 * best


def test_steep_costs_with_modest_acceptance_choose_off() -> None:
    assert steep(4) > 3
    work = Workload(steep, always(0.4))
    assert work.run(Governor(curve_of(steep), 64), 500) >= 0.97
    assert [note for _, note in work.notes] == [OFF_NOTE]
    assert sum(n > 1 for n in work.sizes) < 8


def test_where_no_tree_can_pay_nothing_is_drafted() -> None:
    work = Workload(linear, always(0.9))
    work.run(Governor(curve_of(linear), 64), 40)
    assert work.proposals <= 1
    assert [note for _, note in work.notes] == [OFF_NOTE]


def test_a_dear_drafter_is_switched_off_though_it_predicts_a_little() -> None:
    work = Workload(gentle, always(0.15), draft=0.4)
    assert work.run(Governor(curve_of(gentle), 64), 1000) >= 0.96
    assert work.proposals < 60


def test_speculation_comes_back_when_the_text_becomes_predictable() -> None:
    work = Workload(gentle, lambda position: 0.0 if position < 400 else 0.9, always(0.7))
    work.run(Governor(curve_of(gentle), 64), 1500)
    assert [note for _, note in work.notes][:2] == [OFF_NOTE, ON_NOTE]
    off, on = (position for position, _ in work.notes[:2])
    assert off < 400 <= on < 700
    assert sum(n > 1 for n in work.sizes[-50:]) > 40


def test_probes_are_tiny_and_wait_for_a_draft() -> None:
    work = Workload(steep, always(0.0), lambda position: 0.3 if position < 100 else 0.0)
    work.run(Governor(curve_of(steep), 64), 800)
    assert work.notes[0][1] == OFF_NOTE
    assert max(work.sizes) <= PROBE_NODES
    assert set(work.sizes[150:]) == {1}


def test_a_new_generation_starts_switched_on() -> None:
    governor = Governor(curve_of(gentle), 64)
    Workload(gentle, always(0.0), always(0.9)).run(governor, 300)
    work = Workload(gentle, always(0.9))
    assert work.run(governor, 500) > 1.3
    assert sum(n > 1 for n in work.sizes[:20]) > 5


def test_hiccups_of_the_machine_do_not_switch_speculation_off() -> None:
    work = Workload(gentle, always(0.85), hiccup=0.03)
    assert work.run(Governor(curve_of(gentle), 64), 3000) > 1.8


def test_a_context_that_makes_steps_dearer_is_followed() -> None:
    """Calibrated at an empty context; here every step takes 3 to 6 times as long. Speculation still pays."""
    work = Workload(gentle, always(0.85), drift=lambda position: 3 + position / 1000)
    assert work.run(Governor(curve_of(gentle), 64), 3000) > 1.8


def test_the_most_likely_nodes_are_kept_with_their_parents() -> None:
    governor = Governor(curve_of(lambda n: 1 + 0.2 * (n - 1)), 64)
    governor.start()
    governor.observe(Tree.root(0), Walk((), (1,)), PLAIN)
    assert governor.budget() > 6
    builder = TreeBuilder(0)
    sure = builder.add(0, 1, 0.9)
    builder.add(0, 2, 0.05)
    builder.add(builder.add(sure, 3, 0.8), 4, 0.7)
    builder.add(sure, 5, 0.02)
    kept = governor.select(builder.build())
    assert kept.tokens == (0, 1, 3, 4)
    assert kept.topology.parents == (-1, 0, 1, 2)


def test_equal_estimates_never_part_a_node_from_its_parent() -> None:
    governor = Governor(curve_of(flat), 64)
    for p in (1.0, 0.5):
        governor.start()
        governor.budget()
        builder = TreeBuilder(0)
        for branch in range(6):
            builder.add_path(0, range(10 * branch + 1, 10 * branch + 11), [p] * 10)
        kept = governor.select(builder.build())
        assert len(kept) > 1
        assert kept.topology.parents[0] == -1


def calibrate(true: float, claim: float, verified: int) -> list[float]:
    """Corrected estimates of a chain of 3, averaged over many steps that verified its first `verified` nodes."""
    rng = random.Random(1)
    trust = Calibration()
    builder = TreeBuilder(0)
    builder.add_path(0, [1, 2, 3], [claim, claim**2, claim**3])
    tree = builder.build()
    corrected = []
    for _ in range(1000):
        right = 0
        while right < 3 and rng.random() < true:
            right += 1
        tokens = tuple(d if d <= right else -1 for d in range(1, min(right + 1, verified) + 1))
        trust.observe(tree, list(range(verified)), Walk((), tokens))
        corrected.append(trust.correct(tree))
    return [sum(values) / len(values) for values in zip(*corrected, strict=True)]


@pytest.mark.parametrize("claim", [0.95, 0.7, 0.5])
def test_estimates_are_corrected_to_what_comes_true(claim: float) -> None:
    assert calibrate(0.5, claim, 4) == pytest.approx([1, 0.5, 0.25, 0.125], abs=0.08)


def test_estimates_that_fall_too_fast_with_depth_are_raised_there() -> None:
    corrected = calibrate(0.85, 0.75, 4)
    assert corrected == pytest.approx([1, 0.85, 0.72, 0.61], abs=0.06)
    assert corrected == sorted(corrected, reverse=True)


@pytest.mark.parametrize("verified", [1, 2])
def test_what_was_not_verified_is_not_taken_for_wrong(verified: int) -> None:
    corrected = calibrate(0.8, 0.8, verified)
    assert corrected == pytest.approx([1, 0.8, 0.64, 0.512], abs=0.1)


def test_fixed_verifies_everything_up_to_its_size() -> None:
    fixed = Fixed(3, "why")
    fixed.start()
    builder = TreeBuilder(0)
    builder.add_path(0, [1, 2, 3, 4], [0.1] * 4)
    assert fixed.select(builder.build()).tokens == (0, 1, 2)
    walk = Walk((), (1,))
    assert [fixed.observe(Tree.root(0), walk, 0.1) for _ in range(3)] == ["why", None, None]


def test_a_curve_interpolates_never_falls_and_extrapolates() -> None:
    curve = CostCurve((1, 2, 4, 8), (1.0, 2.0, 1.8, 4.0))
    costs = [curve.cost(n) for n in range(1, 40)]
    assert costs == sorted(costs)
    assert curve.cost(2) == curve.cost(4) == pytest.approx(1.9)
    assert curve.cost(6) == pytest.approx((1.9 + 4.0) / 2)
    assert curve.cost(12) == pytest.approx(4.0 + 4 * (4.0 - 1.9) / 4)
    assert curve.ratio(1) == 1
    # A plateau at the end says nothing about larger sizes.
    assert CostCurve((1, 2, 4), (1.0, 3.0, 3.0)).cost(8) > 3.5


def test_a_curve_survives_storage() -> None:
    curve = CostCurve((1, 4), (0.01, 0.02), model="m", device="cpu", threads="2", build="b", date="2025-01-01")
    assert CostCurve.from_dict(curve.to_dict()) == curve


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"n": [1, 2], "seconds": [1.0]},
        {"n": [1], "seconds": [1.0]},
        {"n": [2, 4], "seconds": [1.0, 2.0]},
        {"n": [1, 4, 3], "seconds": [1.0, 2.0, 3.0]},
        {"n": [1, 2], "seconds": [1.0, 0.0]},
        {"n": [1, 2], "seconds": [1.0, math.nan]},
        {"n": [1, "2"], "seconds": [1.0, 2.0]},
        {"n": [1, True], "seconds": [1.0, 2.0]},
        {"n": [1, 2], "seconds": "fast"},
        {"n": [1, 2], "seconds": [1.0, 2.0], "model": 3},
    ],
)
def test_a_damaged_curve_file_is_refused(data: object) -> None:
    with pytest.raises(UsageError):
        CostCurve.from_dict(data)


def known_cost() -> OnlineCost:
    """Of trees as calibrated, in a generation that measured plain steps."""
    cost = OnlineCost(curve_of(gentle), 64)
    for _ in range(5):
        cost.observe(1, PLAIN)
    return cost


def test_an_outlier_does_not_move_a_cost_and_a_change_does() -> None:
    cost = known_cost()
    before = float(cost.relative[7])
    cost.observe(8, 100 * PLAIN)
    assert cost.relative[7] == before
    for _ in range(100):
        cost.observe(8, 3 * PLAIN * gentle(8))
    assert cost.relative[7] == pytest.approx(3 * gentle(8), rel=0.1)
    assert cost.relative[0] == 1
    assert cost.plain_seconds == pytest.approx(PLAIN)


def test_a_plain_step_tells_that_the_machine_is_slow() -> None:
    cost = known_cost()
    assert cost.observe(2, 2 * PLAIN * gentle(2)) == pytest.approx(gentle(2))
    assert not cost.doubtful
    cost.observe(2, 2 * PLAIN * gentle(2))
    assert cost.doubtful
    cost.observe(1, 2 * PLAIN)
    assert not cost.doubtful
    assert cost.observe(2, PLAIN * gentle(2)) == pytest.approx(gentle(2))
    assert cost.relative[1] == pytest.approx(gentle(2))


def test_a_plain_step_tells_that_trees_became_dearer_and_then_all_is_counted() -> None:
    cost = known_cost()
    counted = [cost.observe(8, 2 * PLAIN * gentle(8)) for _ in range(2)]
    counted += [cost.observe(1, PLAIN), cost.observe(8, 2 * PLAIN * gentle(8))]
    assert sum(counted) == pytest.approx(3 * 2 * gentle(8) + 1)
    assert cost.relative[7] > 1.1 * gentle(8)


def test_a_step_that_costs_very_much_is_looked_into_at_once() -> None:
    cost = known_cost()
    cost.observe(8, 2 * PLAIN * gentle(8))
    assert cost.doubtful


def test_a_plain_step_measured_in_a_slow_moment_does_not_make_trees_look_cheap() -> None:
    """After a long prompt the first steps are slow: then five nodes take less than "one", which cannot be."""
    cost = OnlineCost(curve_of(gentle), 64)
    for _ in range(3):
        cost.observe(1, 2.5 * PLAIN)
    for _ in range(10):
        cost.observe(5, PLAIN * gentle(5))
    assert cost.plain_seconds == pytest.approx(PLAIN, rel=0.05)
    assert cost.relative[4] == pytest.approx(gentle(5), rel=0.05)
    assert all(a <= b for a, b in pairwise(cost.relative))
