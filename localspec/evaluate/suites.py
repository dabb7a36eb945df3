"""Tasks with a score: HumanEval and GSM8K where the user has them, the own suite of exact copies, and files of the same
form.

A line of such a file is a prompt (see `bench.prompts`) with what it is scored by: `test` and `entry_point` (and `code`,
the beginning of the program, if the prompt does not show it in a block), or `expected`, a text to be copied (`copy` is
the same), or `answer`, which ends with a number. `split` names a part of the suite, "test" by default.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from localspec.bench.prompts import Line, Prompt, parse_lines, read_lines
from localspec.errors import UsageError
from localspec.evaluate.extract import blocks, final_number, plain_lines
from localspec.evaluate.scoring import Check, CodeTests, ExactCopy, FinalNumber
from localspec.paths import cache_dir

#: what comes with localspec
COPY = "copy"
#: what the user brings, in a folder
PUBLIC = ("humaneval", "gsm8k")
ALL, TEST = "all", "test"
_NEEDED = "a task has `test` and `entry_point`, or `answer`, or `expected`"
#: most tokens of an answer where the user names none
_MAX_TOKENS = {CodeTests: 512, FinalNumber: 400, ExactCopy: 512}


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt and what its answer is checked for."""

    prompt: Prompt
    split: str
    check: Check

    @property
    def max_tokens(self) -> int:
        """Tokens that suffice for an answer of this kind."""
        return _MAX_TOKENS[type(self.check)]


def prompts_dir() -> Path:
    """The folder of prompt sets: LOCALSPEC_PROMPTS, or `prompts` in the user's cache folder. May not exist."""
    chosen = os.environ.get("LOCALSPEC_PROMPTS")
    return Path(chosen).expanduser() if chosen else cache_dir() / "prompts"


def read_suite(name: str) -> list[Task]:
    """All tasks of the suite called `name`, or of the file with this path. Raises `UsageError`."""
    if name == COPY:
        text = (resources.files("localspec.evaluate") / "copy.jsonl").read_text(encoding="utf-8")
        return [_task(line) for line in parse_lines(text.split("\n"), "copy.jsonl", COPY)]
    path = prompts_dir() / f"{name}.jsonl" if name in PUBLIC else Path(name)
    if path.is_file():
        return [_task(line) for line in read_lines(path)]
    if name in PUBLIC:
        raise UsageError(
            f"the suite {name} does not come with localspec, and {path} does not exist",
            f"put it there as JSON lines with `prompt` and what is scored ({_NEEDED}), or name a file: --suite FILE",
        )
    if path.suffix == ".jsonl" or len(path.parts) > 1:
        raise UsageError(f"there is no file {path}", f"--suite {', '.join((*PUBLIC, COPY))}, or a file")
    raise UsageError(f"there is no suite {name!r}", f"{', '.join((*PUBLIC, COPY))}, or a file of JSON lines")


def choose(tasks: Sequence[Task], split: str = TEST, limit: int | None = None) -> list[Task]:
    """The first `limit` tasks of a split ("all": of all). Raises `UsageError` when there are none."""
    chosen = [task for task in tasks if split in (ALL, task.split)]
    if not chosen:
        known = dict.fromkeys(task.split for task in tasks)
        raise UsageError(f"no task of this suite is in the split {split!r}", f"--split {', '.join((*known, ALL))}")
    return chosen[:limit]


def digest(tasks: Sequence[Task]) -> str:
    """16 hex digits that stand for these tasks in this order."""
    whole = hashlib.sha256()
    for task in tasks:
        whole.update(hashlib.sha256(repr(task).encode("utf-8", "replace")).digest())
    return whole.hexdigest()[:16]


def _task(line: Line) -> Task:
    split = line.fields.get("split", TEST)
    if not isinstance(split, str) or not split:
        raise UsageError(f"{line.where}: `split` is not text", "test, calibrate, or a name of your own")
    return Task(line.prompt, split, _check(line))


def _check(line: Line) -> Check:
    fields = line.fields
    if "test" in fields and "entry_point" in fields:
        entry_point = _text(line, "entry_point")
        if not entry_point.isidentifier():
            raise UsageError(f"{line.where}: `entry_point` is not the name of a function", "such as add_numbers")
        shown = blocks(line.prompt.text)
        code = _text(line, "code") if "code" in fields else shown[0] if shown else line.prompt.text
        return CodeTests(entry_point, _text(line, "test"), code)
    for key in ("expected", "copy"):
        if key in fields:
            expected = _text(line, key)
            if not plain_lines(expected):
                raise UsageError(f"{line.where}: `{key}` is empty", _NEEDED)
            return ExactCopy(expected)
    if "answer" in fields:
        given = fields["answer"]
        number = None if isinstance(given, bool) else final_number(str(given))
        if number is None:
            raise UsageError(f"{line.where}: `answer` holds no number", "such as 42")
        return FinalNumber(number)
    raise UsageError(f"{line.where}: there is nothing to score an answer by", _NEEDED)


def _text(line: Line, key: str) -> str:
    value = line.fields[key]
    if not isinstance(value, str):
        raise UsageError(f"{line.where}: `{key}` is not text", _NEEDED)
    return value
