"""Draws for many answers at once, from the few best candidates of a row.

They follow the default sampler chain of `chat` (top-k, top-p 0.95, min-p 0.05, then the temperature), with as many
candidates as the engine reduces rows to: so drawing costs no pass over the vocabulary.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from localspec.engine.base import FloatArray, IntArray

TOP_P, MIN_P = 0.95, 0.05


def draw(ids: IntArray, logits: FloatArray, temperature: float, uniform: npt.NDArray[np.float64]) -> IntArray:
    """One token a row, int32 [n]: candidates `ids` with `logits`, both [n, k], the best first; `uniform` [n] are
    random numbers in [0, 1). Temperature 0 takes the best.
    """
    if temperature <= 0:
        return ids[:, 0].copy()
    p = np.exp(logits.astype(np.float64) - logits[:, :1])
    kept = p >= MIN_P
    p /= p.sum(axis=1, keepdims=True)
    # the smallest number of candidates that reach TOP_P: those before which it was not reached
    kept &= np.cumsum(p, axis=1) - p < TOP_P
    weights = np.where(kept, np.exp((logits.astype(np.float64) - logits[:, :1]) / temperature), 0.0)
    ends = np.cumsum(weights, axis=1)
    chosen = (ends <= uniform[:, None] * ends[:, -1:]).sum(axis=1)
    last = kept.sum(axis=1) - 1  # rounding must not lead beyond the candidates that are left
    return np.take_along_axis(ids, np.minimum(chosen, last)[:, None], axis=1)[:, 0].astype(np.int32)
