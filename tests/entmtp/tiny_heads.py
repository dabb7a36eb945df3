"""Heads for a tiny model that know which token followed which in texts that it wrote: some drafts come true."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from localspec.engine.model import Model
from localspec.heads.base import base_facts
from localspec.heads.file import write_heads
from localspec.heads.spec import HeadSpec, tensor_shapes
from localspec.heads.tensors import Heads
from localspec.train.base import BaseMatrices

N_HEADS = 3


def bigram_heads(model: Model, texts: Sequence[Sequence[int]]) -> Heads:
    """Hydra heads of one block: y is the embedding of the last token, and a row of the output sums those before it."""
    n = model.n_embd
    spec = HeadSpec(
        arch="hydra-mlp",
        n_heads=N_HEADS,
        n_layers=1,
        n_embd=n,
        n_vocab=model.n_vocab,
        grounded=True,
        shared_output=True,
        base_name="tiny",
        base_fingerprint=base_facts(model).fingerprint,
    )
    rng = np.random.default_rng(1)
    tensors = {name: np.zeros(shape, dtype=np.float32) for name, shape in tensor_shapes(spec).items()}
    for head in range(N_HEADS):
        tensors[f"head.{head}.blk.0.r.weight"][:, -n:] = np.eye(n)
    embedding = BaseMatrices(model.path).embeddings(np.arange(model.n_vocab, dtype=np.int32))
    output = tensors["output.weight"]
    output += 0.01 * rng.standard_normal(output.shape).astype(np.float32)
    for text in texts:
        for last, token in pairwise(text):
            output[token] += embedding[last] / np.square(embedding[last]).sum()
    return Heads(spec, tensors, None)


def write_bigram_heads(path: Path, model: Model, texts: Sequence[Sequence[int]]) -> Path:
    write_heads(path, bigram_heads(model, texts), "f32")
    return path
