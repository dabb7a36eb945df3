"""What a report of measurements has to name."""

from __future__ import annotations

from localspec import machine
from localspec.session import Session


def describe(session: Session) -> dict[str, object]:
    """Model, set-up, build and machine of a session, as JSON data."""
    n_threads, _ = session.params.resolve_threads()
    model = session.model
    return {
        "model": session.name,
        "gguf_name": model.gguf_name,
        "file": model.path.name,
        "description": model.description,
        "parameters": model.n_params,
        "fingerprint": model.fingerprint,
        "n_ctx": session.ctx.n_ctx,
        "threads": n_threads,
        # llama.cpp has the last word on flash attention, and tells nobody
        "flash_attention_requested": session.params.flash_attn,
        "kv_cache": f"{session.params.type_k}/{session.params.type_v}",
        "mode": session.ctx.mode,
        "tree_limit": session.ctx.tree_limit_reason,
        "device": session.device,
        "gpu_layers": session.layers_on_gpu,
        "draft": None if session.draft is None else session.draft.name,
        "build": machine.library().build,
        "machine": machine.machine(),
    }
