"""Which base model heads belong to: an identity that all quantisations of a model share."""

from __future__ import annotations

import hashlib
from pathlib import Path

from localspec.engine.model import Model
from localspec.gguf_check import check_gguf
from localspec.heads.spec import BaseFacts


def base_facts(model: Model) -> BaseFacts:
    """What heads need to know of a loaded model."""
    return BaseFacts(
        model.gguf_name or model.path.stem, model.n_embd, model.n_vocab, base_fingerprint(model.path, model.n_vocab)
    )


def base_fingerprint(path: Path, n_vocab: int) -> str:
    """16 hex digits of architecture, vocabulary size and norms.

    Norms stay float32 in every quantisation, and each training has its own: so heads that were trained beside one
    file of a model fit its other files. Empty for a model without any.

    Raises what `check_gguf` raises.
    """
    info = check_gguf(path)
    norms = {
        name: tensor.at
        for name, tensor in info.tensors.items()
        if name.endswith("norm.weight") and tensor.kind_name == "F32" and len(tensor.shape) == 1
    }
    if not norms:
        return ""
    digest = hashlib.sha256(f"{info.arch} {n_vocab}".encode())
    with path.open("rb") as file:
        for name, at in sorted(norms.items()):
            file.seek(at.start)
            digest.update(name.encode() + b"\0" + file.read(len(at)))
    return digest.hexdigest()[:16]
