"""`Llama.from_pretrained`: which files it gets, and how it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from localspec import Llama
from localspec.errors import DownloadError, UsageError
from tests.server.fake import FakeEngine

FILES = ["README.md", "big-q8_0.gguf", "big-q4_0.gguf", "split/part-1.gguf", "split/part-2.gguf"]


@pytest.fixture
def got(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were downloaded."""
    names: list[str] = []

    def download(repo_id: str, name: str, **folders: Any) -> str:
        names.append(name)
        return str((folders["local_dir"] or Path("/cache")) / name)

    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", lambda self, repo_id: FILES)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return names


def test_a_pattern_means_one_file(got: list[str]) -> None:
    model = Llama.from_pretrained("someone/big", "*q8_0.gguf", engine=FakeEngine())
    assert got == ["big-q8_0.gguf"] and model.model_path == "/cache/big-q8_0.gguf"
    assert model("hello")["choices"][0]["text"] == "hello"


def test_further_files_and_a_folder(got: list[str], tmp_path: Path) -> None:
    model = Llama.from_pretrained(
        "someone/big", "*part-1*", additional_files=["*part-2*"], local_dir=tmp_path, engine=FakeEngine()
    )
    assert got == ["split/part-1.gguf", "split/part-2.gguf"]
    assert model.model_path == str(tmp_path / "split/part-1.gguf")


@pytest.mark.parametrize(("pattern", "n"), [("*.gguf", 4), ("nothing*", 0)])
def test_a_pattern_that_means_several_files_or_none(got: list[str], pattern: str, n: int) -> None:
    with pytest.raises(ValueError, match=f"{n} files of someone/big") as caught:
        Llama.from_pretrained("someone/big", pattern, engine=FakeEngine())
    assert isinstance(caught.value, UsageError) and "big-q4_0.gguf" in str(caught.value) and not got


def test_what_the_network_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, repo_id: str) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", fail)
    with pytest.raises(DownloadError, match="no route to host"):
        Llama.from_pretrained("someone/big", "*", engine=FakeEngine())
