"""Shards on disk: whole or not there."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from localspec.errors import UsageError
from localspec.train.shards import ShardFolder, bytes_per_token
from tests.train.made import H, shard


def test_what_is_written_is_what_is_read(tmp_path):
    folder = ShardFolder(tmp_path, H)
    written = shard([5, 3])
    folder.write(2, written)
    read = folder.read(2)
    assert read is not None
    for name in ("hidden", "tokens", "best_ids", "best_logits", "lengths", "prompts"):
        assert np.array_equal(getattr(read, name), getattr(written, name))
    assert folder.read(0) is None
    size = sum(path.stat().st_size for path in (tmp_path / "shard-00002").iterdir())
    assert size - 6 * 128 == 8 * bytes_per_token(H) + 2 * 8


@pytest.mark.parametrize("name", ["hidden", "tokens", "lengths"])
@pytest.mark.parametrize("harm", ["cut", "empty", "gone"])
def test_a_harmed_shard_counts_as_missing_and_can_be_made_again(tmp_path, name, harm):
    folder = ShardFolder(tmp_path, H)
    folder.write(0, shard([4, 4]))
    path = tmp_path / "shard-00000" / f"{name}.npy"
    if harm == "gone":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-3] if harm == "cut" else b"")
    assert folder.read(0) is None
    folder.write(0, shard([4, 4]))
    assert folder.read(0) is not None


def test_parts_of_different_shards_do_not_make_one(tmp_path):
    folder = ShardFolder(tmp_path, H)
    folder.write(0, shard([4, 4]))
    folder.write(1, shard([4, 5]))
    shutil.copy(tmp_path / "shard-00001" / "tokens.npy", tmp_path / "shard-00000" / "tokens.npy")
    assert folder.read(0) is None
    assert ShardFolder(tmp_path, H + 1).read(1) is None


def test_what_a_killed_run_left_is_in_nobodys_way(tmp_path):
    folder = ShardFolder(tmp_path, H)
    left = tmp_path / ".shard-00000.part"
    left.mkdir()
    (left / "tokens.npy").write_bytes(b"half")
    assert folder.read(0) is None
    folder.write(0, shard([3]))
    assert folder.read(0) is not None
    assert not left.exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        ShardFolder(tmp_path / "file", H).write(0, shard([3]))
