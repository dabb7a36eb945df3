"""`localspec train-heads`, from the prompt to the file, with a tiny model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from localspec.cli import app
from localspec.heads.file import read_heads, read_spec
from tests.tiny_models import N_EMBD, N_VOCAB, write_tiny

OPTIONS = ("--tokens", 2500, "--max-tokens", 16, "--vocab", 64, "--epochs", 2, "--batch", 64, "--parallel", 16, "-t", 1)


def run(*args: object) -> Any:
    return CliRunner().invoke(app, ["train-heads", *map(str, args)], prog_name="localspec")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "llama.gguf", "llama")


def test_without_torch_it_says_what_to_install(tmp_path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *args: None if name == "torch" else real(name, *args))
    result = run("any", "-o", tmp_path / "heads.gguf")
    assert result.exit_code == 2
    assert "torch, which is not installed" in result.stderr
    assert "pip install 'localspec[train]'" in result.stderr


def test_it_makes_heads_and_does_not_begin_again(tmp_path, tiny):
    pytest.importorskip("torch")
    out = tmp_path / "new" / "heads.gguf"
    result = run(tiny, "-o", out, *OPTIONS)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.endswith(f"{out}\n")
    assert "Top-1" in result.stdout
    assert "MB of disk" in result.stderr
    heads = read_heads(out)
    spec = heads.spec
    assert (spec.n_heads, spec.n_layers, spec.n_embd, spec.n_vocab, spec.n_draft_vocab) == (4, 2, N_EMBD, N_VOCAB, 64)
    assert spec.shared_output and not spec.tied_blocks and spec.base_name == "tiny-llama" and spec.base_fingerprint
    assert "held-out prompts: top-1 ." in spec.recipe
    first = out.read_bytes()
    again = run(tiny, "-o", out, *OPTIONS)
    assert again.exit_code == 0, again.stderr
    assert "step" not in again.stderr
    assert out.read_bytes() == first


def test_other_options_are_refused(tmp_path, tiny):
    pytest.importorskip("torch")
    assert run(tiny, "-o", tmp_path / "heads.gguf", *OPTIONS).exit_code == 0
    changes = (("--seed", 2), ("--tokens", 900), ("--heads", 3), ("--arch", "medusa"))
    for change, name in ((change, change[0]) for change in changes):
        result = run(tiny, "-o", tmp_path / "heads.gguf", *OPTIONS, *change)
        assert result.exit_code == 2
        assert f"another {name}" in result.stderr
    (tmp_path / "heads-training" / "checkpoint.pt").unlink()
    assert run(tiny, "-o", tmp_path / "heads.gguf", *OPTIONS, "--heads", 3, "--arch", "medusa").exit_code == 0
    spec = read_spec(tmp_path / "heads.gguf")
    assert (spec.n_heads, spec.arch, spec.grounded) == (3, "medusa", False)


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--type", "q5_k"), "'q5_k' is not known"), (("--arch", "eagle"), "'eagle' cannot be trained"),
     (("--device", "tpu"), "'tpu' is not known"), (("--rounded", "--type", "f16"), "weights of --type f16"),
     (("--prompts", "none.jsonl"), "none.jsonl cannot be read"), (("--epochs", 0), "--epochs 0 leaves"),
     (("--vocab", 80, "--later-vocab", 70), "70 tokens for heads after the first are no multiple of 64")],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_at_once(tmp_path, tiny, options, message):
    pytest.importorskip("torch")
    result = run(tiny, "-o", tmp_path / "heads.gguf", *OPTIONS, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "heads-training" / "data").exists()


def test_heads_are_trained_further_on_new_data(tmp_path, tiny):
    pytest.importorskip("torch")
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    assert run(tiny, "-o", first, *OPTIONS).exit_code == 0
    again = ("-o", second, *OPTIONS, "--seed", 2, "--vocab", 80)
    result = run(tiny, *again, "--init", first)
    assert result.exit_code == 0, result.stderr
    old, new = read_heads(first), read_heads(second)
    assert new.d2t is not None and old.d2t is not None and set(old.d2t) < set(new.d2t) and len(new.d2t) == 80
    assert f"begun from: {old.spec.recipe}" in new.spec.recipe
    result = run(tiny, *again)
    assert result.exit_code == 2 and "another --init" in result.stderr
    result = run(tiny, *again, "--blocks", 3, "--init", first)
    assert result.exit_code == 2 and "another --blocks: 2, not 3" in result.stderr


def test_heads_are_told_anew_which_tokens_are_frequent(tmp_path, tiny):
    pytest.importorskip("torch")
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    options = (*OPTIONS, "--vocab", 80, "--type", "f32")
    assert run(tiny, "-o", first, *options).exit_code == 0
    result = run(tiny, "-o", second, *options, "--seed", 2, "--later-vocab", 64, "--epochs", 0, "--init", first)
    assert result.exit_code == 0, result.stderr
    old, new = read_heads(first), read_heads(second)
    assert (old.spec.n_later_vocab, new.spec.n_later_vocab) == (0, 64)
    assert old.d2t is not None and new.d2t is not None
    assert np.array_equal(old.d2t, np.sort(new.d2t)) and not np.array_equal(old.d2t, new.d2t)
    rows = np.searchsorted(old.d2t, new.d2t)
    assert np.array_equal(new.tensors["output.weight"], old.tensors["output.weight"][rows])


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path, tiny):
    pytest.importorskip("torch")
    assert "is a directory" in run(tiny, "-o", tmp_path, *OPTIONS).stderr
    (tmp_path / "file").write_text("")
    assert "cannot be written" in run(tiny, "-o", tmp_path / "file" / "heads.gguf", *OPTIONS).stderr


def test_ctrl_c_is_told_and_goes_on(tmp_path, tiny, monkeypatch):
    pytest.importorskip("torch")
    from localspec.train.trainer import Trainer

    real = Trainer.train
    monkeypatch.setattr(Trainer, "train", lambda self, progress: real(self, lambda report: report.step < 3))
    result = run(tiny, "-o", tmp_path / "heads.gguf", *OPTIONS)
    assert result.exit_code == 130
    assert "stopped after step 3" in result.stderr
    assert not (tmp_path / "heads.gguf").exists()
    monkeypatch.setattr(Trainer, "train", real)
    assert run(tiny, "-o", tmp_path / "heads.gguf", *OPTIONS).exit_code == 0
    whole = run(tiny, "-o", tmp_path / "whole.gguf", *OPTIONS)
    assert whole.exit_code == 0
    ours, theirs = read_heads(tmp_path / "heads.gguf"), read_heads(tmp_path / "whole.gguf")
    assert ours.d2t is not None and theirs.d2t is not None
    assert all(np.array_equal(ours.tensors[name], theirs.tensors[name]) for name in ours.tensors)
