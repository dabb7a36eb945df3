"""Confidence intervals for scores, and for the ratio of two scores on the same tasks."""

from __future__ import annotations

import math
from statistics import NormalDist

LEVEL = 0.95


def wilson(right: int, n: int, level: float = LEVEL, z: float | None = None) -> tuple[float, float]:
    """Wilson's score interval for a proportion of `right` in `n` (1927). `z` takes the place of the level's own."""
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + level) / 2) if z is None else z
    p, z2 = right / n, z * z
    middle = p + z2 / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    # exact at the ends, where rounding would leave a little
    low = 0.0 if right == 0 else (middle - half) / (1 + z2 / n)
    high = 1.0 if right == n else (middle + half) / (1 + z2 / n)
    return low, high


def paired_ratio(both: int, only_a: int, only_b: int, level: float = LEVEL) -> tuple[float, float]:
    """An interval for score A / score B from tasks that both, A alone, and B alone got right.

    Bonett and Price, "Confidence intervals for a ratio of binomial proportions based on paired data", Statistics in
    Medicine 25 (2006): two Wilson intervals, narrowed for the correlation of the pairs. Unlike a bootstrap it keeps a
    width where no pair differs. The low end is 0 when A got nothing right, the high end infinite when B did not.
    """
    n = both + only_a + only_b
    if n == 0:
        return 0.0, math.inf
    a, b = both + only_a, both + only_b
    pa, pb = (a + 1) / (n + 2), (b + 1) / (n + 2)
    joint = math.sqrt((only_a + only_b + 2) / ((a + 1) * (b + 1)))
    apart = math.sqrt((1 - pa) / (a + 1)) + math.sqrt((1 - pb) / (b + 1))
    z = joint / apart * NormalDist().inv_cdf((1 + level) / 2)
    low_a, high_a = wilson(a, n, z=z)
    low_b, high_b = wilson(b, n, z=z)
    return low_a / high_b, high_a / low_b if low_b else math.inf
