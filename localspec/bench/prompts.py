"""Prompt sets: those that come with localspec, and JSON lines files of the user's own.

A line is an object with `prompt`, and if it likes `id` and `task`; other keys are ignored. The own sets were written
for this project: six tasks of eight prompts, of which edit, summary and extraction carry the text that they work on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from localspec.errors import UsageError

TASKS = ("code", "edit", "chat", "math", "summary", "extraction")
MAX_LINE_CHARS = 1 << 22


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. `text` is the user's message."""

    id: str
    task: str
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A prompt with all `fields` of its line, and `where` that is, for messages."""

    prompt: Prompt
    fields: Mapping[str, Any]
    where: str


def own_prompts() -> list[Prompt]:
    """All prompts that come with localspec, task by task."""
    folder = resources.files("localspec.bench") / "prompts"
    prompts: list[Prompt] = []
    for task in TASKS:
        name = f"{task}.jsonl"
        prompts += parse_prompts((folder / name).read_text(encoding="utf-8").splitlines(), name, task)
    return prompts


def read_prompts(path: Path) -> list[Prompt]:
    """The prompts of a JSON lines file. Raises `UsageError` that names the line."""
    return [line.prompt for line in read_lines(path)]


def parse_prompts(lines: Iterable[str], name: str, task: str) -> list[Prompt]:
    """Prompts from JSON lines; see `parse_lines`."""
    return [line.prompt for line in parse_lines(lines, name, task)]


def read_lines(path: Path) -> list[Line]:
    """The prompts of a JSON lines file, with all their fields. Raises `UsageError` that names the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the prompts file {path} cannot be read: {reason}") from error
    # not splitlines(): it also splits at characters that JSON strings may hold as they are
    return parse_lines(text.split("\n"), str(path), path.stem)


def parse_lines(lines: Iterable[str], name: str, task: str) -> list[Line]:
    """Prompts from JSON lines; `name` stands in error messages, `task` serves where a line has none."""
    parsed: list[Line] = []
    seen: set[str] = set()
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        line = _parse(text, f"{name}, line {number}", f"{task}-{len(parsed) + 1}", task)
        if line.prompt.id in seen:
            raise UsageError(f"{line.where}: the id {line.prompt.id!r} is used twice", "give each prompt its own")
        seen.add(line.prompt.id)
        parsed.append(line)
    if not parsed:
        raise UsageError(f"{name} holds no prompts", 'one JSON object a line, such as {"prompt": "Say hello."}')
    return parsed


def _parse(line: str, where: str, default_id: str, task: str) -> Line:
    form = 'one JSON object a line, such as {"prompt": "Say hello."}'
    if len(line) > MAX_LINE_CHARS:
        raise UsageError(f"{where}: longer than {MAX_LINE_CHARS} characters", form)
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not valid JSON: {error}", form) from error
    if not isinstance(value, dict):
        raise UsageError(f"{where}: not a JSON object", form)
    text = value.get("prompt")
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"{where}: it lacks a `prompt` that is text", form)
    fields = {}
    for key, default in (("id", default_id), ("task", task)):
        given = value.get(key, default)
        if not isinstance(given, str | int) or isinstance(given, bool) or given == "":
            raise UsageError(f"{where}: `{key}` is not text", form)
        fields[key] = str(given)
    return Line(Prompt(text=text, **fields), value, where)


def select(prompts: Sequence[Prompt], tasks: Sequence[str] = (), limit: int | None = None) -> list[Prompt]:
    """The prompts of `tasks` (none: all), at most `limit` of each task. Raises `UsageError` for an unknown task."""
    known = list(dict.fromkeys(prompt.task for prompt in prompts))
    for task in tasks:
        if task not in known:
            raise UsageError(f"there is no task {task!r} in these prompts", f"one of {', '.join(known)}")
    chosen: list[Prompt] = []
    for task in known:
        if not tasks or task in tasks:
            chosen += [prompt for prompt in prompts if prompt.task == task][:limit]
    return chosen
