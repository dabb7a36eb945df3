"""Measurements of a calibration, written down one by one: a calibration that was stopped goes on behind the last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from localspec.errors import UsageError
from localspec.paths import atomic_write_text

FORMAT, VERSION = "localspec-calibration", 1


class Journal:
    """A file of JSON objects, one a line, appended as they are made; `entries` are those that it holds.

    A broken last line, as a killed process leaves it, is cut off. A file of another version counts as empty. Usable as
    a context manager. Raises `UsageError` when the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        header = json.dumps({"format": FORMAT, "version": VERSION})
        try:
            text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
            first, *lines = text.split("\n")
            whole = lines[: _n_whole(lines)] if first == header else []
            self.entries: list[dict[str, Any]] = [json.loads(line) for line in whole]
            atomic_write_text(path, "\n".join([header, *whole, ""]))
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


def _n_whole(lines: list[str]) -> int:
    """How many of the lines, from the first on, are objects."""
    for n, line in enumerate(lines):
        try:
            if not isinstance(json.loads(line), dict):
                return n
        except (ValueError, RecursionError):
            return n
    return len(lines)
