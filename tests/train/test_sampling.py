"""Draws for many answers at once."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.train.sampling import MIN_P, TOP_P, draw

IDS = np.array([7, 3, 9, 1], dtype=np.int32)


def _expected(logits: np.ndarray, temperature: float) -> np.ndarray:
    """One row, step by step: top-p, then min-p, then the temperature."""
    p = np.exp(logits - logits.max())
    p /= p.sum()
    kept, total = [], 0.0
    for i, share in enumerate(p):
        if total >= TOP_P:
            break
        total += share
        kept.append(i)
    kept = [i for i in kept if p[i] >= MIN_P * p[0]]
    out = np.zeros(len(p))
    out[kept] = np.exp(logits[kept] / temperature)
    return out / out.sum()


@pytest.mark.parametrize(
    "logits", [[3.0, 2.0, 1.5, -4.0], [5.0, 1.0, 0.5, 0.0], [1.0, 1.0, 1.0, 1.0], [9.0, 5.9, 0, 0]]
)
@pytest.mark.parametrize("temperature", [0.5, 0.8, 1.3])
def test_shares_are_those_of_the_chain(logits, temperature):
    row = np.array(logits, dtype=np.float32)
    n = 20_000
    uniform = (np.arange(n) + 0.5) / n
    tokens = draw(np.tile(IDS, (n, 1)), np.tile(row, (n, 1)), temperature, uniform)
    shares = np.array([(tokens == token).mean() for token in IDS])
    assert np.abs(shares - _expected(row.astype(np.float64), temperature)).max() < 1e-3


def test_temperature_zero_takes_the_best():
    logits = np.array([[3, 2, 1, 0]], dtype=np.float32)
    assert draw(IDS[None], logits, 0.0, np.array([0.99])).tolist() == [7]


def test_rows_are_independent_and_the_largest_number_stays_in_the_row():
    logits = np.array([[3, 2, 1, 0], [0, 0, 0, 0]], dtype=np.float32)
    ids = np.stack([IDS, IDS + 10])
    last = np.nextafter(1.0, 0.0)
    both = draw(ids, logits, 0.8, np.array([last, last]))
    alone = [draw(ids[i : i + 1], logits[i : i + 1], 0.8, np.array([last]))[0] for i in range(2)]
    assert both.tolist() == alone
    assert both[1] == 11
