"""The identity of a base model: the same for all its quantisations, another one for another training."""

from __future__ import annotations

import struct

import pytest

from localspec.gguf_check import check_gguf
from localspec.heads.base import base_fingerprint
from tests.tiny_models import N_VOCAB, write_tiny


def test_all_quantisations_of_a_model_share_it(tmp_path):
    first = base_fingerprint(write_tiny(tmp_path / "a.gguf"), N_VOCAB)
    assert len(first) == 16
    assert base_fingerprint(write_tiny(tmp_path / "b.gguf", quantised=False), N_VOCAB) == first
    assert base_fingerprint(write_tiny(tmp_path / "a.gguf"), N_VOCAB + 1) != first
    assert base_fingerprint(write_tiny(tmp_path / "c.gguf", kind="gemma3"), N_VOCAB) != first


@pytest.mark.parametrize("name", ["blk.0.attn_norm.weight", "output_norm.weight"])
def test_another_training_has_another_one(tmp_path, name):
    path = write_tiny(tmp_path / "a.gguf")
    first = base_fingerprint(path, N_VOCAB)
    at = check_gguf(path).tensors[name].at
    data = bytearray(path.read_bytes())
    (value,) = struct.unpack_from("<f", data, at.start)
    struct.pack_into("<f", data, at.start, value + 0.25)
    path.write_bytes(data)
    assert base_fingerprint(path, N_VOCAB) != first
