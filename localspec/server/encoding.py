"""JSON as it is sent."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
#: what ends a line for readers that split at more than newlines; in JSON it stands in texts alone, which may escape it
_LINE_ENDS = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}


def dumps(data: Any) -> str:
    """JSON on one line, as clients get it. NaN and infinities have no place in it: they raise `ValueError`."""
    return _ENCODER.encode(data).translate(_LINE_ENDS)


class Json(JSONResponse):
    """A reply that can always be sent: halves of surrogate pairs, which clients can write as escapes, become "?"."""

    def render(self, content: Any) -> bytes:
        return dumps(content).encode("utf-8", "replace")
