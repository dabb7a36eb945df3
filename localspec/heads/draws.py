"""Drafting by chance: the children of a node are drawn from its head's law, without replacement.

Which children a node gets is left to chance, how many is not: the shape of a static tree stands before anything is
drawn. That is what a verifier needs to keep the target's law (see `localspec.methods.sequoia`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localspec.heads.spec import FloatArray, IntArray

Law64 = npt.NDArray[np.float64]

#: what possible entries count for at least: times stay finite
_LEAST = 1e-300


@dataclass(frozen=True)
class SampledDraft:
    """A static tree filled by chance, one entry a node in `tokens` (int32).

    `children` are those of each node, in the order in which they were drawn. `laws` has, for every node with children,
    the law that they were drawn from: float64 [n_rows], one entry a row of the vocabulary heads. `row_of` is the row of
    each token of the vocabulary, -1 for a token that cannot be drafted.
    """

    tokens: IntArray
    children: tuple[tuple[int, ...], ...]
    laws: Mapping[int, Law64]
    row_of: IntArray


def softened(logits: FloatArray, temperature: float) -> Law64:
    """softmax(logits / temperature) of each row, in float64."""
    scaled = logits.astype(np.float64) / temperature
    law: Law64 = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    law /= law.sum(axis=-1, keepdims=True)
    return law


def draw(law: Law64, n: int, rng: np.random.Generator) -> IntArray:
    """`n` different indices, drawn one after the other from `law` without those drawn before, in that order.

    By the Gumbel-top-k trick, written as a race: index i arrives after a time E_i / law_i with E_i exponential, and the
    first `n` to arrive are such draws (-log of the times is log law + Gumbel noise; Kool et al. 2019, "Stochastic beams
    and where to find them"). Where the law has fewer possible entries than `n`, the others follow, all equally likely:
    Sequoia's rule for a law that is used up (algorithm 2). `n` is at most the length of the law.
    """
    times = rng.standard_exponential(len(law)) / np.maximum(law, _LEAST)
    times[law == 0.0] = np.inf
    found = np.argpartition(times, n - 1)[:n]
    found = found[np.argsort(times[found])]
    n_possible = np.count_nonzero(law[found])
    if n_possible < n:
        impossible = np.flatnonzero(law == 0.0)
        found = np.concatenate([found[:n_possible], rng.choice(impossible, n - n_possible, replace=False)])
    return found.astype(np.int32)
