"""Snapshots as JSON, for other processes: what `GET /localspec/live` of a server answers, and `localspec top` reads.

The object has the fields of `Snapshot` by name, and `format` and `version`. Fields of later versions are let pass, all
others are checked: what comes from another process is drawn like one's own.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from itertools import pairwise
from types import TracebackType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from localspec.errors import ServerError
from localspec.tree import MAX_NODES
from localspec.tui.live import Live
from localspec.tui.snapshot import Snapshot, Step

FORMAT, VERSION = "localspec-live", 1
#: entries that a list has at most, and characters of a text
MOST_ENTRIES, MOST_TEXT = 4096, 4096
#: texts of tokens, which may be anything; pictures make them visible
_TOKENS = ("step.texts", "step.bonus")
_NAMES = {int: "a whole number", float: "a number", str: f"a text of at most {MOST_TEXT}", bool: "true or false"}
_HINT = "it may run another version of localspec"


def to_dict(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as JSON data."""
    return {"format": FORMAT, "version": VERSION, **asdict(snapshot)}


def to_json(snapshot: Snapshot) -> bytes:
    """A snapshot as JSON in UTF-8."""
    # as ASCII: half of a surrogate pair, which a token's text may be, has no other way
    return json.dumps(to_dict(snapshot), allow_nan=False).encode()


def from_json(body: bytes) -> Snapshot:
    """Read a snapshot. Raises `ServerError`, which names what is wrong with it."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise ServerError("the answer is not JSON", _HINT) from None
    return from_dict(data)


def from_dict(data: object) -> Snapshot:
    """The snapshot in JSON data. Raises `ServerError`, which names what is wrong with it."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise ServerError(f"the answer is not an object of the format {FORMAT}", _HINT)
    if data.get("version") != VERSION:
        raise ServerError(f"the answer has version {data.get('version')!r:.20} of {FORMAT}, not {VERSION}", _HINT)
    snapshot: Snapshot = _object(Snapshot, data, "")
    _check(snapshot)
    return snapshot


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _wrong(name: str, value: object, expected: str) -> ServerError:
    shown = json.dumps(value, default=repr)
    return ServerError(f"{name} is {shown if len(shown) <= 40 else shown[:37] + '...'}, not {expected}", _HINT)


def _object(cls: type, data: Mapping[Any, Any], prefix: str) -> Any:
    names = [field.name for field in fields(cls)]
    missing = [prefix + name for name in names if name not in data]
    if missing:
        raise ServerError(f"the answer lacks {', '.join(missing)}", _HINT)
    return cls(**{name: _value(_hints(cls)[name], data[name], prefix + name) for name in names})


def _value(hint: Any, value: Any, name: str) -> Any:
    """A value of JSON as the type that a field has."""
    origin, args = get_origin(hint), get_args(hint)
    if type(None) in args:
        inner = next(arg for arg in args if arg is not type(None))
        return None if value is None else _value(inner, value, name)
    if origin is Literal:
        if value not in args:
            raise _wrong(name, value, f"one of {', '.join(args)}")
        return value
    if origin is tuple:
        return _sequence(args, value, name)
    if hint is Step:
        if not isinstance(value, Mapping):
            raise _wrong(name, value, "an object")
        return _object(Step, value, f"{name}.")
    return _scalar(hint, value, name)


def _sequence(args: tuple[Any, ...], value: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) > MOST_ENTRIES:
        raise _wrong(name, value, f"a list of at most {MOST_ENTRIES}")
    if args[-1] is Ellipsis:
        args = (args[0],) * len(value)
    if len(args) != len(value):
        raise _wrong(name, value, f"a list of {len(args)}")
    return tuple([_value(arg, entry, f"{name}[{i}]") for i, (arg, entry) in enumerate(zip(args, value, strict=True))])


def _scalar(hint: type, value: Any, name: str) -> Any:
    if hint is float and type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value):
        return float(value)
    if hint is int and type(value) is int and abs(value) < 2**53:
        return value
    if hint is str and type(value) is str and len(value) <= MOST_TEXT:
        return value if name.startswith(_TOKENS) or value.isprintable() else _printable(value)
    if hint is bool and type(value) is bool:
        return value
    raise _wrong(name, value, _NAMES[hint])


def _printable(text: str) -> str:
    """A name as it may be drawn: what could command a terminal is replaced."""
    return "".join([char if char.isprintable() else "\ufffd" for char in text])


def _check(snapshot: Snapshot) -> None:
    """What drawing relies on, beyond the types."""
    n_trees = len(snapshot.trees)
    if len(snapshot.tree_steps) > n_trees:
        raise ServerError("the answer has more tree_steps than trees", _HINT)
    if snapshot.tree is not None and not 0 <= snapshot.tree < n_trees:
        raise _wrong("tree", snapshot.tree, "the index of a tree")
    for name in ("n_ctx", "n_prompt", "n_cached", "n_tokens", "n_steps", "n_drafted", "n_accepted", "n_forgiven"):
        if getattr(snapshot, name) < 0:
            raise _wrong(name, getattr(snapshot, name), "0 or more")
    counts = (*snapshot.lengths, *snapshot.tree_steps, *snapshot.rates)
    if any(count < 0 for count in counts):
        raise ServerError("lengths, tree_steps or rates of the answer are negative", _HINT)
    if any(a[0] >= b[0] for a, b in pairwise(snapshot.curve)):
        raise ServerError("the curve of the answer does not ascend", _HINT)
    if snapshot.step is not None:
        _check_step(snapshot.step)


def _check_step(step: Step) -> None:
    n = len(step.parents)
    if not 1 <= n <= MAX_NODES or len(step.texts) != n:
        raise ServerError(f"the step has {n} nodes and {len(step.texts)} texts, not 1 to {MAX_NODES} of both", _HINT)
    if step.parents[0] != -1 or any(not 0 <= parent < node for node, parent in enumerate(step.parents[1:], start=1)):
        raise ServerError("the parents of the step do not make a tree", _HINT)
    above = 0
    for node in step.path:
        if not 0 < node < n or step.parents[node] != above:
            raise ServerError("the path of the step does not go from child to child", _HINT)
        above = node
    if not set(step.forgiven) <= set(step.path):
        raise ServerError("the step has forgiven nodes beside its path", _HINT)


class Publisher:
    """A `Live` that one thread feeds while others ask for its JSON: `with publisher as live: live.feed(event)`."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._lock = threading.Lock()

    def __enter__(self) -> Live:
        self._lock.acquire()
        return self._live

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def body(self) -> bytes:
        """The newest snapshot as JSON. The lock is held for the snapshot alone."""
        with self as live:
            snapshot = live.snapshot()
        return to_json(snapshot)
