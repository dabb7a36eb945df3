"""Patches apply exactly or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from ggml_patches.backend import patching
from ggml_patches.backend.errors import BuildError
from ggml_patches.backend.pins import PACKAGE

from .conftest import FILES, PATCH, UPSTREAM, Workshop


@pytest.fixture
def tree(workshop: Workshop, tmp_path: Path) -> Path:
    return workshop.tree(tmp_path / "tree")


def apply(workshop: Workshop, tree: Path, text: str) -> None:
    patching.apply_patch(workshop.write("patches/0009-case.patch", text), tree)


def test_changes_exactly_the_lines_of_the_hunk(workshop: Workshop, tree: Path) -> None:
    apply(workshop, tree, PATCH)
    assert (tree / "vendor/a.cpp").read_text() == "one\ntwo\n3\nfour\nfive\nsix\nseven\n"


def test_several_hunks_and_files_in_git_format(workshop: Workshop, tree: Path) -> None:
    text = """\
From 0000 Mon Sep 17 00:00:00 2001
Subject: header text, with a line that looks like a diff
--- not a file

diff --git a/vendor/a.cpp b/vendor/a.cpp
index 1..2 100644
--- a/vendor/a.cpp
+++ b/vendor/a.cpp
@@ -1 +1,2 @@
 one
+one and a half
@@ -5,3 +6,2 @@ four
 five
-six
 seven
