"""The tokens for writing between two texts ("fill in the middle"), as a model's vocabulary has them."""

from __future__ import annotations

from typing import NamedTuple

from llama_cpp import llama_cpp as L

from localspec.engine.model import Model


class FimIds(NamedTuple):
    """Token ids; None for those that a model lacks."""

    prefix: int | None
    suffix: int | None
    middle: int | None
    repo: int | None
    file: int | None


def fim_ids(model: Model) -> FimIds:
    """What the library found in the model's metadata, or by the names that such tokens usually have."""
    reads = (
        L.llama_vocab_fim_pre,
        L.llama_vocab_fim_suf,
        L.llama_vocab_fim_mid,
        L.llama_vocab_fim_rep,
        L.llama_vocab_fim_sep,
    )
    ids = (int(read(model.vocab)) for read in reads)
    return FimIds(*(token if token >= 0 else None for token in ids))
