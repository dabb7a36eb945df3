"""What the programs share: a client program runs its operations one after another and prints what came of each.

The output is a JSON object {operation: {"value": ...} or {"error": {"type", "status", "code", "message"}}}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

#: the addresses of a server that asks for no key, and of one that asks for KEY
URL, KEYED_URL = sys.argv[1:3]
KEY, MODEL = "sk-right", "scripted"
#: longer than the context of the model
TOO_LONG = "word " * 1000

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": 'The weather of a "city"',
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def user(text: str) -> list[dict[str, Any]]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


def described(error: BaseException) -> dict[str, Any]:
    """An error as tests look at it."""
    return {
        "type": type(error).__name__,
        "status": getattr(error, "status_code", None),
        "code": getattr(error, "code", None),
        "message": str(error),
    }


def run(operations: Mapping[str, Callable[[], Any]]) -> None:
    """Run all operations and print what came of them."""
    outcomes = {}
    for name, operation in operations.items():
        try:
            outcomes[name] = {"value": operation()}
        except Exception as error:
            outcomes[name] = {"error": described(error)}
    print(json.dumps(outcomes, default=str))
