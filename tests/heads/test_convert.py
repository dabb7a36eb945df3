"""Published checkpoints become heads; whatever is missing, unknown or inconsistent is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from localspec.errors import ModelError, UsageError
from localspec.heads.convert import Base, convert
from localspec.heads.reference import ReferenceHeads
from localspec.heads.spec import BaseFacts
from tests.heads.checkpoints import (
    EPS,
    FREQUENCIES,
    KINDS,
    N_FF,
    N_HEAD,
    N_HEAD_KV,
    N_HEADS,
    N_LAYERS,
    UNSAID,
    H,
    State,
    V,
    embedding,
    hydra_mlp,
    hydra_prefix_mlp,
    medusa,
    publish,
    write_safetensors,
)
from tests.heads.random_heads import hidden_states

pytest.importorskip("safetensors")

LLAMA = {
    "general.architecture": "llama",
    "llama.attention.head_count": N_HEAD,
    "llama.attention.layer_norm_rms_epsilon": EPS,
    "llama.rope.freq_base": 5e5,
}


def base(**metadata: Any) -> Base:
    more = {key.replace("_", ".", 1): value for key, value in metadata.items()}
    return Base(BaseFacts("vicuna", H, V, "0123456789abcdef"), LLAMA | more)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_published_folder_holds(tmp_path, kind):
    heads = convert(publish(tmp_path, kind), licence="apache-2.0")
    spec = heads.spec
    assert (spec.arch, spec.n_heads, spec.n_layers, spec.n_embd, spec.n_vocab) == (kind, N_HEADS, N_LAYERS, H, V)
    assert spec.grounded == (kind != "medusa")
    assert spec.output_bias == (kind != "medusa")
    assert (spec.tied_blocks, spec.shared_output, spec.n_draft_vocab) == (True, False, 0)
    assert (spec.base_name, spec.base_fingerprint, spec.licence) == ("someone/base", "", "apache-2.0")
    assert spec.recipe == f"converted from {KINDS[kind][2]}.safetensors"
    if spec.prefix is not None:
        assert (spec.prefix.n_head, spec.prefix.n_head_kv, spec.prefix.d_head) == (N_HEAD, N_HEAD_KV, H // N_HEAD)
        assert (spec.prefix.n_ff, spec.prefix.n_rope, spec.prefix.rope_theta) == (N_FF, H // N_HEAD, 10000.0)


def test_every_tensor_is_where_it_belongs(tmp_path):
    state = hydra_prefix_mlp()
    tensors = convert(publish(tmp_path, "hydra-prefix-mlp", state=state)).tensors
    for ours, theirs in (
        ("head.2.blk.0.l.weight", "hydra_mlp.2.1.linear.weight"),
        ("head.2.blk.0.r.bias", "hydra_mlp.2.1.res_connection.bias"),
        ("head.3.blk.1.l.weight", "hydra_mlp.3.7.linear.weight"),
        ("head.1.output.bias", "hydra_lm_head.1.1.bias"),
        ("prefix.ffn_norm.weight", "prefix_embeding_layer.layers.0.post_attention_layernorm.weight"),
        ("prefix.attn_output.weight", "prefix_embeding_layer.layers.0.self_attn.o_proj.weight"),
    ):
        assert np.array_equal(tensors[ours], state[theirs])


@pytest.mark.parametrize(("dtype", "error"), [("F16", 2e-3), ("BF16", 8e-3)])
def test_half_precision(tmp_path, dtype, error):
    folder = publish(tmp_path, "medusa")
    state = medusa()
    write_safetensors(folder / "medusa_lm_head.safetensors", state, dtype)
    read = convert(folder).tensors["head.1.output.weight"]
    assert read.dtype == np.float32
    np.testing.assert_allclose(read, state[f"1.{N_LAYERS}.weight"], rtol=error, atol=1e-6)


def test_the_package_writes_what_is_read(tmp_path):
    from safetensors.numpy import save_file

    folder = publish(tmp_path, "hydra-mlp")
    state = hydra_mlp()
    save_file(state, folder / "hydra_lm_head.safetensors", metadata={"format": "pt"})
    assert np.array_equal(convert(folder).tensors["head.0.output.bias"], state["hydra_lm_head.0.bias"])


def test_a_file_may_be_named_instead_of_its_folder(tmp_path):
    folder = publish(tmp_path, "medusa")
    assert convert(folder / "medusa_lm_head.safetensors").spec == convert(folder).spec


def test_blocks_that_differ_are_not_tied(tmp_path):
    heads = convert(publish(tmp_path, "hydra-mlp", state=hydra_mlp(tied=False)))
    assert not heads.spec.tied_blocks
    assert "head.0.blk.3.l.weight" in heads.tensors
    assert len(ReferenceHeads(heads, embedding()).greedy(hidden_states(1)[0], 3).tokens) == N_HEADS + 1


def test_aliases_may_be_left_out_when_blocks_are_tied(tmp_path):
    def drop(state: State) -> State:
        return {key: value for key, value in state.items() if not key.startswith("hydra_mlp.1.1.")}

    heads = convert(publish(tmp_path / "tied", "hydra-mlp", state=drop(hydra_mlp())))
    assert heads.spec.tied_blocks
    assert np.array_equal(heads.tensors["head.1.blk.1.l.weight"], hydra_mlp()["hydra_mlp.1.2.linear.weight"])
    with pytest.raises(ModelError, match=r"lacks hydra_mlp\.1\.1\.linear\.weight, and its blocks are not copies"):
        convert(publish(tmp_path / "untied", "hydra-mlp", state=drop(hydra_mlp(tied=False))))


def test_one_block_a_head(tmp_path):
    heads = convert(publish(tmp_path, "hydra-mlp", state=hydra_mlp(n_layers=1), hydra_num_layers=1))
    assert heads.spec.n_layers == 1


def test_any_name_of_the_base_model_can_be_kept(tmp_path):
    for name, expected in ((None, ""), (7, "7"), ("\ud800 llama", "? llama")):
        folder = publish(tmp_path, "medusa", base_model_name_or_path=name)
        assert convert(folder).spec.base_name == expected


def test_medusa_files_with_more_heads_than_config_says(tmp_path):
    """As published: config.json of medusa-vicuna-7b-v1.3 says 2, the file has 5."""
    assert convert(publish(tmp_path / "a", "medusa", medusa_num_heads=2)).spec.n_heads == N_HEADS
    assert convert(publish(tmp_path / "b", "medusa", medusa_num_heads=None)).spec.n_heads == N_HEADS


# --- the prefix layer's hyper-parameters ---


def test_the_base_model_tells_what_config_does_not(tmp_path):
    folder = publish(tmp_path, "hydra-prefix-mlp", **UNSAID)
    with pytest.raises(UsageError, match="attention heads and the rms_norm_eps of the prefix layer") as caught:
        convert(folder)
    assert "--base" in (caught.value.hint or "")
    spec = convert(folder, base()).spec
    assert spec.prefix is not None
    assert (spec.prefix.n_head, spec.prefix.n_head_kv, spec.prefix.rope_theta) == (N_HEAD, N_HEAD_KV, 5e5)
    assert (spec.base_name, spec.base_fingerprint) == ("vicuna", "0123456789abcdef")


def test_rotary_frequencies_of_old_checkpoints_are_used(tmp_path):
    d_head, theta = H // N_HEAD, 12345.0
    frequencies = (theta ** (-np.arange(0, d_head, 2) / d_head)).astype(np.float32)
    state = hydra_prefix_mlp() | {FREQUENCIES: frequencies}
    spec = convert(publish(tmp_path, "hydra-prefix-mlp", state=state, num_attention_heads=None)).spec
    assert spec.prefix is not None
    assert spec.prefix.n_head == N_HEAD
    assert spec.prefix.rope_theta == pytest.approx(theta, rel=1e-5)


@pytest.mark.parametrize(
    ("config", "of_base", "reason"),
    [
        ({"num_attention_heads": 5}, {}, "32 and 16 rows, which are not 5 heads of 6"),
        ({"num_attention_heads": 64}, {}, "which are not 64 heads"),
        ({"num_attention_heads": "4"}, {}, "n_head of the prefix layer .* is '4'"),
        ({"rms_norm_eps": -1.0}, {}, "rms_eps of the prefix layer"),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, {}, "scales its rotary positions"),
        ({}, {"llama_rope.scaling.type": "yarn"}, "scales its rotary positions"),
    ],
)
def test_prefix_layers_that_cannot_be(tmp_path, config, of_base, reason):
    with pytest.raises(ModelError, match=reason):
        convert(publish(tmp_path, "hydra-prefix-mlp", **config), base(**of_base))


def test_a_base_model_that_the_heads_do_not_fit(tmp_path):
    folder = publish(tmp_path, "medusa")
    other = Base(BaseFacts("qwen", 64, V, "0123456789abcdef"), LLAMA)
    with pytest.raises(ModelError, match="made for qwen and do not fit qwen"):
        convert(folder, other)
