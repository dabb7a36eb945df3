"""The HTTP side of a download: what the hub says about a file, and its bytes from a given position on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

from localspec import __version__
from localspec.download.errors import require_space
from localspec.download.partial import Partial, Remote, RetryError, StaleError, sync
from localspec.errors import DownloadError
from localspec.registry import HubFile

CHUNK = 1 << 18
MAX_REDIRECTS = 5
HUB_DOMAINS = ("huggingface.co", "hf.co")


def remote_file(ref: HubFile) -> Remote:
    """Ask the hub about a file. Raises the errors of huggingface-hub."""
    url = hf_hub_url(ref.repo, ref.file)
    meta = get_hf_file_metadata(url, library_name="localspec", library_version=__version__)
    return Remote(urljoin(url, meta.location), meta.etag, meta.size)


def transfer(remote: Remote, partial: Partial, start: int, report: Callable[[int, int | None], None]) -> None:
    """Append the bytes from `start` on to the partial file, or write all of it when the server begins anew.

    Raises `StaleError` when they are of another version, `RetryError` when they end early, and the errors of the
    HTTP client and of huggingface-hub.
    """
    if remote.size is not None:
        require_space(partial.path.parent, remote.size - start)
        if start == remote.size:
            return
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if partial.body_etag:
            headers["If-Range"] = partial.body_etag
    with _get(remote.url, headers) as response:
        if start and response.status_code == 416:
            raise StaleError("the file has become shorter")
        hf_raise_for_status(response)
        etag = response.headers.get("ETag")
        etag = None if etag is None or etag.startswith("W/") else etag
        if response.status_code != 206:
            start = 0  # the whole file: the server does not know ranges, or the file has changed
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise StaleError("the server sent another part than the one asked for")
        elif partial.body_etag and etag and etag != partial.body_etag:
            raise StaleError("the file has changed")
        partial.begin(remote, etag)
        _write(response, remote, partial, start, report)


def _write(
    response: Any, remote: Remote, partial: Partial, start: int, report: Callable[[int, int | None], None]
) -> None:
    with partial.path.open("r+b" if start else "wb") as out:
        out.truncate(start)
        out.seek(start)
        done = start
        for chunk in response.iter_bytes(CHUNK):
            out.write(chunk)
            done += len(chunk)
            if remote.size is not None and done > remote.size:
                raise StaleError("the server sent more than it announced")
            report(done, remote.size)
        sync(out)
    if remote.size is not None and done < remote.size:
        raise RetryError(f"the connection ended after {done} of {remote.size} bytes")


@contextmanager
def _get(url: str, headers: dict[str, str]) -> Iterator[Any]:
    """A streamed GET that follows redirects to trusted hosts. The token goes to the endpoint's own host alone."""
    for _ in range(MAX_REDIRECTS):
        _require_trusted(url)
        token = None if _same_origin(url, constants.ENDPOINT) else False  # None: the user's own, if there is one
        sent = build_hf_headers(token=token, library_name="localspec", library_version=__version__) | headers
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with get_session().stream("GET", url, headers=sent, timeout=timeout, follow_redirects=False) as response:
            if not response.has_redirect_location:
                yield response
                return
            url = urljoin(url, response.headers["Location"])
    raise DownloadError(f"more than {MAX_REDIRECTS} redirects from {constants.ENDPOINT}", "check HF_ENDPOINT")


def _same_origin(url: str, other: str) -> bool:
    return urlsplit(url)[:2] == urlsplit(other)[:2]


def _on_hub(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return any(host == domain or host.endswith("." + domain) for domain in HUB_DOMAINS)


def _require_trusted(url: str) -> None:
    """Only https, and only the hub's own hosts; a mirror that the user chose by HF_ENDPOINT may send on to others."""
    if _same_origin(url, constants.ENDPOINT):
        return
    if urlsplit(url).scheme != "https" or not (_on_hub(url) or not _on_hub(constants.ENDPOINT)):
        where = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"
        raise DownloadError(f"the hub sends the download on to {where}, which is not trusted", "check HF_ENDPOINT")
