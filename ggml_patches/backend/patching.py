"""Lay our changes over the unpacked sdist: unified diffs that must match exactly, new files, and the version.

The sdist is pinned, so a hunk is applied only at the very line that it names, with every context line equal. There
is no fuzz and no offset: a patch that would need them was made for other sources.
"""

from __future__ import annotations

import io
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from .errors import BuildError
from .pins import Package

_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_VERSION = re.compile(r'^__version__ = "(?P<version>[^"]*)"$', re.MULTILINE)
_NULL = "/dev/null"


@dataclass
class Hunk:
    """Lines `old`, which begin at line `old_start` of the old file, become `new`. Lines keep their endings."""

    header: str
    old_start: int
    new_start: int
    old: list[bytes] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)


@dataclass
class FilePatch:
    """The hunks of one file; a path of None means that the file does not exist on that side."""

    old_path: str | None
    new_path: str | None
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def target(self) -> str:
        """The file that is changed, made or removed."""
        return self.new_path or self.old_path or _NULL


def lay_over(package: Package, tree: Path) -> None:
    """Apply every patch, copy every new file and set the version. Raises BuildError at the first that fails."""
    for patch in package.patches:
        apply_patch(patch, tree)
    copy_sources(package, tree)
    set_version(package, tree)


def apply_patch(patch: Path, tree: Path) -> None:
    """Apply one patch file, made with `-p1` paths, to the files below `tree`."""
    for file_patch in parse(patch):
        _apply_to_file(patch, file_patch, tree)


def copy_sources(package: Package, tree: Path) -> None:
    """Copy the new files to the same place below `tree`. A file that the sdist has is never overwritten."""
    for relative in package.sources:
        target = tree / relative
        if target.exists():
            raise BuildError(
                f"src/{relative.as_posix()} would overwrite a file of {package.pin.file_name}",
                "make it a patch instead",
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package.sources_root / relative, target)


def set_version(package: Package, tree: Path) -> None:
    """Write our version where scikit-build-core reads it from, and where a program sees it: `llama_cpp.__version__`."""
    path = tree / "llama_cpp" / "__init__.py"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = _VERSION.search(text)
    if found is None or found["version"] != package.pin.version:
        raise BuildError(
            f'{package.pin.file_name} has no line __version__ = "{package.pin.version}"', "fix backend/pins.py"
        )
    path.write_text(_VERSION.sub(f'__version__ = "{package.version}"', text), encoding="utf-8")


def parse(patch: Path) -> list[FilePatch]:
    """Read a patch file. Text before the first file is its header and is skipped.

    Raises BuildError for what is not a plain change of lines: renames, modes, binary data, or a cut hunk.
    """
    lines = io.BytesIO(patch.read_bytes()).readlines()
    files: list[FilePatch] = []
    announced: str | None = None  # a "diff --git" line that has no file yet
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(b"diff --git "):
            _refuse_empty(patch, announced)
            announced = line.decode(errors="replace").strip()
        elif line.startswith(b"--- ") and at + 1 < len(lines) and lines[at + 1].startswith(b"+++ "):
            files.append(FilePatch(_path(patch, line), _path(patch, lines[at + 1])))
            announced = None
            at += 1
        elif files and announced is None and _HUNK.match(line):
            hunk, at = _parse_hunk(patch, files[-1], lines, at)
            files[-1].hunks.append(hunk)
            continue
        at += 1
    _refuse_empty(patch, announced)
    for file_patch in files:
        _refuse_empty(patch, None if file_patch.hunks else file_patch.target)
    if not files:
        raise BuildError(f"{patch.name} changes no file", "remove it or make it again")
    return files


def _refuse_empty(patch: Path, announced: str | None) -> None:
    if announced is not None:
        raise BuildError(
            f"{patch.name}: no changed lines for {announced!r}", "make the patch with --no-renames, text only"
        )


def _path(patch: Path, line: bytes) -> str | None:
    """Path of a `---` or `+++` line without its `a/` or `b/`; None for a file that does not exist."""
    name = line[4:].split(b"\t")[0].strip().decode("utf-8", errors="replace")
    if name == _NULL:
        return None
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or len(path.parts) < 2 or "\\" in name:
        raise BuildError(
            f"{patch.name}: the path {name!r} does not lie in the source tree", "use paths like a/dir/file"
        )
    return PurePosixPath(*path.parts[1:]).as_posix()


def _parse_hunk(patch: Path, file_patch: FilePatch, lines: list[bytes], at: int) -> tuple[Hunk, int]:
    """Read the hunk whose header is `lines[at]`; also give the index of the line after it."""
    header = lines[at].decode(errors="replace").strip()
    match = _HUNK.match(lines[at])
    old_start, n_old, new_start, n_new = (
        1 if group is None else int(group) for group in (match.groups() if match else ())
    )
    hunk = Hunk(header, old_start, new_start)
    at += 1
    last: list[list[bytes]] = []  # the sides that the line before belongs to
    while at < len(lines) and (len(hunk.old) < n_old or len(hunk.new) < n_new or lines[at].startswith(b"\\")):
        tag, text = lines[at][:1], lines[at][1:]
        if tag == b"\\":  # "\ No newline at end of file" speaks of the line before it
            for side in last:
                side[-1] = side[-1].removesuffix(b"\n")
        elif tag in (b" ", b"-", b"+"):
            last = {b" ": [hunk.old, hunk.new], b"-": [hunk.old], b"+": [hunk.new]}[tag]
            for side in last:
                side.append(text)
        else:
            break
        at += 1
    if (len(hunk.old), len(hunk.new)) != (n_old, n_new):
        raise BuildError(
            f"{patch.name}: {file_patch.target}: hunk {header} has fewer lines than it says", "make it again"
        )
    return hunk, at


def _apply_to_file(patch: Path, file_patch: FilePatch, tree: Path) -> None:
    where = f"{patch.name} does not apply: {file_patch.target}"
    target = tree / file_patch.target
    if file_patch.old_path is None:
        if target.exists():
            raise BuildError(f"{where} exists already", _HINT)
        old = b""
    elif file_patch.new_path not in (None, file_patch.old_path):
        raise BuildError(f"{where} is renamed from {file_patch.old_path}", "make the patch with --no-renames")
    elif not target.is_file():
        raise BuildError(f"{where} does not exist", _HINT)
    else:
        old = target.read_bytes()
    new = _apply_hunks(where, file_patch.hunks, io.BytesIO(old).readlines())
    if file_patch.new_path is None:
        if new:
            raise BuildError(f"{where} has more lines than the patch removes", _HINT)
        target.unlink()
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(new)


def _apply_hunks(where: str, hunks: list[Hunk], old: list[bytes]) -> bytes:
    """The new content, when every hunk fits exactly where it says."""
    new: list[bytes] = []
    done = 0  # lines of the old file that are in `new` or replaced
    for number, hunk in enumerate(hunks, start=1):
        # a hunk without old lines names the line that it follows, else the line that it begins with
        start = hunk.old_start - 1 if hunk.old else hunk.old_start
        new.extend(old[done:start])
        end = start + len(hunk.old)
        new_start = hunk.new_start - 1 if hunk.new else hunk.new_start
        if start < done or old[start:end] != hunk.old or len(new) != new_start:
            raise BuildError(f"{where}, hunk {number} ({hunk.header})", _HINT)
        new.extend(hunk.new)
        done = end
    new.extend(old[done:])
    return b"".join(new)


_HINT = "the patch was made for other sources: check out ggml_patches again, or make the patch again (see its README)"
