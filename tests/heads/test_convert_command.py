"""`localspec convert-heads`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from localspec.cli import app
from localspec.heads.base import base_facts
from localspec.heads.file import read_heads
from localspec.heads.prefix import PrefixLayer
from tests.heads.checkpoints import (
    UNSAID,
    H,
    State,
    V,
    hydra_mlp,
    hydra_prefix_mlp,
    publish,
)
from tests.tiny_models import N_EMBD, N_VOCAB, write_tiny

pytest.importorskip("safetensors")


def run(*args: object) -> Any:
    return CliRunner().invoke(app, ["convert-heads", *map(str, args)], prog_name="localspec")


def test_the_command_writes_a_file(tmp_path):
    out = tmp_path / "heads.gguf"
    result = run(publish(tmp_path / "heads", "hydra-mlp"), "-o", out, "--license", "apache-2.0")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{out}\n"
    assert "4 hydra-mlp heads for someone/base" in result.stderr
    heads = read_heads(out)
    assert heads.spec.licence == "apache-2.0"
    assert np.abs(heads.tensors["head.0.output.weight"] - hydra_mlp()["hydra_lm_head.0.weight"]).max() < 0.02


def test_the_command_tells_errors_in_one_line(tmp_path):
    result = run(tmp_path / "none", "-o", tmp_path / "heads.gguf")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: ")
    result = run(publish(tmp_path / "heads", "medusa"), "-o", tmp_path / "heads.gguf", "--type", "q5_k")
    assert result.exit_code == 2
    assert "'q5_k' is not known" in result.stderr
    assert not (tmp_path / "heads.gguf").exists()


def _widened(state: State) -> State:
    """The sizes of `tiny_models` in place of the small ones: every dimension of H or V, or a multiple of H."""
    rng = np.random.default_rng(1)

    def size(n: int) -> int:
        return N_VOCAB if n == V else n // H * N_EMBD if n % H == 0 else n

    return {key: rng.standard_normal(tuple(map(size, value.shape))).astype(np.float32) for key, value in state.items()}


def test_the_command_takes_the_base_model(tmp_path):
    pytest.importorskip("llama_cpp")
    model = write_tiny(tmp_path / "tiny.gguf")
    state = _widened(hydra_prefix_mlp())
    for name in "kv":  # 2 of 4 heads
        key = f"prefix_embeding_layer.layers.0.self_attn.{name}_proj.weight"
        state[key] = np.ones((N_EMBD // 2, N_EMBD), dtype=np.float32)
    folder = publish(tmp_path / "heads", "hydra-prefix-mlp", state=state, **UNSAID)
    out = tmp_path / "heads.gguf"
    result = run(folder, "-o", out, "--base", model)
    assert result.exit_code == 0, result.stderr
    heads = read_heads(out)
    from localspec.engine.model import Model

    with Model.load(model) as loaded:
        assert heads.spec.base_fingerprint == base_facts(loaded).fingerprint
    assert heads.spec.base_name == "tiny-llama"
    assert heads.spec.prefix is not None
    assert (heads.spec.prefix.n_head, heads.spec.prefix.n_head_kv, heads.spec.prefix.d_head) == (4, 2, 32)
    assert len(PrefixLayer(heads).append(np.ones((2, N_EMBD)))) == 2
    small = run(publish(tmp_path / "small", "medusa"), "-o", out, "--base", model)
    assert small.exit_code == 3
    assert "do not fit tiny-llama" in small.stderr
