"""Files of heads that the library itself refuses, whoever looked at them before; the reason is named."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from localspec.engine import bindings, logs
from localspec.engine.heads import NativeHeads
from localspec.engine.model import Model
from localspec.errors import EngineError, ModelError
from localspec.heads.file import write_heads
from localspec.static_tree import StaticTree
from tests.engine.trees import NEEDS_PATCHES, MakePatched
from tests.heads.random_heads import SPECS, heads_of, spec_of
from tests.tiny_models import N_EMBD, N_VOCAB

pytestmark = NEEDS_PATCHES

Models = dict[str, Model]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Grounded heads of a trimmed vocabulary, Q8_0."""
    path = tmp_path / "heads.gguf"
    write_heads(path, heads_of(spec_of(**_sizes(**SPECS["trimmed"]))))
    return path


def _sizes(**values: Any) -> dict[str, Any]:
    return {"arch": "hydra-mlp", "n_embd": N_EMBD, "n_vocab": N_VOCAB} | values


def refusal(model: Model, path: Path, flags: int = 0) -> str:
    """Why the library refuses a file, without any check of Python."""
    lib: Any = bindings.library()
    mark = logs.n_errors()
    handle = lib.llama_heads_load(model.handle, os.fsencode(path), flags)
    if handle:
        lib.llama_heads_free(handle)
        return ""
    return logs.reason(mark, "")


def set_fact(path: Path, key: str, value: int) -> None:
    """Change a number of the header in place."""
    data = bytearray(path.read_bytes())
    at = data.index(key.encode()) + len(key) + 4  # behind the type
    data[at : at + 4] = struct.pack("<I", value)
    path.write_bytes(data)


def edit(path: Path, name: str, change: Callable[[np.ndarray], None]) -> None:
    """Change the data of a tensor in place."""
    reader = GGUFReader(path, "r+")
    (data,) = (tensor.data for tensor in reader.tensors if tensor.name == name)
    change(data)
    reader.data.flush()


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("hydra.format_version", 2, "format_version is 2"),
        ("hydra.head_count", 5, "lacks the tensor head.4"),
        ("hydra.head_count", 3, "tensors that heads of these sizes do not have"),
        ("hydra.head_count", 1 << 31, "head_count is 2147483648"),
        ("hydra.block_count", 0, "block_count is 0"),
        ("hydra.embedding_length", N_EMBD // 2, "has the shape"),
        ("hydra.vocab_size", N_VOCAB + 1, f"the model has {N_VOCAB} tokens, the heads know {N_VOCAB + 1}"),
        ("hydra.draft_vocab_size", 36, "has the shape"),
        ("hydra.draft_vocab_size", 0, "has the shape"),
        ("hydra.draft_vocab_size", N_VOCAB + 1, "draft_vocab_size is"),
    ],
)
def test_facts_that_do_not_fit(tiny_q4: Models, path: Path, key: str, value: int, reason: str) -> None:
    assert refusal(tiny_q4["llama"], path) == ""
    set_fact(path, key, value)
    assert reason in refusal(tiny_q4["llama"], path)


@pytest.mark.parametrize(("n", "reason"), [(63, "63, no multiple of 64"), (128, "128, not in [0, 90]")])
def test_tokens_of_later_heads_that_do_not_fit(tiny_q4: Models, tmp_path: Path, n: int, reason: str) -> None:
    path = tmp_path / "heads.gguf"
    write_heads(path, heads_of(spec_of(**_sizes(**SPECS["later"]))))
    assert refusal(tiny_q4["llama"], path) == ""
    set_fact(path, "hydra.later_vocab_size", n)
    assert f"later_vocab_size is {reason}" in refusal(tiny_q4["llama"], path)


