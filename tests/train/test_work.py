"""Work folders: whose they are, and whether they fit the disk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localspec.errors import UsageError
from localspec.train.work import DataOptions, HeadOptions, WorkFolder

DATA = DataOptions("0123456789abcdef", "fedcba9876543210", 1000, 64, 0.8, 1, 8)


def test_the_same_options_go_on(tmp_path):
    WorkFolder(tmp_path / "w", DATA)
    folder = WorkFolder(tmp_path / "w", DATA)
    folder.claim_heads(HeadOptions())
    folder.checkpoint.write_bytes(b"")
    folder.claim_heads(HeadOptions())


@pytest.mark.parametrize(
    ("change", "name"),
    [({"tokens": 2000}, "--tokens"), ({"fingerprint": "0" * 16}, "model"), ({"prompts": "0" * 16}, "--prompts"),
     ({"seed": 2}, "--seed"), ({"temperature": 0.7}, "--temp"), ({"n_parallel": 4}, "--parallel")],
)  # fmt: skip
def test_other_data_are_refused(tmp_path, change, name):
    WorkFolder(tmp_path / "w", DATA)
    with pytest.raises(UsageError, match=f"another {name}: ") as caught:
        WorkFolder(tmp_path / "w", replace(DATA, **change))
    assert "another folder with --work" in str(caught.value.hint)


def test_other_heads_are_refused_while_a_training_is_under_way(tmp_path):
    folder = WorkFolder(tmp_path / "w", DATA)
    folder.claim_heads(HeadOptions(n_heads=4))
    folder.claim_heads(HeadOptions(n_heads=3))
    folder.checkpoint.write_bytes(b"")
    with pytest.raises(UsageError, match="another --heads: 3, not 2") as caught:
        folder.claim_heads(HeadOptions(n_heads=2))
    assert "delete" in str(caught.value.hint)
    folder.checkpoint.unlink()
    folder.claim_heads(HeadOptions(n_heads=2))


def test_folders_of_something_else_are_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(UsageError, match="no training data"):
        WorkFolder(tmp_path, DATA)
    WorkFolder(tmp_path / "w", DATA)
    (tmp_path / "w" / "data.json").write_text("{}")
    with pytest.raises(UsageError, match="could go on with"):
        WorkFolder(tmp_path / "w", DATA)
    with pytest.raises(UsageError, match="cannot be written"):
        WorkFolder(tmp_path / "mine.txt" / "w", DATA)


def test_a_full_disk_is_refused_before_it_is_full(tmp_path):
    folder = WorkFolder(tmp_path / "w", DATA)
    folder.check_space(1)
    with pytest.raises(UsageError, match=r"the training data take .* GB, but"):
        folder.check_space(1 << 60)


@pytest.mark.parametrize("name", ["n_heads", "n_layers", "vocab", "batch"])
def test_head_options_are_positive(name):
    HeadOptions().check()
    with pytest.raises(UsageError, match=f"{name} is 0"):
        HeadOptions(**{name: 0}).check()


def test_heads_that_are_there_need_no_further_training():
    HeadOptions(epochs=0, init="0123456789abcdef").check()
    for options in (HeadOptions(epochs=0), HeadOptions(epochs=-1, init="0123456789abcdef")):
        with pytest.raises(UsageError, match="leaves the heads untrained"):
            options.check()
