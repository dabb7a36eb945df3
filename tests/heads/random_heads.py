"""Heads of any spec with random weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from localspec.heads.spec import HeadSpec, PrefixSpec, tensor_shapes
from localspec.heads.tensors import Heads
from tests.heads.checkpoints import EPS, N_FF, N_HEAD, N_HEAD_KV, N_HEADS, N_LAYERS, THETA, H, V

PREFIX = PrefixSpec(
    n_head=N_HEAD, n_head_kv=N_HEAD_KV, d_head=H // N_HEAD, n_ff=N_FF, rms_eps=EPS, rope_theta=THETA, n_rope=H // N_HEAD
)
#: one of every kind, and of what our own training may write
SPECS: dict[str, dict[str, Any]] = {
    "hydra-mlp": {"arch": "hydra-mlp", "output_bias": True},
    "hydra-prefix-mlp": {"arch": "hydra-prefix-mlp", "output_bias": True, "prefix": PREFIX},
    "medusa": {"arch": "medusa", "grounded": False},
    "medusa-1": {"arch": "medusa", "grounded": False, "n_layers": 1},
    "ungrounded": {"arch": "hydra-mlp", "grounded": False, "output_bias": True},
    "untied": {"arch": "hydra-mlp", "tied_blocks": False},
    "one-block": {"arch": "hydra-mlp", "n_layers": 1},
    "shared": {"arch": "hydra-mlp", "shared_output": True},
    "trimmed": {"arch": "hydra-mlp", "n_draft_vocab": 37, "shared_output": True, "output_bias": True},
    "later": {"arch": "hydra-mlp", "n_draft_vocab": 90, "n_later_vocab": 64, "shared_output": True},
    "later-bias": {"arch": "hydra-mlp", "n_later_vocab": 64, "shared_output": True, "output_bias": True},
    "later-own": {"arch": "hydra-mlp", "n_later_vocab": 64},
}


def spec_of(**values: Any) -> HeadSpec:
    sizes = {"n_heads": N_HEADS, "n_layers": N_LAYERS, "n_embd": H, "n_vocab": V, "grounded": True}
    return HeadSpec(**(sizes | values))


def heads_of(spec: HeadSpec, seed: int = 4) -> Heads:
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in tensor_shapes(spec).items():
        values = rng.standard_normal(shape) * (2 / np.sqrt(shape[-1]) if len(shape) > 1 else 0.3)
        tensors[name] = (values + (1 if "norm" in name else 0)).astype(np.float32)
    d2t = rng.permutation(spec.n_vocab)[: spec.n_draft_vocab].astype(np.int32) if spec.n_draft_vocab else None
    return Heads(spec, tensors, d2t)


def hidden_states(n: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, H)).astype(np.float32)
