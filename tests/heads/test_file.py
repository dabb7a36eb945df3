"""Heads survive their file, and a file that is not sound is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader

from localspec.errors import ModelError, ModelNotFoundError, UsageError
from localspec.heads import file as heads_file
from localspec.heads.file import WEIGHT_TYPES, read_heads, read_spec, write_heads
from localspec.heads.reference import ReferenceHeads
from localspec.heads.spec import tensor_shapes
from localspec.heads.tensors import Heads
from localspec.static_tree import StaticTree
from tests.fake_hub import write_gguf
from tests.heads.checkpoints import H, V, embedding
from tests.heads.random_heads import PREFIX, SPECS, heads_of, hidden_states, spec_of

#: largest error of a weight, relative to the largest of its row
TOLERANCE = {"f32": 0.0, "f16": 1e-3, "q8_0": 1e-2, "q4_0": 0.13, "q4_q8": 0.13}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
@pytest.mark.parametrize("name", SPECS)
def test_round_trip(tmp_path, name, weight_type):
    spec = spec_of(**SPECS[name], base_name="base", base_fingerprint="0123456789abcdef", licence="mit", recipe="test")
    heads = heads_of(spec)
    path = tmp_path / "heads.gguf"
    write_heads(path, heads, weight_type)
    assert names_in(tmp_path) == ["heads.gguf"]
    assert read_spec(path) == spec
    again = read_heads(path)
    assert again.spec == spec
    assert set(again.tensors) == set(tensor_shapes(spec))
    for key, values in heads.tensors.items():
        error = np.abs(again.tensors[key] - values)
        if values.ndim == 1:
            assert not error.any()
        else:
            # F16 where rows are no multiple of a block
            least = 1e-3 if values.shape[1] % 32 and weight_type != "f32" else 0.0
            assert (error <= max(least, TOLERANCE[weight_type]) * np.abs(values).max(axis=1, keepdims=True)).all(), key
    if heads.d2t is None:
        assert again.d2t is None
    else:
        assert again.d2t is not None
        assert again.d2t.tolist() == heads.d2t.tolist()


@pytest.mark.parametrize(("weight_type", "error"), [("f32", 0.0), ("f16", 0.01), ("q8_0", 0.1)])
def test_what_is_read_drafts_what_was_written(tmp_path, weight_type, error):
    heads = heads_of(spec_of(arch="hydra-mlp", output_bias=True))
    write_heads(tmp_path / "heads.gguf", heads, weight_type)
    written = ReferenceHeads(heads, embedding())
    read = ReferenceHeads(read_heads(tmp_path / "heads.gguf"), embedding())
    g = hidden_states(5)
    paths = np.arange(20).reshape(5, 4)
    for head in range(4):
        one, other = (each.logits(head, g, paths[:, : head + 1]) for each in (written, read))
        assert np.abs(one - other).max() <= error * one.std()
    if not error:
        tree = StaticTree.from_paths([[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0], [0, 0, 0, 0]])
        one, other = (each.draft(g[0], 7, tree) for each in (written, read))
        assert (one.tokens == other.tokens).all()
        assert (one.q == other.q).all()


def test_types_of_tensors(tmp_path):
    """Matrices are quantised, narrow ones stay F16, vectors F32; llama.cpp's names are kept."""
    prefix = replace(PREFIX, n_ff=48)
    write_heads(tmp_path / "heads.gguf", heads_of(spec_of(arch="hydra-prefix-mlp", prefix=prefix)), "q4_0")
    reader = GGUFReader(tmp_path / "heads.gguf")
    types = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert types["head.3.blk.0.l.weight"] == "Q4_0"
    assert types["head.0.blk.0.r.bias"] == "F32"
    assert types["head.0.output.weight"] == "Q4_0"
    assert types["prefix.ffn_down.weight"] == "F16"
    assert types["prefix.attn_norm.weight"] == "F32"
    assert "head.0.blk.1.l.weight" in types
    assert "head.0.blk.2.l.weight" not in types  # tied
    assert [int(n) for n in reader.tensors[0].shape] == [32]
    for key in ("hydra.head_count", "hydra.rope.freq_base", "hydra.attention.head_count_kv", "hydra.vocab_size"):
        assert reader.get_field(key) is not None


