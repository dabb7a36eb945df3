"""Synthetic checkpoints of heads with the keys and shapes of published ones, at a small width."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

H, V, N_HEADS, N_LAYERS = 32, 101, 4, 4
#: of the prefix layer
N_HEAD, N_HEAD_KV, N_FF, EPS, THETA = 4, 2, 48, 1e-5, 10000.0

#: a buffer that checkpoints of old versions of transformers hold
FREQUENCIES = "prefix_embeding_layer.layers.0.self_attn.rotary_emb.inv_freq"
#: facts of the prefix layer that a published config.json does not say: for `publish`, to leave them out
UNSAID = {"num_attention_heads": None, "num_key_value_heads": None, "rms_norm_eps": None}

State = dict[str, np.ndarray]


class _Random:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.state: State = {}

    def linear(self, key: str, n_out: int, n_in: int, bias: bool, gain: float = 1.0) -> None:
        # large enough that activations and positions matter, as initial weights of zero would hide mistakes
        self.state[f"{key}.weight"] = (gain * self.rng.standard_normal((n_out, n_in)) / np.sqrt(n_in)).astype(
            np.float32
        )
        if bias:
            self.state[f"{key}.bias"] = (0.3 * self.rng.standard_normal(n_out)).astype(np.float32)

    def norm(self, key: str) -> None:
        self.state[f"{key}.weight"] = (1 + 0.2 * self.rng.standard_normal(H)).astype(np.float32)

    def alias(self, key: str, of: str) -> None:
        for part in (".weight", ".bias"):
            self.state[key + part] = self.state[of + part]


def embedding(seed: int = 9) -> np.ndarray:
    """The base model's input embedding, [V, H]."""
    return np.random.default_rng(seed).standard_normal((V, H)).astype(np.float32)


def hydra_mlp(seed: int = 1, grounded: bool = True, n_layers: int = N_LAYERS, tied: bool = True) -> State:
    """The state dict of `hydra_lm_head.pt` with hydra_head_arch "mlp"."""
    made = _Random(seed)
    for i in range(N_HEADS):
        for block in range(n_layers):
            key = f"hydra_mlp.{i}.{block}"
            first = grounded and block == 0
            plain = block - (1 if grounded else 0)
            if tied and plain > 0:
                made.alias(f"{key}.linear", f"hydra_mlp.{i}.{block - plain}.linear")
                continue
            n_in = H * (i + 2) if first else H
            made.linear(f"{key}.linear", H, n_in, True)
            if first:
                made.linear(f"{key}.res_connection", H, n_in, True)
        made.linear(f"hydra_lm_head.{i}", V, H, True)
    made.state["input_embed_fn.weight"] = embedding()
    return made.state


def hydra_prefix_mlp(seed: int = 2, grounded: bool = True) -> State:
    """The state dict of `hydra_lm_head.pt` with hydra_head_arch "prefix-mlp": Dropout before every block."""
    state: State = {}
    for key, value in hydra_mlp(seed, grounded).items():
        parts = key.split(".")
        if parts[0] == "hydra_mlp":
            parts[2] = str(2 * int(parts[2]) + 1)
        elif parts[0] == "hydra_lm_head":
            parts.insert(2, "1")
        state[".".join(parts)] = value
    made = _Random(seed + 100)
    layer = "prefix_embeding_layer.layers.0"
    d_head = H // N_HEAD
    for name, n_out in (("q", H), ("k", N_HEAD_KV * d_head), ("v", N_HEAD_KV * d_head), ("o", H)):
        made.linear(f"{layer}.self_attn.{name}_proj", n_out, H, False, 2.0)
    made.linear(f"{layer}.mlp.gate_proj", N_FF, H, False)
    made.linear(f"{layer}.mlp.up_proj", N_FF, H, False)
    made.linear(f"{layer}.mlp.down_proj", H, N_FF, False)
    made.norm(f"{layer}.input_layernorm")
    made.norm(f"{layer}.post_attention_layernorm")
    made.norm("prefix_embeding_layer.norm")
    made.state["prefix_embeding_layer.embed_tokens.weight"] = embedding()
    return state | made.state


def medusa(seed: int = 3, n_layers: int = N_LAYERS) -> State:
    """The state dict of `medusa_lm_head.pt`."""
    made = _Random(seed)
    for i in range(N_HEADS):
        made.linear(f"{i}.0.linear", H, H, True)
        for block in range(1, n_layers):
            made.alias(f"{i}.{block}.linear", f"{i}.0.linear")
        made.linear(f"{i}.{n_layers}", V, H, False)
    return made.state


def hydra_config(arch: str, **more: Any) -> dict[str, Any]:
    return {
        "base_model_name_or_path": "someone/base",
        "grounded_heads": True,
        "hidden_state_offset": 0,
        "hydra_head_arch": arch,
        "hydra_num_heads": N_HEADS,
        "hydra_num_layers": N_LAYERS,
        **more,
    }


def prefix_config(**more: Any) -> dict[str, Any]:
    facts = {"num_attention_heads": N_HEAD, "num_key_value_heads": N_HEAD_KV, "rms_norm_eps": EPS}
    return hydra_config("prefix-mlp", **facts, **more)


def medusa_config(**more: Any) -> dict[str, Any]:
    return {
        "base_model_name_or_path": "someone/base",
        "medusa_num_heads": N_HEADS,
        "medusa_num_layers": N_LAYERS,
        **more,
    }


KINDS = {
    "hydra-mlp": (hydra_mlp, lambda: hydra_config("mlp"), "hydra_lm_head"),
    "hydra-prefix-mlp": (hydra_prefix_mlp, prefix_config, "hydra_lm_head"),
    "medusa": (medusa, medusa_config, "medusa_lm_head"),
}


def write_safetensors(path: Path, state: State, dtype: str = "F32") -> None:
    """Write the format itself, as NumPy has no bfloat16 to hand to the package. BF16 rounds towards zero."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    blocks: list[bytes] = []
    offset = 0
    for key, value in state.items():
        if dtype == "BF16":
            data = (np.ascontiguousarray(value).view(np.uint32) >> 16).astype("<u2").tobytes()
        else:
            data = value.astype({"F32": "<f4", "F16": "<f2", "I32": "<i4"}[dtype]).tobytes()
        header[key] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        blocks.append(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blocks))


def publish(folder: Path, kind: str, ending: str = "safetensors", state: State | None = None, **config: Any) -> Path:
    """A folder as published, of one of `KINDS`; entries of `config` replace those of config.json, None drops one."""
    make_state, make_config, name = KINDS[kind]
    state = make_state() if state is None else state
    folder.mkdir(parents=True, exist_ok=True)
    content = make_config() | config
    (folder / "config.json").write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    if ending == "pt":
        import torch

        torch.save({key: torch.from_numpy(value.copy()) for key, value in state.items()}, folder / f"{name}.pt")
    else:
        write_safetensors(folder / f"{name}.safetensors", state)
    return folder
