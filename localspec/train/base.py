"""Matrices of the base model, read from its GGUF: input embeddings and output rows of chosen tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from localspec.engine.base import FloatArray, IntArray
from localspec.errors import ModelError
from localspec.heads.embeddings import EMBEDDING, MatrixRows, read_tensors
from localspec.train.shards import Shard

OUTPUT = "output.weight"
#: positions that the output matrix is tried on
N_TRIED = 256
#: how far its logits may be from the engine's, as a share of their spread: weights and states are rounded there
TOLERANCE = 0.1


class BaseMatrices:
    """The matrices of the model in `path`; a model without an output matrix uses its embeddings.

    Raises `ModelError` for a file without them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        tensors = read_tensors(path)
        if "output.bias" in tensors:
            raise ModelError(f"{path.name} adds a bias to its logits", "heads cannot be trained for this model")
        self._embedding = MatrixRows(path, tensors[EMBEDDING])
        self._output = MatrixRows(path, tensors[OUTPUT]) if OUTPUT in tensors else self._embedding

    def embeddings(self, tokens: IntArray) -> FloatArray:
        """Input embeddings, float32 [n, n_embd]."""
        return self._embedding(tokens)

    def output_rows(self, tokens: IntArray) -> FloatArray:
        """Rows of the output matrix, float32 [n, n_embd]: logits are their products with the hidden state."""
        return self._output(tokens)

    def check_logits(self, shard: Shard) -> None:
        """Refuse a model whose logits are more than these products, such as scaled or capped ones.

        Raises `ModelError`.
        """
        at = np.linspace(0, len(shard.tokens) - 1, min(N_TRIED, len(shard.tokens))).astype(np.int64)
        rows = self.output_rows(shard.best_ids[at])
        ours = (shard.hidden[at].astype(np.float32) * rows).sum(axis=1)
        real = shard.best_logits[at]
        spread = max(float(np.abs(real).mean()), 1e-6)
        if float(np.abs(ours - real).mean()) > TOLERANCE * spread:
            raise ModelError(
                f"the logits of {self._path.name} are not its hidden states times its output matrix",
                "heads cannot be trained for models that scale or cap their logits",
            )
