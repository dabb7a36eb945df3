"""Checkpoints that are damaged, incomplete, of another kind or hostile: refused by name."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.errors import ModelError, ModelNotFoundError, UsageError
from localspec.heads.convert import convert
from tests.heads.checkpoints import (
    FREQUENCIES,
    KINDS,
    H,
    State,
    V,
    hydra_mlp,
    hydra_prefix_mlp,
    medusa,
    publish,
    write_safetensors,
)

pytest.importorskip("safetensors")


@pytest.mark.parametrize(
    "key",
    [
        "prefix_embeding_layer.layers.0.self_attn.q_proj.weight",
        "prefix_embeding_layer.norm.weight",
        "hydra_mlp.2.1.linear.bias",
        "hydra_mlp.2.1.res_connection.weight",
        "hydra_lm_head.3.1.weight",
        "hydra_lm_head.3.1.bias",
    ],
)
def test_a_missing_key_is_named(tmp_path, key):
    state = {other: value for other, value in hydra_prefix_mlp().items() if other != key}
    with pytest.raises(ModelError, match=f"lacks {key}"):
        convert(publish(tmp_path, "hydra-prefix-mlp", state=state))


@pytest.mark.parametrize("kind", KINDS)
def test_no_needed_key_can_be_missing(tmp_path, kind):
    whole = KINDS[kind][0]()
    needed = [key for key in whole if key.split(".")[0] not in ("input_embed_fn",) and "embed_tokens" not in key]
    for key in needed:
        state = {other: value for other, value in whole.items() if other != key}
        if _has_an_alias(whole, key) and key.endswith(".weight"):
            # with its bias, as a shared block is left out whole
            del state[key.removesuffix("weight") + "bias"]
            convert(publish(tmp_path, kind, state=state))
            continue
        with pytest.raises(ModelError) as caught:
            convert(publish(tmp_path, kind, state=state))
        assert caught.value.hint


def _has_an_alias(state: State, key: str) -> bool:
    return sum(value is state[key] for value in state.values()) > 1


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ("hydra_mlp.1.0.linear.weight", (H, 2 * H)),
        ("hydra_mlp.1.0.res_connection.bias", (H + 1,)),
        ("hydra_lm_head.2.weight", (V + 1, H)),
        ("hydra_lm_head.2.bias", (V, 1)),
    ],
)
def test_an_inconsistent_shape_is_named(tmp_path, key, shape):
    state = hydra_mlp() | {key: np.zeros(shape, dtype=np.float32)}
    with pytest.raises(ModelError, match=key):
        convert(publish(tmp_path, "hydra-mlp", state=state))


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("hydra-mlp", "hydra_mlp.0.4.linear.weight"),
        ("hydra-mlp", "hydra_mlp.4.0.linear.weight"),
        ("hydra-mlp", "prefix_embeding_layer.norm.weight"),
        ("hydra-mlp", FREQUENCIES),
        ("hydra-prefix-mlp", "prefix_embeding_layer.layers.1.mlp.up_proj.weight"),
        ("hydra-prefix-mlp", "prefix_embeding_layer.layers.0.self_attn.q_proj.bias"),
        ("medusa", "0.9.linear.weight"),
        ("medusa", "more"),
    ],
)
def test_an_unknown_key_is_named(tmp_path, kind, key):
    state = KINDS[kind][0]() | {key: np.zeros(H, dtype=np.float32)}
    with pytest.raises(ModelError, match=f"holds {key}, which {kind} heads of these sizes do not have"):
        convert(publish(tmp_path, kind, state=state))


@pytest.mark.parametrize(
    ("kind", "config", "reason"),
    [
        ("hydra-mlp", {"hydra_num_heads": None}, "does not say hydra_num_heads"),
        ("hydra-mlp", {"hydra_num_heads": 5}, "lacks hydra_mlp.4.0.linear.weight|lacks hydra_mlp.4.1.linear.weight"),
        ("hydra-mlp", {"hydra_num_heads": 3}, "holds hydra_mlp.3."),
        ("hydra-mlp", {"hydra_num_layers": 3}, "holds hydra_mlp.0.3.linear"),
        ("hydra-mlp", {"hydra_num_heads": "4"}, "hydra_num_heads '4', not a number from 1 to 64"),
        ("hydra-mlp", {"hydra_num_layers": True}, "hydra_num_layers True"),
        ("hydra-mlp", {"hydra_num_heads": 10**9}, "not a number from 1 to 64"),
        ("hydra-mlp", {"grounded_heads": "yes"}, "grounded_heads 'yes'"),
        ("hydra-mlp", {"grounded_heads": False}, "hydra_mlp.0.0"),
        ("hydra-mlp", {"hydra_head_arch": "eagle-attn"}, "kind 'eagle-attn' cannot be converted"),
        ("hydra-mlp", {"hydra_head_arch": "prefix-mlp"}, "lacks prefix_embeding_layer"),
        ("hydra-mlp", {"hidden_state_offset": 1}, "hidden state 1 from the end"),
        ("medusa", {"medusa_num_heads": 5}, "medusa_num_heads 5, the file has 4"),
        ("medusa", {"medusa_num_layers": 3}, "medusa_num_layers 3, the file has 4"),
    ],
)
def test_a_config_that_does_not_fit(tmp_path, kind, config, reason):
    with pytest.raises(ModelError, match=reason) as caught:
        convert(publish(tmp_path, kind, **config))
    assert caught.value.hint


def test_medusa_heads_without_vocabulary_heads(tmp_path):
    state = {key: value for key, value in medusa().items() if ".linear." in key}
    with pytest.raises(ModelError, match="holds no vocabulary heads"):
        convert(publish(tmp_path, "medusa", state=state))


def test_files_that_are_none(tmp_path):
    with pytest.raises(ModelNotFoundError, match="does not exist"):
        convert(tmp_path / "none")
    with pytest.raises(ModelError, match="holds no heads: there is none of hydra_lm_head"):
        convert(tmp_path)
    (tmp_path / "heads.bin").write_bytes(b"x")
    with pytest.raises(ModelError, match="no checkpoint of heads"):
        convert(tmp_path / "heads.bin")
    folder = publish(tmp_path / "heads", "medusa")
    config = (folder / "config.json").read_text()
    for text, reason in (("{", "cannot be read"), ("[]", "not a JSON object"), ("{}", None)):
        (folder / "config.json").write_text(text)
        if reason:
            with pytest.raises(ModelError, match=reason):
                convert(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelNotFoundError, match="json does not exist"):
        convert(folder)
    (folder / "config.json").write_text(config)
    weights = folder / "medusa_lm_head.safetensors"
    whole = weights.read_bytes()
    for content in (b"", whole[:5], whole[:200], whole[:-1], b"\xff" * 64):
        weights.write_bytes(content)
        with pytest.raises(ModelError, match="cannot be read"):
            convert(folder)
    write_safetensors(weights, {"more.weight": np.zeros(3, dtype=np.float32)})
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    with pytest.raises(ModelError, match="neither Hydra nor Medusa"):
        convert(folder)


def test_weights_of_a_type_that_is_none(tmp_path):
    folder = publish(tmp_path, "medusa", medusa_num_layers=1)
    write_safetensors(folder / "medusa_lm_head.safetensors", medusa(n_layers=1), "I32")
    with pytest.raises(ModelError, match=r"0\.0\.linear\.weight has the type I32"):
        convert(folder)


@pytest.mark.parametrize(("ending", "package"), [("pt", "torch"), ("safetensors", "safetensors")])
def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch, ending, package):
    folder = publish(tmp_path, "medusa")
    weights = folder / "medusa_lm_head.safetensors"
    if ending == "pt":
        weights.rename(folder / "medusa_lm_head.pt")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=f"with the package {package}, which is not installed") as caught:
        convert(folder)
    assert f"pip install {package}" in (caught.value.hint or "")


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("evil"),))


def test_a_pickle_cannot_run_code(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    folder = publish(tmp_path / "heads", "medusa")
    (folder / "medusa_lm_head.safetensors").unlink()
    path = folder / "medusa_lm_head.pt"
    for write in (lambda: torch.save({"0.0.linear.weight": _Evil()}, path), lambda: path.write_bytes(EVIL_PICKLE)):
        write()
        with pytest.raises(ModelError, match="cannot be read"):
            convert(folder)
        assert not (tmp_path / "evil").exists()
    torch.save({"state": {"0.0.linear.weight": torch.zeros(2)}}, path)
    with pytest.raises(ModelError, match="not a state dict"):
        convert(folder)


EVIL_PICKLE = pickle.dumps(_Evil(), protocol=2)
