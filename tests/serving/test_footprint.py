"""What a served model takes, told before it is loaded: against what a process really takes, and part by part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.engine import bindings
from localspec.engine.params import ContextParams
from localspec.errors import ModelError
from localspec.gguf_check import check_gguf
from localspec.heads.file import write_heads
from localspec.serving.footprint import Footprint, footprint, free_memory, used_memory
from tests.heads.random_heads import SPECS, heads_of, spec_of
from tests.tiny_encoder import write_tiny_encoder
from tests.tiny_models import N_EMBD, N_VOCAB, write_tiny
from tests.with_model import smollm

PARAMS = ContextParams(n_ctx=2048, n_seq_max=2, partitioned=True, n_threads=1)

#: loads SmolLM2 as a server does, uses all of it, and prints by how many bytes the process has grown
GROWTH = """
import sys
from localspec.engine.model import init_backend
from localspec.serving.embedding import Embedder
from localspec.serving.footprint import used_memory
from localspec.session import Session
from tests.serving.test_footprint import PARAMS

path, most = sys.argv[1], int(sys.argv[2])
init_backend()
before = used_memory()
session = Session.open(path, context=PARAMS, method="plain")
materials = session.materials
materials.corpus, materials.pool, materials.heads
for seq in range(PARAMS.n_seq_max):
    session.ctx.prefill(list(range(100, 100 + session.ctx.n_ctx - most)), seq)
for n in range(1, most + 1):
    session.ctx.decode(list(range(n)), [-1] * n).argmax(0)
    session.ctx.drop()
embedder = Embedder(session.model, PARAMS, session.ctx.n_ctx)
embedder.embed([[5] * 200, [6] * 30, [7] * 30])
print(used_memory() - before)
"""


@pytest.mark.model
@pytest.mark.patched
@pytest.mark.skipif(used_memory() is None, reason="the system does not say what a process takes")
@pytest.mark.skipif(bindings.library() is None, reason="needs the patched library")
@pytest.mark.parametrize(
    ("most", "speculation"), [(2, False), pytest.param(63, True, marks=pytest.mark.slow)], ids=["plain", "trees"]
)
def test_the_estimate_is_within_ten_percent_of_what_a_server_takes(
    most: int, speculation: bool, tmp_path: Path
) -> None:
    path = smollm()
    estimate = footprint(path, PARAMS, speculation=speculation)
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(path), str(most)],
        env={**os.environ, "LOCALSPEC_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert estimate.total == pytest.approx(int(done.stdout), rel=0.1), estimate


def tiny(folder: Path, params: ContextParams = PARAMS, kind: str = "llama", **more: object) -> Footprint:
    path = folder / f"{kind}.gguf"
    if not path.exists():
        write_tiny(path, kind)
    return footprint(path, params, **more)


def test_each_part_follows_what_it_is_made_of(tmp_path: Path) -> None:
    base = tiny(tmp_path)
    assert base.total == sum(getattr(base, name) for name in Footprint.__slots__)
    longer = tiny(tmp_path, ContextParams(n_ctx=4096, n_seq_max=2, partitioned=True))
    assert longer.context > base.context and longer.weights == base.weights
    assert tiny(tmp_path, embeddings=False).embeddings == 0 < base.embeddings
    assert tiny(tmp_path, speculation=False).graphs <= base.graphs
    heads = tmp_path / "heads"
    heads.write_bytes(b"x" * 1000)
    assert tiny(tmp_path, heads=(heads,)).heads >= 1000 > base.heads == 0


@pytest.mark.parametrize(("kind", "rows"), [("hydra-mlp", N_VOCAB), ("trimmed", 37), ("medusa", 0)])
def test_heads_on_a_device_have_the_embeddings_that_they_need_beside_them(
    kind: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.serving.footprint.on_gpu", lambda n_gpu_layers: n_gpu_layers != 0)
    path = write_tiny(tmp_path / "llama.gguf")
    heads = tmp_path / "heads.gguf"
    write_heads(heads, heads_of(spec_of(**(SPECS[kind] | {"n_embd": N_EMBD, "n_vocab": N_VOCAB}))))
    table = len(check_gguf(path).tensors["token_embd.weight"].at)
    size = heads.stat().st_size
    assert tiny(tmp_path, heads=(heads,)).heads == 2 * size
    assert tiny(tmp_path, heads=(heads,), n_gpu_layers=1).heads == size + table * rows // N_VOCAB


def test_a_draft_model_has_a_context_for_each_slot(tmp_path: Path) -> None:
    draft = write_tiny(tmp_path / "draft.gguf")
    two = tiny(tmp_path, draft=(draft, None)).drafts
    four = tiny(tmp_path, ContextParams(n_ctx=4096, n_seq_max=4, partitioned=True), draft=(draft, None)).drafts
    size = draft.stat().st_size
    assert four - size > 1.5 * (two - size) > 0
    assert tiny(tmp_path, draft=(draft, 128)).drafts < two
    with pytest.raises(ModelError):
        tiny(tmp_path, draft=(tmp_path / "nowhere.gguf", None))


@pytest.mark.parametrize("kind", ["mamba", "lfm2", "gemma3", "qwen2vl"])
def test_there_is_an_estimate_for_every_kind_of_model(kind: str, tmp_path: Path) -> None:
    estimate = tiny(tmp_path, kind=kind)
    assert estimate.total > estimate.weights > 0


def test_encoders_have_no_context(tmp_path: Path) -> None:
    estimate = footprint(write_tiny_encoder(tmp_path / "tiny.gguf"), PARAMS)
    assert estimate.context == estimate.graphs == estimate.learned == 0
    assert estimate.weights > 0 and estimate.embeddings > 0


def test_this_machine_has_memory() -> None:
    assert free_memory(0) is None or free_memory(0) > 0
    assert used_memory() is None or used_memory() > 1 << 20
