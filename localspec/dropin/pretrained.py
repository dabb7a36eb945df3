"""Models by their place on the hub: found by a pattern, and downloaded into the hub's own cache."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from localspec.dropin.errors import CallError
from localspec.dropin.telling import tell
from localspec.errors import DownloadError


def download(
    repo_id: str,
    filename: str | None,
    additional_files: Sequence[str] | None,
    local_dir: str | os.PathLike[str] | None,
    local_dir_use_symlinks: bool | str,
    cache_dir: str | os.PathLike[str] | None,
) -> Path:
    """Get the files that the patterns mean, one each; returns where the first one is.

    Raises `CallError` for a pattern that means none or several, and `DownloadError` for what the hub or the network
    says.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if local_dir_use_symlinks != "auto":
        tell("local_dir_use_symlinks is ignored: the hub's library has it no more")
    if filename is None:
        raise CallError("no file is named", f'name one of {repo_id}, or a pattern such as "*q8_0.gguf"')
    try:
        files = HfApi().list_repo_files(repo_id)
        names = [_only(repo_id, files, pattern) for pattern in (filename, *(additional_files or ()))]
        into, cache = _path(local_dir), _path(cache_dir)
        paths = [hf_hub_download(repo_id, name, local_dir=into, cache_dir=cache) for name in names]
    except HFValidationError as error:
        raise CallError(f"{repo_id!r} is no name of a repository: {error}") from None
    except (HfHubHTTPError, OSError) as error:
        raise DownloadError(f"{repo_id} cannot be downloaded: {error}") from error
    return Path(paths[0])


def _path(given: str | os.PathLike[str] | None) -> Path | None:
    return None if given is None else Path(given)


def _only(repo_id: str, files: Iterable[str], pattern: str) -> str:
    found = [file for file in files if fnmatch.fnmatch(file, pattern)]
    if len(found) == 1:
        return found[0]
    here = ", ".join(found or [file for file in files if file.endswith(".gguf")]) or "no GGUF file"
    raise CallError(f"{len(found)} files of {repo_id} match {pattern!r}", f"there: {here}")
