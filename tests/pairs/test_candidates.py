"""`localspec drafts`: the candidates for a target, and why others cannot draft."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from gguf import TokenType
from typer.testing import CliRunner

from localspec import hub
from localspec.cli import app
from localspec.errors import ModelError
from localspec.gguf_check import check_gguf
from localspec.pairs import candidates as module
from localspec.pairs.candidates import Candidate, candidates, step_bytes
from localspec.registry import Registry
from tests.tiny_models import write_tiny


def run(*args: object) -> Any:
    return CliRunner().invoke(app, ["drafts", *map(str, args)], prog_name="localspec")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A models folder, and no other model anywhere."""
    models = tmp_path / "models"
    models.mkdir()
    monkeypatch.setenv("LOCALSPEC_MODELS", str(models))
    monkeypatch.setattr(hub, "embedded_model", lambda: None)
    return models


def by_name(found: list[Candidate]) -> dict[str, Candidate]:
    return {candidate.name: candidate for candidate in found}


def test_every_file_gets_a_verdict(folder: Path) -> None:
    target = write_tiny(folder / "target.gguf", "gemma3")
    write_tiny(folder / "small.gguf", seed=2)
    write_tiny(folder / "foreign.gguf", tokens={264: ("tree", TokenType.NORMAL)})
    write_tiny(folder / "state.gguf", "mamba")
    shutil.copy(target, folder / "copy.gguf")
    (folder / "cut.gguf").write_bytes(target.read_bytes()[:5000])
    (folder / "empty.gguf").touch()
    (folder / "text.gguf").write_text("<html>")
    found = by_name(candidates(target))
    assert next(iter(found)) == "small.gguf"
    assert found["small.gguf"].works
    assert {name for name, one in found.items() if not one.works} == set(found) - {"small.gguf"}
    for name, reason in {
        "foreign.gguf": "id 264",
        "state.gguf": "step back",
        "target.gguf": "the target itself",
        "copy.gguf": "the target itself",
        "cut.gguf": "missing",
        "empty.gguf": "empty",
        "text.gguf": "web page",
    }.items():
        assert reason in found[name].reason


def test_what_works_comes_first_and_then_the_smaller(folder: Path) -> None:
    target = write_tiny(folder / "target.gguf", "gemma3", quantised=False)
    write_tiny(folder / "b-large.gguf", "gemma3")
    write_tiny(folder / "c-small.gguf", "llama")
    write_tiny(folder / "a-foreign.gguf", "llama", eos=3)
    assert [one.name for one in candidates(target)] == ["c-small.gguf", "b-large.gguf", "a-foreign.gguf", "target.gguf"]


def test_a_draft_model_that_hardly_pays_says_so(folder: Path) -> None:
    target = write_tiny(folder / "target.gguf", "gemma3")
    write_tiny(folder / "half.gguf", "llama")
    write_tiny(folder / "floats.gguf", "gemma3", quantised=False)
    found = by_name(candidates(target))
    half, floats = found["half.gguf"], found["floats.gguf"]
    assert (half.verdict, floats.verdict) == ("works, but", "works, but")
    assert half.share is not None and 0.5 < half.share < 1
    assert "hardly anything to gain" in half.reason
    assert floats.share is not None and floats.share > 1
    assert "no faster than the target" in floats.reason


def test_a_step_reads_no_embedding(tmp_path: Path) -> None:
    info = check_gguf(write_tiny(tmp_path / "tiny.gguf"))
    assert step_bytes(info) == info.matrices.n_bytes
    assert 0 < info.size - step_bytes(info) < info.size


def test_a_pair_that_does_not_fit_in_memory_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = write_tiny(folder / "target.gguf", "gemma3")
    write_tiny(folder / "small.gguf")
    monkeypatch.setattr(module, "judged_memory", lambda: 1000)
    assert "are free" in by_name(candidates(target))["small.gguf"].reason


def test_pairs_of_models_txt_that_are_not_here_are_offered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "big target someone/Big-GGUF big.gguf F16 - MIT here,elsewhere",
        "here draft someone/Here-GGUF here.gguf Q4_1 - MIT -",
        "elsewhere draft someone/Elsewhere-GGUF elsewhere.gguf Q4_1 - MIT -",
    ]
    path = folder / "models.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    known = Registry.load(path)
    monkeypatch.setattr(hub, "registry", lambda: known)
    target = write_tiny(folder / "big.gguf", "gemma3", quantised=False)
    write_tiny(folder / "here.gguf", "llama")
    verdicts = [(one.name, one.verdict) for one in candidates(target)]
    assert verdicts == [("here", "works"), ("elsewhere", "not here"), ("big", "no")]
    out = run("big").stdout
    assert "not on this machine: `localspec pull elsewhere`" in out


def test_models_in_the_folder_of_the_target_are_candidates_by_their_path(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target, draft = write_tiny(elsewhere / "target.gguf", "gemma3"), write_tiny(elsewhere / "draft.gguf", seed=2)
    write_tiny(folder / "small.gguf", seed=3)
    found = by_name(candidates(target))
    assert set(found) == {str(draft), "small.gguf"}
    assert found[str(draft)].works and found[str(draft)].path == draft
    # a model of the models folder is there once, however its folder is named
    (tmp_path / "link").symlink_to(folder)
    assert set(by_name(candidates(tmp_path / "link" / "small.gguf"))) == {"small.gguf"}


def test_a_target_that_cannot_be_used_is_an_error(folder: Path) -> None:
    (folder / "cut.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="truncated"):
        candidates(folder / "cut.gguf")
    result = run("cut.gguf")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: ")


def test_the_command_prints_a_table_or_json(folder: Path) -> None:
    target = write_tiny(folder / "target.gguf", "gemma3", quantised=False)
    write_tiny(folder / "small.gguf")
    write_tiny(folder / "foreign.gguf", eos=3)
    report = json.loads(run("target.gguf", "--json").stdout)
    assert report["target"] == {"name": "target", "path": str(target), "size": target.stat().st_size}
    rows = {row["name"]: row for row in report["drafts"]}
    assert rows["small.gguf"]["works"] is True
    assert rows["small.gguf"]["reason"] is None
    assert 0 < rows["small.gguf"]["share_of_step"] < 0.5
    assert rows["foreign.gguf"]["works"] is False
    assert "end tokens differ" in rows["foreign.gguf"]["reason"]
    out = run("target.gguf").stdout
    assert "works" in out
    assert "no: the end tokens differ" in out
    (folder / "small.gguf").unlink()
    assert "None of the models on this machine can draft for it." in run("target.gguf").stdout
