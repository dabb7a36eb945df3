"""Rows of matrices in a model's GGUF, dequantised when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

from localspec.errors import ModelError
from localspec.gguf_check import check_gguf
from localspec.gguf_tensors import StoredTensor
from localspec.heads.spec import FloatArray, IntArray

EMBEDDING = "token_embd.weight"


def read_tensors(path: Path) -> Mapping[str, StoredTensor]:
    """The tensors of a model by name, from its header. Raises `ModelError` for a file without embeddings."""
    # not by gguf's reader: it makes an object of every token, which takes seconds
    tensors = check_gguf(path).tensors
    if EMBEDDING not in tensors:
        raise ModelError(f"{path.name} has no tensor {EMBEDDING}", "heads cannot draft for this model")
    return tensors


class MatrixRows:
    """The rows of a matrix in the file `path`: called with numbers of rows [n] it gives float32 [n, row length].

    Raises `ModelError` for a type that cannot be dequantised here.
    """

    def __init__(self, path: Path, tensor: StoredTensor) -> None:
        self._kind = gguf.GGMLQuantizationType(tensor.kind)
        n_rows = int(np.prod(tensor.shape[1:], dtype=np.int64))
        shape = (n_rows, len(tensor.at) // n_rows)
        self._bytes = np.memmap(path, dtype=np.uint8, mode="r", offset=tensor.at.start, shape=shape)
        try:
            self(np.zeros(1, dtype=np.int32))
        except NotImplementedError:
            raise ModelError(
                f"{path.name} has embeddings of the type {tensor.kind_name}, which cannot be read here",
                "use heads with another quantisation of the model",
            ) from None

    def __call__(self, rows: IntArray) -> FloatArray:
        values: FloatArray = np.asarray(gguf.quants.dequantize(self._bytes[rows], self._kind), dtype=np.float32)
        return values


class InputEmbeddings(MatrixRows):
    """The input embeddings of the model in `path`. Raises `ModelError` for a file without usable ones."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, read_tensors(path)[EMBEDDING])
