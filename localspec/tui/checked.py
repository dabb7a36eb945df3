"""Reading plain data that came from a file: every field is asked for by name and kind, what is left over is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from localspec.errors import UsageError

_SURROGATE = re.compile("[\ud800-\udfff]")


def no_surrogates(text: str) -> str:
    """`text` with U+FFFD for halves of surrogate pairs, which have no UTF-8."""
    return _SURROGATE.sub("\ufffd", text)


class Fields:
    """The fields of a JSON object, which errors call `what`. All methods raise `UsageError` for another kind of value.

    Raises `UsageError` when `data` is no object.
    """

    def __init__(self, data: object, what: str) -> None:
        if not isinstance(data, Mapping):
            raise UsageError(f"{what} is {_kind(data)}, not an object")
        self._data, self._what = data, what
        self._asked: set[str] = set()

    def value(self, name: str) -> Any:
        """The value as it is; None where there is none."""
        self._asked.add(name)
        return self._data.get(name)

    def text(self, name: str) -> str:
        """A text that has to be there."""
        value = self.value(name)
        if not isinstance(value, str):
            raise self._wrong(name, value, "a text")
        return no_surrogates(value)

    def optional_text(self, name: str) -> str | None:
        """A text, or None."""
        return None if self.value(name) is None else self.text(name)

    def time(self, name: str) -> str:
        """A time in ISO 8601."""
        text = self.text(name)
        try:
            # Python 3.10 does not know the Z
            datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            raise self._wrong(name, text, "a time such as 2026-01-31T12:00:00+00:00") from None
        return text

    def count(self, name: str) -> int | None:
        """A whole number of 0 or more, or None."""
        value = self.value(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._wrong(name, value, "a whole number of 0 or more")
        return value

    def flag(self, name: str) -> bool:
        """True or false; false where there is nothing."""
        value = self.value(name)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return bool(value)

    def mapping(self, name: str) -> dict[str, Any]:
        """An object; empty where there is none."""
        value = self.value(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self._wrong(name, value, "an object")
        return {no_surrogates(str(key)): item for key, item in value.items()}

    def numbers(self, name: str) -> dict[str, float]:
        """An object of finite numbers; empty where there is none."""
        values = self.mapping(name)
        for key, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise self._wrong(f"{name}.{key}", value, "a finite number")
        return values

    def refuse_others(self) -> None:
        """Raise `UsageError` for fields that were not asked for: they would be lost when this is written again."""
        others = sorted(str(name) for name in set(self._data) - self._asked)
        if others:
            raise UsageError(
                f"{self._what}: there is no field {others[0]!r}", f"known: {', '.join(sorted(self._asked))}"
            )

    def _wrong(self, name: str, value: object, wanted: str) -> UsageError:
        found = "missing" if value is None else _kind(value)
        return UsageError(f"{self._what}: {name} is {found}, not {wanted}")


def _kind(value: object) -> str:
    """A value as an error shows it, whatever its size."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"
