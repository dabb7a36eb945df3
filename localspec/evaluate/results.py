"""The answers to a task with both methods, and the file that keeps them task by task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.errors import UsageError
from localspec.evaluate.scoring import Score
from localspec.events import FinishReason, Stats
from localspec.journal import Journal, read_header

FORMAT, VERSION = "localspec-eval", 1


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer and its score. `lossless` tells whether its text has the model's distribution."""

    text: str
    reason: FinishReason
    stats: Stats
    lossless: bool
    score: Score


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a task: an answer of each method, by its name. `task` is the kind, as of a `Prompt`."""

    id: str
    task: str
    answers: Mapping[str, Answer]

    def to_dict(self) -> dict[str, Any]:
        """JSON data."""
        answers = {
            method: {**asdict(answer), "tokens_per_second": answer.stats.tokens_per_second}
            for method, answer in self.answers.items()
        }
        return {"id": self.id, "task": self.task, "answers": answers}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """The result that `to_dict` made this of. Raises `LookupError`, `TypeError` or `ValueError` for other data."""
        answers = {}
        for method, made in data["answers"].items():
            stats, score = Stats(**made["stats"]), Score(**made["score"])
            answers[method] = Answer(str(made["text"]), made["reason"], stats, bool(made["lossless"]), score)
        return cls(str(data["id"]), str(data["task"]), answers)


def open_results(path: Path, options: Mapping[str, Any]) -> tuple[Journal, list[Result]]:
    """The file at `path`, and the results that it holds of an evaluation with the same `options` (JSON data by the name
    of the option).

    Raises `UsageError` that names what differs for results of other options, and for a file of something else.
    """
    header = {"format": FORMAT, "version": VERSION, "options": dict(options)}
    written = read_header(path)
    if written is not None and (written.get("format"), written.get("version")) != (FORMAT, VERSION):
        raise UsageError(f"{path} exists and holds no results that this localspec could go on with", "name a new file")
    if written is not None and written != header:
        before = written.get("options", {})
        raise UsageError(
            f"{path} belongs to another evaluation: {_difference(before, options)}",
            "give the same options again, or another file",
        )
    journal = Journal(path, header)
    try:
        return journal, [Result.from_dict(entry) for entry in journal.entries]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} holds a line that is no result: {error}", "name a new file") from error


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The options that differ, for people."""
    keys = [key for key in dict.fromkeys([*now, *before]) if before.get(key) != now.get(key)]
    return "; ".join(f"{key} was {_said(before.get(key))}, not {_said(now.get(key))}" for key in keys)


def _said(value: Any) -> str:
    return "not given" if value is None or value == [] else str(value)
