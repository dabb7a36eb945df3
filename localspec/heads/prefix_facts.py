"""The prefix layer of a published Hydra++ checkpoint: its keys, and its hyper-parameters from wherever they are known.

The checkpoint says little beyond shapes, as the layer is built from the base model's configuration. What is missing
comes from config.json, from the base model's GGUF, or from the rotary frequencies that older checkpoints hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localspec.errors import ModelError, UsageError
from localspec.heads.checkpoint import HINT, Checkpoint
from localspec.heads.published import shape_of
from localspec.heads.spec import FloatArray, PrefixSpec
from localspec.heads.tensors import blamed_on

_ROOT = "prefix_embeding_layer."  # spelt so in the released code
_LAYER = _ROOT + "layers.0."
#: our tensor -> key of the checkpoint
PREFIX_KEYS = {
    "prefix.attn_norm.weight": _LAYER + "input_layernorm.weight",
    "prefix.attn_q.weight": _LAYER + "self_attn.q_proj.weight",
    "prefix.attn_k.weight": _LAYER + "self_attn.k_proj.weight",
    "prefix.attn_v.weight": _LAYER + "self_attn.v_proj.weight",
    "prefix.attn_output.weight": _LAYER + "self_attn.o_proj.weight",
    "prefix.ffn_norm.weight": _LAYER + "post_attention_layernorm.weight",
    "prefix.ffn_gate.weight": _LAYER + "mlp.gate_proj.weight",
    "prefix.ffn_up.weight": _LAYER + "mlp.up_proj.weight",
    "prefix.ffn_down.weight": _LAYER + "mlp.down_proj.weight",
    "prefix.output_norm.weight": _ROOT + "norm.weight",
}
#: a buffer of old versions of transformers: theta^(-2j/d), j = 0, 1, ...
FREQUENCIES = _LAYER + "self_attn.rotary_emb.inv_freq"
#: copies of the base model's embedding, which the base model has
DROPPED = ("input_embed_fn.weight", _ROOT + "embed_tokens.weight")

# ours -> key of config.json, key of a GGUF below its architecture
_SOURCES = {
    "n_head": ("num_attention_heads", "attention.head_count"),
    "d_head": ("head_dim", "attention.key_length"),
    "rms_eps": ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    "rope_theta": ("rope_theta", "rope.freq_base"),
}
_DEFAULT_THETA = 10000.0  # of Llama, for files that do not say another


def prefix_spec(checkpoint: Checkpoint, n_embd: int, base: Mapping[str, Any] | None) -> PrefixSpec:
    """The layer's hyper-parameters; `base` is the metadata of the base model's GGUF.

    Raises `ModelError` for shapes that do not fit, and `UsageError` when something is not known.
    """
    path, shapes = checkpoint.path, checkpoint.state.shapes
    _refuse_scaling(checkpoint, base)
    known = _known(checkpoint, base)
    n_q = shape_of(path, shapes, PREFIX_KEYS["prefix.attn_q.weight"])[0]
    n_kv = shape_of(path, shapes, PREFIX_KEYS["prefix.attn_k.weight"])[0]
    n_ff = shape_of(path, shapes, PREFIX_KEYS["prefix.ffn_gate.weight"])[0]
    n_head, d_head = known.get("n_head"), known.get("d_head")
    if (n_head is None and d_head is None) or known.get("rms_eps") is None:
        raise UsageError(
            f"neither {path} nor its config.json says the attention heads and the rms_norm_eps of the prefix layer",
            "name the model that the heads belong to with --base MODEL.gguf",
        )
    n_head = int(n_head or n_q // int(d_head or 1))
    d_head = int(d_head or n_embd // max(1, n_head))
    if n_head < 1 or d_head < 1 or n_head * d_head != n_q or n_kv % d_head:
        raise ModelError(
            f"{path}: q and k of the prefix layer have {n_q} and {n_kv} rows, which are not {n_head} heads of {d_head}",
            "name the model that the heads belong to with --base MODEL.gguf",
        )
    with blamed_on(path):
        return PrefixSpec(
            n_head=n_head,
            n_head_kv=n_kv // d_head,
            d_head=d_head,
            n_ff=n_ff,
            rms_eps=float(known["rms_eps"]),
            rope_theta=float(known.get("rope_theta", _DEFAULT_THETA)),
            n_rope=d_head,
        )


def _known(checkpoint: Checkpoint, base: Mapping[str, Any] | None) -> dict[str, float]:
    """What config.json and the base model say; config.json speaks for the heads themselves, so it comes first."""
    known: dict[str, float] = {}
    arch = str((base or {}).get("general.architecture", ""))
    for name, (key, suffix) in _SOURCES.items():
        value = checkpoint.config.get(key)
        if value is None and base is not None:
            value = base.get(f"{arch}.{suffix}")
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ModelError(
                f"{name} of the prefix layer of {checkpoint.path} is {value!r}, not a positive number", HINT
            )
        known[name] = value
    if FREQUENCIES in checkpoint.state.shapes:
        _from_frequencies(checkpoint.state.array(FREQUENCIES), known)
    return known


def _from_frequencies(frequencies: FloatArray, known: dict[str, float]) -> None:
    n = frequencies.size
    known.setdefault("d_head", 2 * n)
    if n > 1 and 0 < float(frequencies.flat[1]) < 1:
        known.setdefault("rope_theta", float(frequencies.flat[1]) ** -n)


def _refuse_scaling(checkpoint: Checkpoint, base: Mapping[str, Any] | None) -> None:
    arch = str((base or {}).get("general.architecture", ""))
    kind = (base or {}).get(f"{arch}.rope.scaling.type", "none")
    if checkpoint.config.get("rope_scaling") or kind != "none":
        raise ModelError(
            f"{checkpoint.path}: the base model scales its rotary positions, which the prefix layer cannot do",
            "choose heads of a model without rope scaling",
        )
