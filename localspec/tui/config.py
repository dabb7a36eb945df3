"""What a person chose for the chat, in `chat.toml` of the folder of configuration:

    theme = "textual-dark"
    panel = "line"              # off, line or panel
    tint = true
    fps = 10
    system = "Answer briefly."

    [sampling]
    temperature = 0.2

    [keys]
    regenerate = "ctrl+g"
    copy_answer = ["ctrl+y", "f8"]

A bad entry costs that entry alone, and is told in one line.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from localspec.engine.params import SamplingParams
from localspec.errors import UsageError
from localspec.paths import atomic_write_text, config_dir
from localspec.tui import keys as actions
from localspec.tui.toml_edit import TOMLDecodeError, changed, loads

Panel = Literal["off", "line", "panel"]

MAX_FPS = 60
#: numbers of `SamplingParams` that can be preset; the others are for single answers
_NOT_PRESET = ("logit_bias", "grammar", "json_schema", "grammar_start")
SAMPLING = tuple(item.name for item in fields(SamplingParams) if item.name not in _NOT_PRESET)


@dataclass(frozen=True)
class Config:
    """Settings of the chat. None is the default of the app. `sampling` has fields of `SamplingParams` and `max_tokens`,
    `keys` the keys of actions by id, of those that a person changed."""

    theme: str | None = None
    panel: Panel = "panel"
    tint: bool = False
    markdown: bool = True
    mouse: bool = True
    fps: int | None = None
    system: str | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, themes: Collection[str] = ()) -> tuple[Config, list[str]]:
        """The settings in a file, and a line for everything in it that cannot be used. `themes` are those there are,
        where that is known. A file that is not there has no settings."""
        try:
            data = loads(path.read_bytes().decode("utf-8"))
        except FileNotFoundError:
            return cls(), []
        except (OSError, UnicodeDecodeError, TOMLDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else f"it is not valid TOML: {error}"
            return cls(), [f"{path} is not used: {reason}"]
        problems: list[str] = []
        made = cls(**dict(_usable(data, themes, problems)))
        return made, [f"{path}: {line}" for line in problems]

    def write(self, path: Path) -> None:
        """Change what differs from the file, but for `keys`; its comments, and what is not understood, stay.

        Raises `UsageError` for a file that cannot be written, or not be changed without spoiling it.
        """
        old, _ = Config.read(path)
        changes: dict[tuple[str, ...], object] = {
            (name,): getattr(self, name)
            for name in ("theme", "panel", "tint", "markdown", "mouse", "fps", "system")
            if getattr(self, name) != getattr(old, name)
        }
        for name in (*SAMPLING, "max_tokens"):
            if self.sampling.get(name) != old.sampling.get(name):
                changes["sampling", name] = self.sampling.get(name)
        if not changes:
            return
        try:
            text = path.read_bytes().decode("utf-8") if path.exists() else ""
            atomic_write_text(path, changed(text, changes))
        except UsageError as error:
            raise UsageError(f"{path} cannot be changed: {error.message}", error.hint) from error
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise UsageError(f"{path} cannot be changed: {reason}") from error


def config_path() -> Path:
    """Where the settings of the chat are. May not exist."""
    return config_dir() / "chat.toml"


def _usable(data: Mapping[str, Any], themes: Collection[str], problems: list[str]) -> Iterator[tuple[str, Any]]:
    """The settings in `data` that can be used; the others get a line in `problems`."""
    checks: dict[str, Callable[[Any], Any]] = {
        "theme": lambda value: _theme(value, themes),
        "panel": lambda value: _one_of(value, get_args(Panel)),
        "tint": _flag,
        "markdown": _flag,
        "mouse": _flag,
        "fps": _fps,
        "system": _text,
        "sampling": lambda value: dict(_sampling(_table(value), problems)),
        "keys": lambda value: dict(_keys(_table(value), problems)),
    }
    for name, value in data.items():
        try:
            if name not in checks:
                raise ValueError(f"there is no such setting{_nearest(name, checks)}")
            yield name, checks[name](value)
        except ValueError as error:
            problems.append(f"{name}: {error}")


def _sampling(table: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        try:
            if name == "max_tokens":
                if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                    raise ValueError(f"{value!r} is not a whole number of 1 or more")
            elif name in SAMPLING:
                SamplingParams(**{name: value}).validate()
            else:
                raise ValueError(f"there is no such setting{_nearest(name, (*SAMPLING, 'max_tokens'))}")
        except (ValueError, UsageError) as error:
            reason = error.message.removeprefix(f"{name} is ") if isinstance(error, UsageError) else error
            problems.append(f"sampling.{name}: {reason}")
        else:
            yield name, value


def _keys(table: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    read: dict[str, tuple[str, ...]] = {}
    for name, value in table.items():
        texts = [value] if isinstance(value, str) else value
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            read[name] = tuple(texts)
        else:
            problems.append(f"keys.{name}: {value!r} is neither a key nor a list of keys")
    problems += [f"keys: {line}" for line in actions.problems(read)]
    yield from read.items()


def _table(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is not a table")
    return value


def _theme(value: object, themes: Collection[str]) -> str:
    return _one_of(value, themes) if themes else _text(value)


def _one_of(value: object, allowed: Collection[str]) -> str:
    if value not in allowed:
        raise ValueError(f"{value!r} is none of {', '.join(allowed)}{_nearest(str(value), allowed, others=False)}")
    return str(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _fps(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_FPS:
        raise ValueError(f"{value!r} is not a whole number from 1 to {MAX_FPS}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _nearest(name: str, known: Collection[str], *, others: bool = True) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there are {', '.join(known)}" if others else ""
