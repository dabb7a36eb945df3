"""Rank logs for tests: random ones for edge cases, and real-like ones whose ranks follow the score."""

from __future__ import annotations

import numpy as np

from localspec.entmtp.ranks import MISSING, RankedAnswer, RankLog
from localspec.static_tree import MAX_RANK


def masked(ranks: np.ndarray) -> np.ndarray:
    """The ranks without those behind the end of the answer."""
    n, n_heads = ranks.shape
    ranks = ranks.copy()
    ranks[np.add.outer(np.arange(n), np.arange(n_heads)) >= n - 1] = MISSING
    return ranks


def answer(name: str, ranks: list[list[int]] | np.ndarray, task: str = "chat") -> RankedAnswer:
    """An answer with these ranks (cut at its end) and unremarkable features."""
    array = masked(np.array(ranks, dtype=np.int64))
    return RankedAnswer(name, task, array, np.full(len(array), 0.5), np.full(array.shape, 0.5))


def random_log(seed: int, lengths: tuple[int, ...] = (1, 2, 30, 17), n_heads: int = 3, top: int = 3) -> RankLog:
    """Small uniform ranks, some of them missing or capped: every kind of walk happens, and ties are common."""
    rng = np.random.default_rng(seed)
    answers = []
    for i, n in enumerate(lengths):
        ranks = rng.integers(0, top, (n, n_heads))
        ranks[rng.random(ranks.shape) < 0.1] = MISSING
        ranks[rng.random(ranks.shape) < 0.05] = MAX_RANK + 3
        q = rng.random((n, n_heads))
        answers.append(RankedAnswer(f"a{i}", ("chat", "code")[i % 2], masked(ranks), rng.random(n), q))
    return RankLog(tuple(answers))


def real_like_log(seed: int, n_answers: int = 20, length: int = 100, n_heads: int = 4) -> RankLog:
    """Ease comes and goes along an answer (AR(1)); a head is right at its top with a probability near its own q, and
    otherwise the rank has a long tail. So scores tell of what is accepted, as do the steps before."""
    rng = np.random.default_rng(seed)
    answers = []
    for i in range(n_answers):
        ease = np.empty(length)
        level = rng.normal()
        for t in range(length):
            level = 0.8 * level + 0.6 * rng.normal()
            ease[t] = level
        p_base = 1 / (1 + np.exp(-(1.8 + 1.2 * ease)))
        depth = np.arange(n_heads)
        logit = 0.6 - 0.35 * depth + 1.3 * ease[:, None] + 0.4 * rng.normal(size=(length, n_heads))
        q = 1 / (1 + np.exp(-logit))
        tail = np.minimum(rng.pareto(0.7, (length, n_heads)) + 1, 1000).astype(np.int64)
        ranks = np.where(rng.random(q.shape) < q, 0, tail)
        ranks[rng.random(q.shape) < 0.01] = MISSING
        answers.append(RankedAnswer(f"{seed}-{i}", "chat", masked(ranks), p_base, q))
    return RankLog(tuple(answers), {"model": "synthetic"})
