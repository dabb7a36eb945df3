"""Results written down one by one: long work that was stopped goes on behind the last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from localspec.errors import UsageError
from localspec.paths import atomic_write_text


class Journal:
    """A file of JSON objects, one a line, appended as they are made; `entries` are those that it holds.

    The first line is `header`, which tells what work the file belongs to: a file with another one counts as empty. A
    broken last line, as a killed process leaves it, is cut off. Usable as a context manager. Raises `UsageError` when
    the file cannot be used.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self._path = path
        try:
            first, *lines = _text(path).split("\n")
            ours = _n_whole([first]) == 1 and json.loads(first) == header
            whole = lines[: _n_whole(lines)] if ours else []
            self.entries: list[dict[str, Any]] = [json.loads(line) for line in whole]
            atomic_write_text(path, "\n".join([json.dumps(header), *whole, ""]))
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}", "free some space") from error

    def append(self, entry: dict[str, Any]) -> None:
        """Write one entry; it is in the file when this returns."""
        try:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
        except OSError as error:
            raise UsageError(f"{self._path} cannot be written: {error.strerror}", "free some space") from error
        self.entries.append(entry)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_header(path: Path) -> dict[str, Any] | None:
    """The first line of the file as a JSON object, an empty one if it is none; None without a file or any content.

    Raises `UsageError` when the file cannot be read.
    """
    try:
        text = _text(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if not text:
        return None
    first = text.split("\n", 1)[0]
    return dict(json.loads(first)) if _n_whole([first]) else {}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _n_whole(lines: list[str]) -> int:
    """How many of the lines, from the first on, are objects."""
    for n, line in enumerate(lines):
        try:
            if not isinstance(json.loads(line), dict):
                return n
        except (ValueError, RecursionError):
            return n
    return len(lines)
