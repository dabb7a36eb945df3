"""What can go wrong with a download, each as one line that says what to do."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import NoReturn

from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
)

from localspec.download.partial import StaleError
from localspec.errors import DownloadError
from localspec.registry import HubFile

RESERVE = 64 << 20  # bytes that a download leaves free on the disk
KEPT = "what has arrived is kept, and the same command goes on from there"
FROM_FILE = "`localspec pull NAME --from-file FILE` takes a file that you already have"


def mismatch(what: str, actual: str, expected: str) -> str:
    return f"wrong sha256 of {what}: it is {actual}, expected {expected}"


def require_space(folder: Path, n_bytes: int) -> None:
    """Raises `DownloadError` when `n_bytes` more would not leave `RESERVE` bytes free."""
    free = shutil.disk_usage(folder).free
    if n_bytes > 0 and free < n_bytes + RESERVE:
        _disk_full(folder, f"{n_bytes / 1e6:.0f} MB more are needed and {free / 1e6:.0f} MB are free")


def raise_download_error(error: Exception, what: HubFile | Path, target: Path) -> NoReturn:
    """Re-raise an error of the HTTP client, of huggingface-hub or of the file system as a `DownloadError`."""
    if isinstance(error, HfHubHTTPError):
        message, hint = _refusal(error, what)
    elif isinstance(error, OfflineModeIsEnabled):
        message = f"HF_HUB_OFFLINE is set and {what} is not in the cache of the hub client"
        hint = f"unset it, or use {FROM_FILE}"
    elif isinstance(error, HTTPError):
        detail = " ".join(str(error).split()) or type(error).__name__
        message, hint = f"no connection to {constants.ENDPOINT} for {what}: {detail}", f"check the network; {KEPT}"
    elif isinstance(error, HFValidationError):
        message, hint = f"{what} is not a name on the hub", "write OWNER/REPO/FILE.gguf"
    elif isinstance(error, StaleError):
        message, hint = f"{what} keeps changing on the server", "try again later"
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        _disk_full(target.parent, f"{what} does not fit", error)
    elif isinstance(error, OSError):
        message = f"cannot write {target}: {error.strerror or error}"
        hint = "check the folder, or set LOCALSPEC_MODELS to another one"
    else:
        message, hint = f"{what}: {error}", KEPT
    raise DownloadError(message, hint) from error


def _refusal(error: HfHubHTTPError, what: HubFile | Path) -> tuple[str, str]:
    """Message and hint for an answer of the server that is not the file."""
    repo = what.repo if isinstance(what, HubFile) else str(what)
    page = f"{constants.ENDPOINT}/{repo}"
    status = error.response.status_code
    if isinstance(error, GatedRepoError):
        return f"{repo} is gated: its owner asks for an agreement", f"accept it at {page}, then set HF_TOKEN"
    if isinstance(error, RemoteEntryNotFoundError):
        return f"{repo} has no file {what.file if isinstance(what, HubFile) else what}", f"its files are at {page}"
    if status == 401:
        # the hub gives this answer for missing, private and gated repositories alike
        return f"the hub does not give {repo} to you (401)", "check the name; a private repository needs HF_TOKEN"
    if status == 403:
        return f"the hub refuses {repo} (403)", f"check that HF_TOKEN may read it, and the terms at {page}"
    if status == 404:
        return f"{what} is not on the hub (404)", "check the name"
    if status == 429:
        return f"the hub has had too many requests (429) for {what}", "wait some minutes, or set HF_TOKEN"
    return f"the hub answers {status} for {what}", f"try again later; {KEPT}"


def _disk_full(folder: Path, detail: str, cause: Exception | None = None) -> NoReturn:
    hint = f"make room, or set LOCALSPEC_MODELS to a folder on another disk; {KEPT}"
    raise DownloadError(f"the disk of {folder} is full: {detail}", hint) from cause
