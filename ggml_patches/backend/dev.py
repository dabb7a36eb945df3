"""The developer's side: a patched source tree as a git repository, and the way back to patch files.

In the tree, tag `upstream` is the sdist, tag `base` adds the new sources and the version, and every patch is one
commit on top, whose first line is the name of its file and whose other lines are its header.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from . import patching, sdist, wheel
from .errors import BuildError, say
from .pins import Package

_NAME = re.compile(r"\d{4}-[a-z0-9-]+")
_INDEX = re.compile(rb"^index [0-9a-f]+\.\.[0-9a-f]+.*\n", re.MULTILINE)
_GIT = ["git", "-c", "user.name=localspec", "-c", "user.email=localspec@localhost", "-c", "commit.gpgsign=false"]
_GIT += ["-c", "core.autocrlf=false"]


def make_tree(package: Package, folder: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Make `folder`, a git repository with one commit per patch. Raises BuildError when it exists."""
    with _new(folder) as temporary:
        archive = sdist.obtain(package.pin, wheel.sdist_folder(environ), environ)
        tree = sdist.unpack(archive, temporary)
        _git(tree, "init", "--quiet")
        _commit(tree, f"{package.pin.name} {package.pin.version}")
        _git(tree, "tag", "upstream")
        patching.copy_sources(package, tree)
        patching.set_version(package, tree)
        _commit(tree, "new sources and version")
        _git(tree, "tag", "base")
        for patch in package.patches:
            patching.apply_patch(patch, tree)
            _commit(tree, f"{patch.stem}\n\n{_header(patch)}")
        tree.replace(folder)
    say(f"made {folder}: {len(package.patches)} patches as commits after the tag base")


def make_sources(package: Package, folder: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Make `folder`, the patched sources alone, without git. Raises BuildError when it exists."""
    with _new(folder) as temporary:
        wheel.patched_tree(package, temporary, environ).replace(folder)
    say(f"made {folder}")


@contextmanager
def _new(folder: Path) -> Iterator[Path]:
    """A temporary folder beside one that must not exist yet."""
    if folder.exists():
        raise BuildError(f"{folder} exists already", "name a new folder, or remove it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".localspec-tree-", dir=folder.parent) as temporary:
        yield Path(temporary)


def refresh(package: Package, tree: Path) -> None:
    """Write patches and new sources from the commits of a tree of `make_tree`. What is not committed is refused."""
    if _git(tree, "status", "--porcelain").strip():
        raise BuildError(f"{tree} has changes that are not committed", "commit them: one commit is one patch")
    added = _git(tree, "diff", "--name-only", "--no-renames", "--diff-filter=A", "upstream", "HEAD").splitlines()
    patches = _patches(tree, added)  # everything is read before anything is replaced
    shutil.rmtree(package.sources_root, ignore_errors=True)
    for name in added:
        target = package.sources_root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / name, target)
    for old in package.patches:
        old.unlink()
    for name, content in patches.items():
        (package.root / "patches" / f"{name}.patch").write_bytes(content)
    say(f"wrote {len(patches)} patches and {len(added)} new sources")


def _patches(tree: Path, added: list[str]) -> dict[str, bytes]:
    """File stem -> content, of every commit after `base` that changes a file of the sdist."""
    found: dict[str, bytes] = {}
    for commit in _git(tree, "rev-list", "--reverse", "base..HEAD").split():
        name, _, header = _git(tree, "log", "-1", "--format=%B", commit).strip().partition("\n")
        excluded = [f":(exclude,literal){path}" for path in added]
        options = ["--no-color", "--no-ext-diff", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/"]
        diff = _git_bytes(tree, "diff", *options, f"{commit}^", commit, "--", ".", *excluded)
        if not diff:
            continue  # it changes new sources only
        if not _NAME.fullmatch(name) or name in found:
            raise BuildError(
                f"commit {commit[:10]} begins with {name!r}",
                "begin it with the name of its patch, such as 0007-kv-shift",
            )
        # git's blob names say nothing to a reader and change with every edit below
        found[name] = f"{header.strip()}\n\n".encode() + _INDEX.sub(b"", diff)
    return found


def _header(patch: Path) -> str:
    """The text of a patch file before its first diff."""
    text = patch.read_text(encoding="utf-8")
    return re.split(r"^(?:diff --git |--- )", text, maxsplit=1, flags=re.MULTILINE)[0].strip()


def _commit(tree: Path, message: str) -> None:
    # -f: the sdist has files that its own .gitignore names
    _git(tree, "add", "--all", "--force")
    _git(tree, "commit", "--quiet", "--no-verify", "--allow-empty", "--cleanup=verbatim", "-m", message)


def _git(tree: Path, *arguments: str) -> str:
    return _git_bytes(tree, *arguments).decode("utf-8", errors="surrogateescape")


def _git_bytes(tree: Path, *arguments: str) -> bytes:
    try:
        result = subprocess.run([*_GIT, *arguments], cwd=tree, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise BuildError(f"git or {tree} was not found", "install git and name a tree made with: tree DIR") from error
    if result.returncode != 0:
        text = result.stderr.decode(errors="replace").strip().splitlines()
        raise BuildError(f"git {arguments[0]} failed in {tree} ({text[-1] if text else 'no message'})")
    return result.stdout