def test_values_that_do_not_fit(tiny_q4: Models, path: Path) -> None:
    def outside(d2t: np.ndarray) -> None:
        d2t[3] = N_VOCAB

    def twice(d2t: np.ndarray) -> None:
        d2t[3] = d2t[4]

    def infinite(blocks: np.ndarray) -> None:
        blocks[5, :2] = [0, 0x7C]  # the scale of a block, F16

    def not_a_number(bias: np.ndarray) -> None:
        bias[7] = np.nan

    for name, change, reason in (
        ("d2t", outside, f"d2t names the token {N_VOCAB}"),
        ("d2t", twice, "named twice"),
        ("head.1.blk.0.r.weight", infinite, "head.1.blk.0.r.weight holds values that are not finite"),
        ("head.2.blk.1.l.bias", not_a_number, "head.2.blk.1.l.bias holds values that are not finite"),
    ):
        whole = path.read_bytes()
        edit(path, name, change)
        assert reason in refusal(tiny_q4["llama"], path)
        path.write_bytes(whole)
    assert refusal(tiny_q4["llama"], path) == ""


def test_a_file_cut_off_anywhere(tiny_q4: Models, path: Path) -> None:
    whole = path.read_bytes()
    for n in (*range(0, 2000, 97), *range(2000, len(whole), len(whole) // 20), len(whole) - 64):
        path.write_bytes(whole[:n])
        assert refusal(tiny_q4["llama"], path)


def test_files_of_something_else(tiny_q4: Models, tmp_path: Path) -> None:
    model = tiny_q4["llama"]
    prefix, narrow, missing = (tmp_path / name for name in ("prefix.gguf", "narrow.gguf", "missing.gguf"))
    write_heads(prefix, heads_of(spec_of(**_sizes(**SPECS["hydra-prefix-mlp"]))))
    write_heads(narrow, heads_of(spec_of(**_sizes(n_embd=64))))
    assert "prefix layer" in refusal(model, prefix)
    assert f"hidden states have {N_EMBD} elements, the heads take 64" in refusal(model, narrow)
    assert "holds no draft heads" in refusal(model, model.path)
    assert refusal(model, missing)
    assert "invalid arguments" in refusal(model, prefix, flags=4)


def test_what_the_library_refuses_names_file_and_reason(tiny_q4: Models, path: Path, make_patched: MakePatched) -> None:
    model = tiny_q4["llama"]
    edit(path, "d2t", lambda d2t: d2t.fill(0))
    with pytest.raises(ModelError, match=r"heads\.gguf gives no heads: .*named twice"):
        NativeHeads(model, make_patched(model), path)


def test_trees_that_are_none(tiny_q4: Models, path: Path) -> None:
    model = tiny_q4["llama"]
    lib: Any = bindings.library()
    handle = lib.llama_heads_load(model.handle, os.fsencode(path), 0)

    def plan(parents: list[int], ranks: list[int]) -> Any:
        arrays = (np.array(values, dtype=np.int32) for values in (parents, ranks))
        return lib.llama_heads_plan_init(handle, len(parents), *(array.ctypes.data for array in arrays))

    for parents, ranks in (
        ([], []),
        ([0], [0]),
        ([-1, 1], [0, 0]),
        ([-1, -1], [0, 0]),
        ([-1, 0], [0, -1]),
        ([-1, 0], [0, 37]),
        ([-1, 0, 1, 2, 3, 4], [0] * 6),
        ([-1] + [0] * 256, [0] * 257),
    ):
        assert not plan(parents, ranks)
    made = plan([-1, 0], [0, 36])
    assert made
    lib.llama_heads_plan_free(made)
    lib.llama_heads_free(handle)


def test_a_context_of_another_model_is_refused(tiny_q4: Models, tiny: Models, path: Path, make_patched) -> None:
    heads = NativeHeads(tiny_q4["llama"], make_patched(tiny["llama"]), path)
    with pytest.raises(EngineError, match="another model"):
        heads.draft(np.zeros(N_EMBD, dtype=np.float32), 5, StaticTree.greedy(2))
    heads.close()