def test_an_old_file_stays_when_writing_fails(tmp_path, monkeypatch):
    path = tmp_path / "heads.gguf"
    write_heads(path, heads_of(spec_of(arch="hydra-mlp")), "f16")
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(heads_file.GGUFWriter, "write_tensors_to_file", full)
    with pytest.raises(UsageError, match="cannot be written: No space left"):
        write_heads(path, heads_of(spec_of(arch="hydra-mlp"), seed=9), "f16")
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["heads.gguf"]


def test_places_and_types_that_cannot_be_written_are_refused(tmp_path):
    heads = heads_of(spec_of(arch="hydra-mlp"))
    with pytest.raises(UsageError, match="'q3_k' is not known"):
        write_heads(tmp_path / "heads.gguf", heads, "q3_k")
    with pytest.raises(UsageError, match="is a directory"):
        write_heads(tmp_path, heads)
    with pytest.raises(UsageError, match="No such file or directory"):
        write_heads(tmp_path / "none" / "heads.gguf", heads)
    assert names_in(tmp_path) == []


def _without(heads: Heads, name: str) -> Heads:
    return replace(heads, tensors={key: value for key, value in heads.tensors.items() if key != name})


def _with(heads: Heads, name: str, values: np.ndarray) -> Heads:
    return replace(heads, tensors={**heads.tensors, name: values})


def test_heads_that_do_not_fit_their_spec_are_not_written(tmp_path):
    heads = heads_of(spec_of(arch="hydra-mlp"))
    trimmed = heads_of(spec_of(**SPECS["trimmed"]))
    path = tmp_path / "heads.gguf"
    name = "head.2.blk.1.l.bias"
    bad = np.full(H, np.nan, dtype=np.float32)
    for wrong, reason in (
        (_without(heads, name), f"lacks the tensor {name}"),
        (_with(heads, name, np.zeros(H + 1, dtype=np.float32)), rf"{name} has the shape \[33\], not \[32\]"),
        (_with(heads, "head.9.output.weight", np.zeros((V, H), dtype=np.float32)), "holds the tensor head.9.output"),
        (_with(heads, name, bad), f"{name} holds values that are not finite"),
        (replace(trimmed, d2t=None), "lacks the table d2t"),
        (replace(heads, d2t=np.arange(5, dtype=np.int32)), "holds a table d2t"),
    ):
        with pytest.raises(ModelError, match=reason) as caught:
            write_heads(path, wrong)
        assert "heads.gguf" in caught.value.message
        assert caught.value.hint
        assert names_in(tmp_path) == []


# --- files that are not sound ---


