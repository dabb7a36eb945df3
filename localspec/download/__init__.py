"""Getting one GGUF from the hub (or from a file) into its place: resumable, checked, and never half done.

huggingface-hub supplies the addresses, the metadata, the token, the HTTP client and so the meaning of HF_ENDPOINT,
HF_HUB_OFFLINE, HF_TOKEN and the proxies. Only the transfer is ours: since version 2 the library throws away what has
arrived when a download breaks, and a model of many gigabytes should not start again.

Bytes go to `NAME.partial`; `NAME.partial.json` says of which version of the file they are. A file gets its final name
by a rename, after its size, sha256 and GGUF header are right. No name that a server sends is ever used.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError
from huggingface_hub.utils import WeakFileLock

from localspec.download.errors import mismatch, raise_download_error, require_space
from localspec.download.http import remote_file, transfer
from localspec.download.partial import Partial, RetryError, StaleError, sync
from localspec.errors import DownloadError, LocalspecError, ModelError
from localspec.gguf_check import check_gguf
from localspec.registry import SHA256, HubFile

#: called with the bytes done and the bytes in all (None while unknown)
Progress = Callable[[int, int | None], None]

logger = logging.getLogger(__name__)

CHUNK = 1 << 20
RETRIES = 5  # attempts in a row that bring nothing new
RETRY_SECONDS = 1.0
LOCK_SECONDS = 2.0


def fetch(ref: HubFile, target: Path, sha256: str | None, progress: Progress | None, *, force: bool = False) -> Path:
    """Put `ref` at `target` and return it; a `sha256` given wins over the hub's. Raises `DownloadError`."""
    report = progress or (lambda done, total: None)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target):
            if target.is_file() and not force:
                return target  # another process was faster
            if not _from_cache(ref, target, sha256, report):
                _download(ref, Partial(target), sha256, report)
    except LocalspecError:
        raise
    except (HTTPError, OSError, HFValidationError, RetryError) as error:
        raise_download_error(error, ref, target)
    return target


def copy_file(source: Path, target: Path, sha256: str | None, progress: Progress | None) -> Path:
    """Copy a GGUF to `target`, checking it on the way; nothing is left behind when it is bad.

    Raises `DownloadError`, or `ModelError` when the source is not a sound GGUF.
    """
    report = progress or (lambda done, total: None)
    check_gguf(source)
    partial = target.with_name(target.name + ".copy.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        size = source.stat().st_size
        require_space(target.parent, size)
        digest = hashlib.sha256()
        with source.open("rb") as data, partial.open("wb") as out:
            while chunk := data.read(CHUNK):
                out.write(chunk)
                digest.update(chunk)
                report(out.tell(), size)
            sync(out)
        if sha256 and digest.hexdigest() != sha256:
            raise DownloadError(mismatch(str(source), digest.hexdigest(), sha256), "use the file that models.txt names")
        partial.replace(target)
    except OSError as error:
        raise_download_error(error, source, target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _download(ref: HubFile, partial: Partial, sha256: str | None, report: Progress) -> None:
    """Transfer, going on after cut connections, then check.

    The metadata are asked for again on each attempt: the file may have changed, and signed addresses run out.
    """
    failures, most, received = 0, partial.size(), False
    while True:
        try:
            expected = _attempt(ref, partial, sha256, report)
            break
        except (HTTPError, RetryError) as error:
            if isinstance(error, StaleError):
                partial.discard()
            received = received or partial.size() > most
            failures = 0 if partial.size() > most else failures + 1
            most = max(most, partial.size())
            # an answer, or no connection in the first place: asking again would change nothing
            final = isinstance(error, HfHubHTTPError) or not (received or isinstance(error, RetryError))
            if final or failures > RETRIES:
                raise
            logger.info("going on with %s after %s", ref, type(error).__name__)
            time.sleep(RETRY_SECONDS)
    _accept(ref, partial, expected)


def _attempt(ref: HubFile, partial: Partial, sha256: str | None, report: Progress) -> str | None:
    """One connection. Returns the sha256 that the finished file must have, if it is known."""
    remote = remote_file(ref)
    if sha256 and remote.sha256 and remote.sha256 != sha256:
        reason = mismatch(f"{ref} on the hub", remote.sha256, sha256)
        raise DownloadError(reason, "its owner has replaced it: update localspec")
    start = partial.resume_at(remote)
    transfer(remote, partial, start, report)
    expected = sha256 or remote.sha256
    if start and expected and sha256_of(partial.path) != expected:
        raise StaleError(f"{ref} was joined from two versions")
    return expected


def _accept(ref: HubFile, partial: Partial, sha256: str | None) -> None:
    """Give the finished file its name if it is what was promised; throw it away if it is not."""
    if sha256 is None:
        logger.warning("%s: no sha256 is known, neither in models.txt nor on the server; only its size is checked", ref)
    elif (actual := sha256_of(partial.path)) != sha256:
        partial.discard()
        raise DownloadError(mismatch(str(ref), actual, sha256), "the download was thrown away: try again")
    try:
        check_gguf(partial.path)
    except ModelError as error:
        partial.discard()
        raise DownloadError(error.message.replace(str(partial.path), str(ref)), "choose another file") from error
    partial.finish()


def _from_cache(ref: HubFile, target: Path, sha256: str | None, report: Progress) -> bool:
    """Take the file from the hub client's own cache, if a sha256 proves that it is the right one."""
    cached = try_to_load_from_cache(ref.repo, ref.file)
    if not isinstance(cached, str):
        return False
    blob = Path(cached).resolve()
    expected = sha256
    if expected is None and SHA256.fullmatch(blob.name):
        try:
            expected = remote_file(ref).sha256
        except (HTTPError, OSError):
            expected = blob.name  # the cache names a blob by its etag, which is the sha256 of a large file
    if expected is None or sha256_of(blob) != expected:
        return False
    copy_file(blob, target, expected, report)
    return True


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(WeakFileLock(target.with_name(f".{target.name}.lock"), timeout=LOCK_SECONDS))
        except TimeoutError:
            raise DownloadError(f"another process is downloading {target.name}", "wait until it is done") from None
        yield
