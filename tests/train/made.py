"""Made-up training data and models for the tests of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from localspec.train.shards import Shard

H, V = 24, 40
N_HEADS = 3


class Matrices:
    """What `BaseMatrices` gives, with random numbers."""

    def __init__(self, seed: int = 3) -> None:
        rng = np.random.default_rng(seed)
        self.embedding = rng.standard_normal((V, H)).astype(np.float32)
        self.output = rng.standard_normal((V, H)).astype(np.float32)

    def embeddings(self, tokens: Any) -> np.ndarray:
        return self.embedding[tokens]

    def output_rows(self, tokens: Any) -> np.ndarray:
        return self.output[tokens]


def shard(lengths: list[int], prompts: list[int] | None = None, seed: int = 1) -> Shard:
    """Random answers."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    return Shard(
        hidden=rng.standard_normal((n, H)).astype(np.float16),
        tokens=rng.integers(0, V, n).astype(np.int32),
        best_ids=rng.integers(0, V, n).astype(np.int32),
        best_logits=rng.standard_normal(n).astype(np.float32),
        lengths=np.array(lengths, dtype=np.int32),
        prompts=np.array(prompts or [0] * len(lengths), dtype=np.int32),
    )


def counting_shard(matrices: Matrices, n_answers: int, length: int, seed: int) -> Shard:
    """Answers in which each token follows from the one before, and hidden states that know the next token."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, V, n_answers)
    tokens = (starts[:, None] + 7 * np.arange(length)).astype(np.int32) % V
    # the state that a token was drawn from points at its row of the output matrix
    hidden = matrices.output[tokens] + 0.1 * rng.standard_normal((n_answers, length, H))
    return Shard(
        hidden=hidden.reshape(-1, H).astype(np.float16),
        tokens=tokens.reshape(-1),
        best_ids=tokens.reshape(-1),
        best_logits=np.ones(n_answers * length, dtype=np.float32),
        lengths=np.full(n_answers, length, dtype=np.int32),
        prompts=np.zeros(n_answers, dtype=np.int32),
    )


def write_prompts(path: Path, n: int = 60) -> Path:
    path.write_text("".join(f'{{"prompt": "say {i}"}}\n' for i in range(n)), encoding="utf-8")
    return path
