"""The objects that answers of /api/chat and /api/generate are made of, streamed or whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from localspec.chat_format.api import Delta, ToolCall
from localspec.server.answers import End
from localspec.serving.api import TokenLogprob

CUT_CALL = "a tool call was cut: its arguments are no whole JSON object, and it is left out"


def now() -> str:
    return rfc3339(datetime.now(timezone.utc))


def rfc3339(time: datetime) -> str:
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


class Calls:
    """Tool calls out of their pieces: Ollama's clients get each as a whole, with an object of arguments."""

    def __init__(self) -> None:
        self.n_cut = 0
        self._index = 0
        self._id = self._name = self._arguments = ""

    def feed(self, deltas: Iterable[Delta]) -> list[dict[str, Any]]:
        """More pieces; returns the calls that are whole now."""
        whole = []
        for delta in deltas:
            if (tool := delta.tool) is None:
                continue
            if tool.name is not None and self._name:
                whole += self.finish()
            if tool.name is not None:
                self._id, self._name, self._arguments = tool.id or "", tool.name, ""
            self._arguments += tool.arguments
        return whole

    def finish(self) -> list[dict[str, Any]]:
        """The end of a call; returns it unless there was none."""
        if not self._name:
            return []
        call = ToolCall(self._id, self._name, self._arguments)
        self._name = ""
        made = whole_call(call, self._index)
        self._index += 1
        self.n_cut += made is None
        return [made] if made else []


def whole_call(call: ToolCall, index: int) -> dict[str, Any] | None:
    """A call as Ollama has it; None when its arguments are no object, as in an answer that was cut."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        return None
    if not isinstance(arguments, dict):
        return None
    return {"id": call.id, "function": {"index": index, "name": call.name, "arguments": arguments}}


def logprobs(logprobs: Sequence[TokenLogprob], top: bool) -> list[dict[str, Any]]:
    return [
        {
            **_token(each.piece, each.logprob),
            **({"top_logprobs": [_token(piece, logprob) for _, piece, logprob in each.top]} if top else {}),
        }
        for each in logprobs
    ]


def _token(piece: bytes, logprob: float) -> dict[str, Any]:
    return {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(piece)}


def final(end: End, load_seconds: float, seconds: float, warnings: Sequence[str]) -> Mapping[str, Any]:
    """What the last object says of the whole answer."""
    stats = end.ended.stats
    return {
        "done": True,
        "done_reason": "length" if end.finish_reason == "length" else "stop",
        "total_duration": ns(seconds),
        "load_duration": ns(load_seconds),
        "prompt_eval_count": stats.n_prompt,
        "prompt_eval_duration": ns(stats.prompt_seconds),
        "eval_count": stats.n_tokens,
        "eval_duration": ns(stats.seconds),
        "speculation": end.speculation,
        **({"warnings": list(warnings)} if warnings else {}),
    }


def ns(seconds: float) -> int:
    return round(seconds * 1e9)
