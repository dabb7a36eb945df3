"""The file under way, and the note beside it that says what it is a part of."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from localspec.registry import SHA256


class RetryError(Exception):
    """The transfer ended early; what has arrived is good and can be gone on from."""


class StaleError(RetryError):
    """What has arrived does not belong to what the server has now, so it must go."""


@dataclass(frozen=True, slots=True)
class Remote:
    """What the hub says about a file; `size` in bytes."""

    url: str
    etag: str | None
    size: int | None

    @property
    def sha256(self) -> str | None:
        """Known for every file in the hub's large-file storage, whose etag it is."""
        return self.etag if self.etag and SHA256.fullmatch(self.etag) else None


class Partial:
    """`TARGET.partial` and its note, `TARGET.partial.json`."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(target.name + ".partial")
        self.note = target.with_name(target.name + ".partial.json")
        #: etag of the answer that brought the bytes; a storage server may use another one than the hub
        self.body_etag: str | None = None

    def size(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    def resume_at(self, remote: Remote) -> int:
        """How many bytes of `remote` are here already; what belongs to another version is thrown away."""
        try:
            note = json.loads(self.note.read_text(encoding="utf-8"))
            same = remote.etag is not None and (note["etag"], note["size"]) == (remote.etag, remote.size)
            self.body_etag = note["body_etag"]
        except (OSError, ValueError, KeyError, TypeError):
            same = False
        if same and (remote.size is None or self.size() <= remote.size):
            return self.size()
        self.discard()
        return 0

    def begin(self, remote: Remote, body_etag: str | None) -> None:
        """Note what the bytes to come belong to, before the first of them."""
        self.body_etag = body_etag
        note = {"etag": remote.etag, "size": remote.size, "body_etag": body_etag}
        self.note.write_text(json.dumps(note), encoding="utf-8")

    def discard(self) -> None:
        self.body_etag = None
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)

    def finish(self) -> None:
        """Give the file its final name, in one step."""
        self.path.replace(self.target)
        self.note.unlink(missing_ok=True)


def sync(out: IO[bytes]) -> None:
    """Force a file to the disk, so that a rename never outlives its content."""
    out.flush()
    os.fsync(out.fileno())
