"""Only the pinned bytes are built, and nothing leaves the folder that they are unpacked to."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from ggml_patches.backend import sdist
from ggml_patches.backend.errors import BuildError
from ggml_patches.backend.pins import Pin

from .conftest import FILES, UPSTREAM, Workshop, write_sdist


class FakePip:
    """Stands for `pip download`: writes a file, or fails with a message."""

    def __init__(self, content: bytes = b"", error: str = "") -> None:
        self.content, self.error, self.runs = content, error, 0

    def __call__(self, command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        self.runs += 1
        requirement = Path(command[command.index("--requirement") + 1]).read_text().split()
        name, version = requirement[0].split("==")
        if not self.error:
            folder = Path(command[command.index("--dest") + 1])
            (folder / f"{name}-{version}.tar.gz").write_bytes(self.content)
        return subprocess.CompletedProcess(command, 1 if self.error else 0, stderr=self.error)


def test_a_named_sdist_is_used_after_its_hash_was_checked(workshop: Workshop, tmp_path: Path) -> None:
    assert sdist.obtain(workshop.package.pin, tmp_path / "cache", workshop.environ) == workshop.sdist
    with pytest.raises(BuildError, match=r"sha256 [0-9a-f]{64}, but .* LOCALSPEC_LLAMA_SDIST"):
        sdist.obtain(replace(workshop.package.pin, sha256="0" * 64), tmp_path / "cache", workshop.environ)


@pytest.mark.parametrize("name", ["missing.tar.gz", "."])
def test_a_named_sdist_that_is_no_file(workshop: Workshop, tmp_path: Path, name: str) -> None:
    environ = {"LOCALSPEC_LLAMA_SDIST": str(tmp_path / name)}
    with pytest.raises(
        BuildError, match=r"LOCALSPEC_LLAMA_SDIST names .*, which is not a file; point it at fake_llama"
    ):
        sdist.obtain(workshop.package.pin, tmp_path / "cache", environ)


def test_downloaded_once_then_taken_from_the_cache(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = FakePip(workshop.sdist.read_bytes())
    monkeypatch.setattr(sdist.subprocess, "run", pip)
    first = sdist.obtain(workshop.package.pin, tmp_path / "cache", {})
    assert sdist.obtain(workshop.package.pin, tmp_path / "cache", {}) == first
    assert pip.runs == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [workshop.package.pin.file_name]


def test_a_damaged_cached_sdist_is_fetched_again(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = FakePip(workshop.sdist.read_bytes())
    monkeypatch.setattr(sdist.subprocess, "run", pip)
    path = sdist.obtain(workshop.package.pin, tmp_path / "cache", {})
    path.write_bytes(path.read_bytes()[:-1])
    assert sdist.obtain(workshop.package.pin, tmp_path / "cache", {}).read_bytes() == workshop.sdist.read_bytes()


@pytest.mark.parametrize(
    ("pip", "message"),
    [
        (FakePip(b"something else"), "does not have the sha256"),
        (FakePip(error="ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE."), "have the sha256"),
        (
            FakePip(error="WARNING: Retrying\nERROR: Could not find a version\nERROR: No matching distribution\n"),
            r"could not download .* \(Could not find a version\); check the network .* LOCALSPEC_LLAMA_SDIST",
        ),
        (FakePip(error="/usr/bin/python3: No module named pip"), "No module named pip"),
    ],
    ids=["wrong file", "pip finds a wrong hash", "no network", "no pip"],
)
def test_a_failed_download_says_what_to_do_and_leaves_nothing(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pip: FakePip, message: str
) -> None:
    monkeypatch.setattr(sdist.subprocess, "run", pip)
    with pytest.raises(BuildError, match=message) as error:
        sdist.obtain(workshop.package.pin, tmp_path / "cache", {})
    assert "\n" not in str(error.value)
    assert list((tmp_path / "cache").iterdir()) == []


def test_unpacks_the_sources_without_the_git_history(workshop: Workshop, tmp_path: Path) -> None:
    tree = sdist.unpack(workshop.sdist, tmp_path / "tree")
    files = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    assert files == set(FILES) - {".git/HEAD"}


def test_unpacks_only_what_is_wanted(workshop: Workshop, tmp_path: Path) -> None:
    tree = sdist.unpack(workshop.sdist, tmp_path / "tree", lambda path: path == PurePosixPath("README.md"))
    assert [path.name for path in tree.rglob("*")] == ["README.md"]


@pytest.mark.parametrize("name", ["../../evil", "../other/evil"])
@pytest.mark.parametrize("with_filter", [True, False])
def test_refuses_members_outside_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, with_filter: bool
) -> None:
    if not with_filter:  # Python releases before tarfile learned to filter
        monkeypatch.delattr("tarfile.data_filter", raising=False)
    path = tmp_path / "bad-1.tar.gz"
    write_sdist(path, {"README.md": "", name: "x"}, "bad-1")
    with pytest.raises(BuildError, match="outside of bad-1"):
        sdist.unpack(path, tmp_path / "a" / "b")
    assert not list(tmp_path.rglob("evil"))


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "bad-1.tar.gz"
    path.write_bytes(b"not gzip")
    with pytest.raises(BuildError, match="cannot be unpacked"):
        sdist.unpack(path, tmp_path / "tree")


def test_the_pin_is_what_localspec_depends_on() -> None:
    from ggml_patches.backend.pins import PACKAGE

    root = Path(__file__).parents[2]
    assert f'"llama-cpp-python=={PACKAGE.pin.version}"' in (root / "pyproject.toml").read_text(encoding="utf-8")
    assert PACKAGE.root == root / "ggml_patches"


def test_a_pin_becomes_a_requirement_with_a_hash() -> None:
    assert Pin("a", "1", "ff").requirement == "a==1 --hash=sha256:ff"
    assert UPSTREAM in Pin("a", UPSTREAM, "ff").file_name
