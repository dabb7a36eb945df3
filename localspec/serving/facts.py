"""What servers tell of a loaded model."""

from __future__ import annotations

from typing import Any

from localspec import hub
from localspec.engine.model import Model
from localspec.gguf_check import file_type_name
from localspec.opening import describe
from localspec.placement import device_name, layers_on_gpu
from localspec.serving.api import Facts
from localspec.session import Session


def facts_of(session: Session) -> Facts:
    """The facts of a session whose context has a sequence for each slot."""
    info = describe(session)
    return Facts(
        **_facts(session.model),
        n_ctx=info.n_ctx,
        n_slots=session.ctx.n_seq_max,
        mode=info.mode,
        device=info.device,
        method=info.method,
        methods=info.methods,
    )


def facts_of_encoder(model: Model, n_ctx: int, n_gpu_layers: int = -1) -> Facts:
    """The facts of a model that embeds texts of up to `n_ctx` tokens and does nothing else; its mode is "encoder"."""
    device = device_name(layers_on_gpu(model, n_gpu_layers))
    return Facts(
        **_facts(model), n_ctx=n_ctx, n_slots=1, mode="encoder", device=device, method="plain", methods=("plain",)
    )


def _facts(model: Model) -> dict[str, Any]:
    """The facts that a model file decides."""
    file_type = model.metadata.get("general.file_type", "")
    return {
        "name": hub.name_of(model.path),
        "path": model.path,
        "description": model.description,
        "size": model.size_bytes,
        "n_params": model.n_params,
        "n_vocab": model.n_vocab,
        "n_embd": model.n_embd,
        "n_ctx_train": model.n_ctx_train,
        "architecture": model.arch,
        "quant": (file_type_name(int(file_type)) if file_type.isdecimal() else None) or "",
        "created": int(model.path.stat().st_mtime),
        "bos": model.special_text(model.bos),
        "eos": model.special_text(model.eos),
        "chat_template": model.chat_template or "",
    }
