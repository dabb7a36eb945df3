"""Intervals against published values, and against the truth by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from localspec.evaluate.intervals import paired_ratio, wilson


def test_wilson_against_worked_examples() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I: method 3
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(20, 20)[1] == 1.0


@pytest.mark.parametrize("n", [30, 66, 109])
@pytest.mark.parametrize("shares", [(0.5, 0.05, 0.05), (0.3, 0.1, 0.04), (0.7, 0.01, 0.02)])
def test_the_interval_of_the_ratio_holds_the_truth_as_often_as_it_says(n: int, shares: tuple[float, ...]) -> None:
    both, only_a, only_b = shares
    truth = (both + only_a) / (both + only_b)
    drawn = np.random.default_rng(1).multinomial(n, [*shares, 1 - sum(shares)], 2000)
    held = [low <= truth <= high for low, high in (paired_ratio(*map(int, row[:3])) for row in drawn)]
    assert np.mean(held) >= 0.945


def test_it_narrows_with_tasks_and_with_agreement() -> None:
    def width(*counts: int) -> float:
        low, high = paired_ratio(*counts)
        return high - low

    assert 0 < width(90, 0, 0) < width(9, 0, 0)
    assert width(90, 0, 0) < width(80, 5, 5) < width(40, 25, 25)
    low, high = paired_ratio(20, 3, 9)
    assert (1 / high, 1 / low) == pytest.approx(paired_ratio(20, 9, 3))


def test_nothing_right_leaves_an_end_open() -> None:
    assert paired_ratio(0, 0, 0) == (0.0, math.inf)
    low, high = paired_ratio(0, 5, 0)
    assert 0 < low < math.inf and high == math.inf
    assert paired_ratio(0, 0, 5)[0] == 0.0
