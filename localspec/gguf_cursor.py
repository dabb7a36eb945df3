"""A cursor over an untrusted binary file: every read is held against the end of the file first."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NoReturn

from localspec.errors import ModelError

HINT = "the file is damaged or incomplete: download it again"


def show(raw: bytes) -> str:
    """A name out of an untrusted file, fit for a one-line message."""
    return ascii(raw[:64].decode("utf-8", "replace"))


class Cursor:
    """Reads little-endian numbers and length-prefixed strings of a mapped file; `pos` is in bytes.

    Whatever does not fit in the file raises `ModelError` through `fail`, with `what` in the message.
    """

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.pos = 0

    def fail(self, reason: str, hint: str = HINT) -> NoReturn:
        raise ModelError(f"{self.path}: {reason}", hint)

    def take(self, n: int, what: str) -> int:
        """Advance by `n` bytes; returns where they start."""
        start = self.pos
        if n > self.size - start:
            if n > self.size:
                self.fail(f"{what} claims {n} bytes, more than the whole file ({self.size})")
            self.fail(f"truncated inside {what}: at least {n - (self.size - start)} bytes are missing")
        self.pos = start + n
        return start

    def number(self, fmt: str, what: str) -> int:
        value: int = struct.unpack_from("<" + fmt, self.data, self.take(struct.calcsize("<" + fmt), what))[0]
        return value

    def string(self, what: str) -> bytes:
        n = self.number("Q", f"the length of {what}")
        start = self.take(n, what)
        return self.data[start : start + n]

    def plausible(self, count: int, least_bytes: int, what: str) -> None:
        """Refuse a count of things, each at least `least_bytes` long, that cannot fit in what is left."""
        missing = count * least_bytes - (self.size - self.pos)
        if missing > 0:
            self.fail(f"claims {count} {what}, for which at least {missing} bytes are missing")

    def strings(self, count: int, what: str, *, unique: bool) -> None:
        """Walk `count` strings. A vocabulary has hundreds of thousands, hence the local names and no calls inside."""
        data, size, pos, length_at = self.data, self.size, self.pos, struct.Struct("<Q").unpack_from
        seen: set[bytes] = set()
        filled = 0
        start = pos
        for _ in range(count):
            start = pos + 8
            if start > size:
                break
            pos = start + length_at(data, pos)[0]
            if pos > size:
                break
            if unique and pos > start:
                seen.add(data[start:pos])
                filled += 1
        end = max(start, pos)
        if end > size:
            self.fail(f"a string in {what} ends {end - size} bytes after the end of the file")
        self.pos = pos
        if len(seen) != filled:
            # llama.cpp asserts that texts are unique, and a failed assertion would end this process
            self.fail(f"{what} lists {filled - len(seen)} tokens twice")
