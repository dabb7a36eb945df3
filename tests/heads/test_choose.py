"""Which file of heads a model gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localspec.errors import ModelError, ModelNotFoundError, UsageError
from localspec.heads import choose
from localspec.heads.choose import choose_heads
from localspec.heads.file import write_heads
from tests.heads.random_heads import PREFIX, heads_of, spec_of
from tests.tiny_models import N_EMBD, N_VOCAB, write_tiny

pytest.importorskip("llama_cpp")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from localspec.engine.model import Model

    with Model.load(write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf")) as loaded:
        yield loaded


def heads_file(path, **values):
    spec = spec_of(**({"arch": "hydra-mlp", "n_embd": N_EMBD, "n_vocab": N_VOCAB} | values))
    write_heads(path, heads_of(spec))
    return path


def test_one_file_of_each_kind(model, tmp_path):
    hydra = heads_file(tmp_path / "hydra.gguf")
    medusa = heads_file(tmp_path / "medusa.gguf", arch="medusa", grounded=False)
    other = heads_file(tmp_path / "other.gguf", arch="hydra-mlp")
    assert choose_heads(model) == {}
    assert choose_heads(model, [medusa, hydra]) == {"hydra": hydra, "medusa": medusa}
    with pytest.raises(UsageError, match="both hydra heads"):
        choose_heads(model, [hydra, other])


def test_files_that_cannot_serve_are_refused_by_name(model, tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"none\.gguf does not exist"):
        choose_heads(model, [tmp_path / "none.gguf"])
    wide = heads_file(tmp_path / "wide.gguf", n_embd=2 * N_EMBD)
    with pytest.raises(ModelError, match=f"hidden states have {N_EMBD} elements, the heads take {2 * N_EMBD}"):
        choose_heads(model, [wide])
    foreign = heads_file(tmp_path / "foreign.gguf", base_name="vicuna", base_fingerprint="0" * 16)
    with pytest.raises(ModelError, match="made for vicuna and do not fit tiny-llama"):
        choose_heads(model, [foreign])
    prefix = heads_file(tmp_path / "prefix.gguf", arch="hydra-prefix-mlp", prefix=PREFIX)
    with pytest.raises(UsageError, match="has a prefix layer"):
        choose_heads(model, [prefix])
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(foreign.read_bytes()[:-100])
    with pytest.raises(ModelError, match="truncated"):
        choose_heads(model, [cut])


def test_shipped_heads_go_to_the_very_model_that_they_were_made_for(model, tmp_path, monkeypatch):
    from localspec.heads.base import base_facts

    mine = heads_file(tmp_path / "mine.gguf", base_fingerprint=base_facts(model).fingerprint)
    heads_file(tmp_path / "anyone.gguf")
    heads_file(tmp_path / "foreign.gguf", base_fingerprint="0" * 16)
    specs = [(path, choose.read_spec(path)) for path in sorted(tmp_path.iterdir())]
    monkeypatch.setattr(choose, "shipped_heads", lambda: iter(specs))
    assert choose_heads(model) == {"hydra": mine}
    named = heads_file(tmp_path / "named.gguf")
    assert choose_heads(model, [named]) == {"hydra": named}
    monkeypatch.setattr(choose, "shipped_heads", lambda: iter([(mine, replace(specs[2][1], base_fingerprint=""))]))
    assert choose_heads(model) == {}
