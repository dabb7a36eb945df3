"""Draft heads beside a loaded model."""

from __future__ import annotations

from pathlib import Path

from localspec.engine.base import TreeContext
from localspec.engine.model import Model
from localspec.heads.file import read_heads
from localspec.heads.reference import ReferenceHeads
from localspec.train.base import BaseMatrices


def open_heads(model: Model, ctx: TreeContext, path: Path) -> ReferenceHeads:
    """Heads that draft for `model`. Raises `ModelError` for a file that cannot be used."""
    return ReferenceHeads(read_heads(path), BaseMatrices(model.path).embeddings)