class _Edit:
    """Writes a file of heads again with facts and tensors changed; a value of None leaves it out."""

    def __init__(self, path: Path, heads: Heads) -> None:
        write_heads(path, heads, "f32")
        reader = GGUFReader(path)
        self.path = path
        self.fields = {
            name: (field.contents(), field.types[0])
            for name, field in reader.fields.items()
            if not name.startswith("GGUF.") and name != "general.architecture"
        }
        self.tensors = {tensor.name: np.array(tensor.data) for tensor in reader.tensors}

    def write(self, arch: str = "hydra") -> Path:
        writer = gguf.GGUFWriter(self.path, arch)
        for name, (value, kind) in self.fields.items():
            if value is not None:
                writer.add_key_value(name, value, kind)
        for name, data in self.tensors.items():
            writer.add_tensor(name, data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return self.path


@pytest.fixture
def edit(tmp_path: Path) -> _Edit:
    return _Edit(tmp_path / "heads.gguf", heads_of(spec_of(**SPECS["trimmed"])))


def refused(path: Path) -> str:
    """The message of the error that reading must cause."""
    with pytest.raises(ModelError) as caught:
        read_heads(path)
    assert path.name in caught.value.message
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return caught.value.message


def test_the_editor_itself_changes_nothing(edit):
    assert read_heads(edit.write()).spec == spec_of(**SPECS["trimmed"])


@pytest.mark.parametrize("keep", [0, 10, 100, 700, 4000, -1])
def test_a_truncated_file(edit, keep):
    content = edit.path.read_bytes()
    edit.path.write_bytes(content[:keep])
    refused(edit.path)


def test_another_kind_of_file(tmp_path, edit):
    write_gguf(tmp_path / "model.gguf")
    assert "architecture is 'llama', not 'hydra'" in refused(tmp_path / "model.gguf")
    with pytest.raises(ModelNotFoundError):
        read_heads(tmp_path / "none.gguf")
    edit.fields["hydra.format_version"] = (2, edit.fields["hydra.format_version"][1])
    assert "version 2 of the format" in refused(edit.write())


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("hydra.head_count", None, "does not say hydra.head_count"),
        ("hydra.head_count", 0, "n_heads of the heads is 0"),
        ("hydra.head_count", 2**31, "more than 64"),
        ("hydra.block_count", 2**31, "more than 64"),
        ("hydra.head_count", 5, "lacks the tensor head.4.blk.0.l.weight"),
        ("hydra.head_count", 3, "holds the tensor head.3."),
        ("hydra.embedding_length", 16, r"has the shape [32, 64], not [16, 32]"),
        ("hydra.head_arch", "eagle", "'eagle' are not known"),
        ("hydra.head_arch", "hydra-prefix-mlp", "need a prefix layer"),
        ("hydra.head_arch", "medusa", "not grounded"),
        ("hydra.draft_vocab_size", 102, "do not fit a vocabulary of 101"),
        ("hydra.draft_vocab_size", 0, "its vocabulary is not trimmed"),
        ("hydra.draft_vocab_size", 36, "d2t has the shape [37], not [36]"),
        ("hydra.vocab_size", 38, "outside 0 to 37"),
    ],
)
def test_facts_that_make_no_heads(edit, key, value, reason):
    edit.fields[key] = (value, edit.fields[key][1])
    assert reason in refused(edit.write())


def test_a_fact_of_another_type(edit):
    edit.fields["hydra.grounded"] = (1, gguf.GGUFValueType.UINT32)
    assert "hydra.grounded is 1, not of the type bool" in refused(edit.write())


def test_a_fingerprint_that_is_none(edit):
    edit.fields["hydra.base.fingerprint"] = ("xyz", gguf.GGUFValueType.STRING)
    assert "not 16 hexadecimal digits" in refused(edit.write())


def test_tensors_that_are_missing_or_wrong(edit):
    whole = dict(edit.tensors)

    def change(name: str, values: np.ndarray | None) -> str:
        edit.tensors = {key: value for key, value in whole.items() if key != name}
        if values is not None:
            edit.tensors[name] = values
        return refused(edit.write())

    assert "lacks the tensor output.bias" in change("output.bias", None)
    assert "lacks the table d2t" in change("d2t", None)
    assert "holds the tensor more.weight" in change("more.weight", np.zeros(4, dtype=np.float32))
    assert "has the shape [36], not [37]" in change("output.bias", np.zeros(36, dtype=np.float32))
    assert "not finite" in change("output.bias", np.full(37, np.inf, dtype=np.float32))
    assert "has the type F64" in change("output.bias", np.zeros(37, dtype=np.float64))
    assert "d2t has the type F32" in change("d2t", np.zeros(37, dtype=np.float32))
    d2t = whole["d2t"].copy()
    d2t[3] = d2t[30]
    assert f"names the token {d2t[30]} more than once" in change("d2t", d2t)
    d2t[3] = -1
    assert "names the token -1 in row 3" in change("d2t", d2t)


def test_bf16_weights_of_other_writers_are_read(edit):
    # as the top half of a float32, which is what the file holds
    values = edit.tensors.pop("output.weight")
    writer_type = GGMLQuantizationType.BF16
    writer = gguf.GGUFWriter(edit.path, "hydra")
    for name, (value, kind) in edit.fields.items():
        writer.add_key_value(name, value, kind)
    for name, data in edit.tensors.items():
        writer.add_tensor(name, data)
    writer.add_tensor("output.weight", gguf.quants.quantize(values, writer_type), raw_dtype=writer_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.testing.assert_allclose(read_heads(edit.path).tensors["output.weight"], values, rtol=1e-2)
