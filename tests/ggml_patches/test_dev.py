"""A developer's tree and back: patches survive the round trip, and a commit becomes a patch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ggml_patches.backend import dev
from ggml_patches.backend.errors import BuildError
from ggml_patches.backend.pins import PACKAGE

from .conftest import Workshop

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def tree(workshop: Workshop, tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    dev.make_tree(workshop.package, folder, workshop.environ)
    return folder


def commit(tree: Path, message: str) -> None:
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run([*git, "add", "--all"], cwd=tree, check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", message], cwd=tree, check=True)


def files(workshop: Workshop) -> dict[str, bytes]:
    root = workshop.package.root
    paths = [*workshop.package.patches, *(workshop.package.sources_root / path for path in workshop.package.sources)]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def test_the_tree_is_patched(tree: Path) -> None:
    assert (tree / "vendor/a.cpp").read_text().splitlines()[2] == "3"
    assert (tree / "vendor/new.cpp").is_file()


def test_refresh_without_changes_is_a_fixed_point(workshop: Workshop, tree: Path, tmp_path: Path) -> None:
    dev.refresh(workshop.package, tree)  # the patch of the test is not written by git
    once = files(workshop)
    assert b"A test patch\n\ndiff --git" in once["patches/0001-three.patch"]
    dev.make_tree(workshop.package, tmp_path / "again", workshop.environ)
    dev.refresh(workshop.package, tmp_path / "again")
    assert files(workshop) == once
    assert set(once) == {"patches/0001-three.patch", "src/vendor/new.cpp"}


def test_a_commit_becomes_a_patch_and_new_files_become_sources(workshop: Workshop, tree: Path, tmp_path: Path) -> None:
    (tree / "README.md").write_text("ours\n")
    (tree / "vendor/new.cpp").write_text("newer\n")
    (tree / "vendor/third.cpp").write_text("third\n")
    commit(tree, "0002-readme\n\nWhy this is so")
    dev.refresh(workshop.package, tree)
    made = files(workshop)
    assert set(made) == {
        "patches/0001-three.patch",
        "patches/0002-readme.patch",
        "src/vendor/new.cpp",
        "src/vendor/third.cpp",
    }
    assert made["src/vendor/new.cpp"] == b"newer\n"
    assert made["patches/0002-readme.patch"].startswith(b"Why this is so\n\ndiff --git a/README.md")
    assert b"third" not in made["patches/0002-readme.patch"]
    dev.make_tree(workshop.package, tmp_path / "again", workshop.environ)
    assert (tmp_path / "again/README.md").read_text() == "ours\n"


def test_changes_that_are_not_committed_are_refused(workshop: Workshop, tree: Path) -> None:
    before = files(workshop)
    (tree / "README.md").write_text("ours\n")
    with pytest.raises(BuildError, match="not committed"):
        dev.refresh(workshop.package, tree)
    assert files(workshop) == before


def test_a_commit_without_a_patch_name_is_refused(workshop: Workshop, tree: Path) -> None:
    before = files(workshop)
    (tree / "README.md").write_text("ours\n")
    commit(tree, "wip")
    with pytest.raises(BuildError, match="begins with 'wip'; begin it with the name of its patch"):
        dev.refresh(workshop.package, tree)
    assert files(workshop) == before


def test_the_sources_alone_are_those_of_the_tree(workshop: Workshop, tree: Path, tmp_path: Path) -> None:
    dev.make_sources(workshop.package, tmp_path / "sources", workshop.environ)
    shutil.rmtree(tree / ".git")
    expected, found = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (tree, tmp_path / "sources")
    )
    assert found == expected


def test_the_sources_need_no_installed_package() -> None:
    # -S: the standard library alone, as on a machine where only compilers are
    command = [sys.executable, "-S", "-m", "backend", "sources", "--help"]
    subprocess.run(command, cwd=PACKAGE.root, check=True, capture_output=True)


def test_a_folder_that_exists_is_never_touched(workshop: Workshop, tree: Path) -> None:
    with pytest.raises(BuildError, match="exists already"):
        dev.make_tree(workshop.package, tree, workshop.environ)


def test_a_folder_that_is_no_tree_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    with pytest.raises(BuildError):
        dev.refresh(workshop.package, tmp_path / "missing")