diff --git a/README.md b/README.md
index 1..2 100644
--- a/README.md
+++ b/README.md
@@ -0,0 +1 @@
+top
"""
    apply(workshop, tree, text + "-- \n2.40.0\n")  # a mailed patch ends so
    assert (tree / "vendor/a.cpp").read_text() == "one\none and a half\ntwo\nthree\nfour\nfive\nseven\n"
    assert (tree / "README.md").read_text() == "top\nfake\n"


def test_a_removed_line_that_begins_with_dashes_is_not_a_file_name(workshop: Workshop, tree: Path) -> None:
    (tree / "vendor/a.cpp").write_text("-- old\n++ kept\n")
    apply(workshop, tree, "--- a/vendor/a.cpp\n+++ b/vendor/a.cpp\n@@ -1,2 +1,2 @@\n--- old\n+++ new\n ++ kept\n")
    assert (tree / "vendor/a.cpp").read_text() == "++ new\n++ kept\n"


@pytest.mark.parametrize(
    ("why", "old", "new"),
    [
        ("offset", "@@ -2,3 +2,3 @@", "@@ -3,3 +3,3 @@"),
        ("offset in the new file only", "@@ -2,3 +2,3 @@", "@@ -2,3 +3,3 @@"),
        ("fuzz in the first context line", " two\n", " TWO\n"),
        ("fuzz in the last context line", " four\n", " four \n"),
        ("another line removed", "-three\n", "-threE\n"),
        ("other line ending", "-three\n", "-three\r\n"),
    ],
)
def test_refused_naming_patch_file_and_hunk(workshop: Workshop, tree: Path, why: str, old: str, new: str) -> None:
    assert old in PATCH
    with pytest.raises(BuildError, match=r"0009-case\.patch does not apply: vendor/a\.cpp, hunk 1 \(@@ "):
        apply(workshop, tree, PATCH.replace(old, new))
    assert (tree / "vendor/a.cpp").read_text() == FILES["vendor/a.cpp"]


def test_a_patch_does_not_apply_twice(workshop: Workshop, tree: Path) -> None:
    apply(workshop, tree, PATCH)
    with pytest.raises(BuildError, match="does not apply"):
        apply(workshop, tree, PATCH)


def test_new_file(workshop: Workshop, tree: Path) -> None:
    text = "--- /dev/null\n+++ b/vendor/sub/made.txt\n@@ -0,0 +1,2 @@\n+a\n+b\n"
    apply(workshop, tree, text)
    assert (tree / "vendor/sub/made.txt").read_text() == "a\nb\n"
    with pytest.raises(BuildError, match="exists already"):
        apply(workshop, tree, text)


def test_deleted_file(workshop: Workshop, tree: Path) -> None:
    text = "--- a/vendor/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n"
    apply(workshop, tree, text)
    assert not (tree / "vendor/gone.txt").exists()
    with pytest.raises(BuildError, match="does not exist"):
        apply(workshop, tree, text)


def test_a_file_is_deleted_only_when_all_its_lines_are_known(workshop: Workshop, tree: Path) -> None:
    (tree / "vendor/gone.txt").write_text("bye\nmore\n")
    with pytest.raises(BuildError, match="more lines than the patch removes"):
        apply(workshop, tree, "--- a/vendor/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n")


@pytest.mark.parametrize(
    ("hunk", "result"),
    [
        ("-last\n\\ No newline at end of file\n+end\n\\ No newline at end of file\n", b"first\nend"),
        ("-last\n\\ No newline at end of file\n+last\n", b"first\nlast\n"),
        ("-first\n+start\n last\n\\ No newline at end of file\n", b"start\nlast"),
    ],
)
def test_missing_newline_at_the_end(workshop: Workshop, tree: Path, hunk: str, result: bytes) -> None:
    numbers = "@@ -1,2 +1,2 @@\n" if "first" in hunk else "@@ -2 +2 @@\n"
    apply(workshop, tree, f"--- a/vendor/no_newline.txt\n+++ b/vendor/no_newline.txt\n{numbers}{hunk}")
    assert (tree / "vendor/no_newline.txt").read_bytes() == result


def test_a_newline_that_the_file_lacks_is_refused(workshop: Workshop, tree: Path) -> None:
    with pytest.raises(BuildError, match="does not apply"):
        apply(workshop, tree, "--- a/vendor/no_newline.txt\n+++ b/vendor/no_newline.txt\n@@ -2 +2 @@\n-last\n+end\n")


@pytest.mark.parametrize(
    "text",
    [
        "only words\n",
        PATCH.replace(" four\n", ""),
        PATCH.replace("vendor/a.cpp", "../a.cpp"),
        "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n",
        "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n" + "diff --git a/y b/y\n" + PATCH,
        "--- a/vendor/a.cpp\n+++ b/vendor/a.cpp\n",
        "--- a/vendor/a.cpp\n+++ b/vendor/b.cpp\n@@ -1 +1 @@\n-one\n+1\n",
    ],
    ids=["no diff", "cut hunk", "outside of the tree", "rename", "mode", "no hunk", "rename with changes"],
)
def test_what_cannot_be_applied_in_full_is_refused(workshop: Workshop, tree: Path, text: str) -> None:
    with pytest.raises(BuildError, match=r"0009-case\.patch"):
        apply(workshop, tree, text)


def test_new_sources_never_overwrite_the_sdist(workshop: Workshop, tree: Path) -> None:
    patching.copy_sources(workshop.package, tree)
    assert (tree / "vendor/new.cpp").read_text() == "new\n"
    workshop.write("src/vendor/a.cpp", "other\n")
    with pytest.raises(BuildError, match=r"src/vendor/a\.cpp would overwrite"):
        patching.copy_sources(workshop.package, workshop.tree(tree.parent / "second"))


def test_the_version_meets_the_pinned_one_and_tells_ours_apart(workshop: Workshop, tree: Path) -> None:
    patching.set_version(workshop.package, tree)
    assert f'__version__ = "{UPSTREAM}+localspec.3"' in (tree / "llama_cpp/__init__.py").read_text()
    with pytest.raises(BuildError, match="has no line __version__"):
        patching.set_version(workshop.package, tree)


def test_patches_are_applied_in_the_order_of_their_numbers(workshop: Workshop, tree: Path) -> None:
    second = "--- a/vendor/a.cpp\n+++ b/vendor/a.cpp\n@@ -3 +3 @@\n-3\n+III\n"
    workshop.write("patches/0002-again.patch", second)
    patching.lay_over(workshop.package, tree)
    assert (tree / "vendor/a.cpp").read_text().splitlines()[2] == "III"


@pytest.mark.parametrize("patch", PACKAGE.patches, ids=lambda patch: patch.stem)
def test_each_patch_of_the_package_is_readable_and_says_why(patch: Path) -> None:
    assert all(file_patch.hunks for file_patch in patching.parse(patch))
    header, _, _ = patch.read_text(encoding="utf-8").partition("diff --git ")
    assert len(header.strip().splitlines()) > 2


def test_new_sources_are_not_touched_by_patches() -> None:
    sources = {path.as_posix() for path in PACKAGE.sources}
    changed = {file_patch.target for patch in PACKAGE.patches for file_patch in patching.parse(patch)}
    assert not sources & changed
