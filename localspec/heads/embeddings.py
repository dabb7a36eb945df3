"""Rows of matrices in a model's GGUF, dequantised when they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGUFReader

from localspec.errors import ModelError
from localspec.heads.spec import FloatArray, IntArray

EMBEDDING = "token_embd.weight"


def read_tensors(path: Path) -> dict[str, Any]:
    """The tensors of a model by name, mapped and not read. Raises `ModelError` for a file without embeddings."""
    tensors = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    if EMBEDDING not in tensors:
        raise ModelError(f"{path.name} has no tensor {EMBEDDING}", "heads cannot draft for this model")
    return tensors


def rows_of(tensor: Any, tokens: IntArray) -> FloatArray:
    """Rows of a matrix, float32 [n, n_embd]."""
    rows: FloatArray = np.asarray(gguf.quants.dequantize(tensor.data[tokens], tensor.tensor_type), dtype=np.float32)
    return rows


class InputEmbeddings:
    """The input embeddings of the model in `path`: called with tokens [n] it gives float32 [n, n_embd].

    Raises `ModelError` for a file without them.
    """

    def __init__(self, path: Path) -> None:
        self._table = read_tensors(path)[EMBEDDING]

    def __call__(self, tokens: IntArray) -> FloatArray:
        return rows_of(self._table, tokens)
