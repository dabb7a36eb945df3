"""Logs of answers: what the model wrote, and what else it would have written.

A log is a file of JSON lines: a header, then one answer a line, appended as they are made. A killed recording leaves at
most one broken last line, which is ignored, so recording goes on where it ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.errors import UsageError

FORMAT, VERSION = "localspec-log", 1


@dataclass(frozen=True, slots=True)
class LoggedAnswer:
    """One answer. Row i holds what the model saw when it wrote token i.

    `top_ids` and `top_logits` are its best candidates, [len(tokens)][k], the best first.
    """

    id: str
    task: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    top_ids: list[list[int]]
    top_logits: list[list[float]]

    def to_line(self) -> str:
        """The answer as a line of the file."""
        return json.dumps(
            {
                "id": self.id,
                "task": self.task,
                "prompt": self.prompt,
                "tokens": self.tokens,
                "top_ids": self.top_ids,
                "top_logits": [[round(logit, 3) for logit in row] for row in self.top_logits],
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_line(cls, line: str) -> LoggedAnswer:
        """The answer of a line. Raises ValueError, LookupError or TypeError for anything else."""
        data = json.loads(line)
        prompt, tokens = (tuple(map(int, data[key])) for key in ("prompt", "tokens"))
        ids = [[int(i) for i in row] for row in data["top_ids"]]
        logits = [[float(logit) for logit in row] for row in data["top_logits"]]
        k = len(ids[0])
        if not prompt or not k or not len(tokens) == len(ids) == len(logits):
            raise ValueError("its parts do not fit together")
        if any(len(row) != k for row in ids) or any(len(row) != k for row in logits):
            raise ValueError("its rows have different lengths")
        return cls(str(data["id"]), str(data["task"]), prompt, tokens, ids, logits)


@dataclass(frozen=True, slots=True)
class AnswerLog:
    """A log in memory. `header` tells the model and the settings of its answers."""

    header: dict[str, Any]
    answers: list[LoggedAnswer]

    @classmethod
    def read(cls, path: Path) -> AnswerLog:
        """Read a log; an unfinished last line is left out. Raises `UsageError` that names the line."""
        lines = _lines(path)
        header = _header(path, next(lines, (0, ""))[1])
        answers: list[LoggedAnswer] = []
        broken: tuple[int, Exception] | None = None
        for number, line in lines:
            if broken is not None:
                raise UsageError(f"{path}, line {broken[0]} is not an answer: {broken[1]}", "record it again")
            try:
                answers.append(LoggedAnswer.from_line(line))
            except (ValueError, LookupError, TypeError, OverflowError) as error:
                broken = number, error
        return cls(header, answers)


class LogWriter:
    """Appends answers to a log; one that exists is continued if it has the same header.

    `done` holds the ids of the answers that are there. Raises `UsageError` when the file is something else, or cannot
    be written. Usable as a context manager.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.done: set[str] = set()
        self._path = path
        try:
            exists = path.exists() and path.stat().st_size > 0
            if exists:
                self._continue(header)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"the log {path} cannot be written: {error.strerror}") from error
        if not exists:
            self._write(json.dumps({"format": FORMAT, "version": VERSION, **header}))

    def _continue(self, header: Mapping[str, Any]) -> None:
        log = AnswerLog.read(self._path)
        for key, value in header.items():
            if log.header.get(key) != value:
                raise UsageError(
                    f"the log {self._path} was recorded with another {key}: {log.header.get(key)}, not {value}",
                    "record to another file",
                )
        self.done = {answer.id for answer in log.answers}
        text = self._path.read_bytes()
        whole = 1 + len(log.answers)
        ends = [i for i, byte in enumerate(text) if byte == 0x0A]
        if len(ends) < whole or ends[whole - 1] != len(text) - 1:
            end = ends[whole - 1] + 1 if len(ends) >= whole else len(text)
            with self._path.open("r+b") as file:
                file.truncate(end)
                if len(ends) < whole:
                    file.seek(end)
                    file.write(b"\n")

    def append(self, answer: LoggedAnswer) -> None:
        """Write one answer; it is in the file when this returns."""
        self._write(answer.to_line())
        self.done.add(answer.id)

    def _write(self, line: str) -> None:
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            raise UsageError(f"the log {self._path} cannot be written: {error.strerror}") from error

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the log {path} cannot be read: {reason}") from error


def _header(path: Path, line: str) -> dict[str, Any]:
    hint = "`localspec record` makes logs"
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise UsageError(f"{path} is not a log of answers", hint)
    if header.get("version") != VERSION:
        raise UsageError(f"the log {path} has version {header.get('version')}, not {VERSION}", hint)
    return header
