"""Changing single values of a TOML file that a person wrote, and nothing else in it: comments, order and what is not
understood stay.

No library does both: the standard one reads only. A file is walked statement by statement, each of which the reader
itself finds the end of; what was made is read again and compared, so that a form that is not foreseen here is refused
rather than spoilt.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from localspec.errors import UsageError

TOMLDecodeError = tomllib.TOMLDecodeError
loads = tomllib.loads

Path = tuple[str, ...]

_HEADER = re.compile(r"\s*\[")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class _Statement:
    """Lines `first` to `end` (not included) set the value at `path`; a header has `end` == `first` + 1 and no value."""

    first: int
    end: int
    path: Path
    is_header: bool = False


def changed(text: str, changes: Mapping[Path, object]) -> str:
    """`text` with the values at these paths, of one key or of table and key, replaced or added; None removes one.

    Raises `UsageError` for a text that is no TOML, and for one whose form cannot be changed like that.
    """
    try:
        wanted = loads(text)
    except TOMLDecodeError as error:
        raise UsageError(f"it is not valid TOML: {error}", "mend it first") from error
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    for path, value in changes.items():
        _set(wanted, path, value)
        _change(lines, path, value)
    made = "".join(lines)
    try:
        right = loads(made) == wanted
    except TOMLDecodeError:
        right = False
    if not right:
        names = ", ".join(".".join(path) for path in changes)
        raise UsageError(f"it is written in a form in which {names} cannot be changed", "change it by hand")
    return made


def _set(data: dict[str, Any], path: Path, value: object) -> None:
    for name in path[:-1]:
        inner = data.setdefault(name, {})
        data[name] = data = inner if isinstance(inner, dict) else {}
    if value is None:
        data.pop(path[-1], None)
    else:
        data[path[-1]] = copy.deepcopy(value)


def _change(lines: list[str], path: Path, value: object) -> None:
    statements = list(_statements(lines))
    found = next((item for item in statements if item.path == path and not item.is_header), None)
    written = "" if value is None else f"{_key(path[-1])} = {_value(value)}"
    if found is not None:
        comment = _comment(lines[found.first]) if found.end == found.first + 1 else ""
        kept = f"{written}  {comment}".strip()
        lines[found.first : found.end] = [kept + "\n"] if kept else []
        return
    if value is None:
        return
    table = path[:-1]
    header = next((item for item in statements if item.is_header and item.path == table), None)
    if table and header is None:
        lines.extend((["\n"] if lines else []) + [f"[{'.'.join(map(_key, table))}]\n", written + "\n"])
        return
    # behind the last value of its table, so that a comment above the next table stays with that
    start = -1 if header is None else statements.index(header)
    last = 0 if header is None else header.end
    for item in statements[start + 1 :]:
        if item.is_header:
            break
        last = item.end
    if last == 0 and lines:
        lines.insert(0, "\n")
    lines.insert(last, written + "\n")


def _statements(lines: list[str]) -> Iterator[_Statement]:
    table: Path = ()
    i = 0
    while i < len(lines):
        line = lines[i].strip()
        if not line or line.startswith("#"):
            i += 1
            continue
        # a value may go on over several lines: it ends where it can be read
        end = i + 1
        while (data := _read("".join(lines[i:end]))) is None and end < len(lines):
            end += 1
        path = _only_path(data or {})
        if _HEADER.match(line):
            table = path
            yield _Statement(i, end, path, is_header=True)
        else:
            yield _Statement(i, end, (*table, *path))
        i = end


def _read(text: str) -> dict[str, Any] | None:
    try:
        return loads(text)
    except TOMLDecodeError:
        return None


def _only_path(data: Mapping[str, Any]) -> Path:
    """The keys down to the value, or the empty table, of one statement."""
    path: list[str] = []
    while isinstance(data, Mapping) and len(data) == 1:
        [(name, data)] = data.items()
        path.append(name)
    return tuple(path)


def _comment(line: str) -> str:
    """The comment at the end of a statement of one line."""
    for match in re.finditer("#", line):
        if _read(line[: match.start()]) is not None:
            return line[match.start() :].rstrip()
    return ""


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: object) -> str:
    """A bool, number or text in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    # the escapes of JSON are those of TOML, which wants DEL escaped as well
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
