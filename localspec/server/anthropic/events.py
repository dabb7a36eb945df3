"""Answers as Anthropic's clients read them: blocks of thoughts, text and tool calls, as events or whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from localspec.chat_format.api import Delta, ToolCall
from localspec.server.answers import End
from localspec.server.errors import Problem
from localspec.server.sse import event

CUT_CALL = "a tool call was cut: its input is no whole JSON object, and it is left out"
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_shape(problem: Problem) -> dict[str, Any]:
    """An error as Anthropic's clients read it, in a body as in an event."""
    kind = _TYPES.get(problem.status, "invalid_request_error" if problem.status < 500 else "api_error")
    # the words that agents look for before they shorten a conversation
    too_long = "prompt is too long: " if problem.code == "context_length_exceeded" else ""
    return {"type": "error", "error": {"type": kind, "message": too_long + problem.message}}


def error_event(problem: Problem) -> bytes:
    return event(error_shape(problem), "error")


def named(data: dict[str, Any]) -> bytes:
    """An event; it has the name of its type."""
    return event(data, data["type"])


PING = named({"type": "ping"})


def stop(end: End, asked: Sequence[str]) -> dict[str, Any]:
    """Why an answer ended. `asked` are the stop strings of the client: a chat format may have some of its own."""
    ended = end.ended
    if end.finish_reason == "tool_calls":
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if end.finish_reason == "length":
        reason = "model_context_window_exceeded" if ended.truncated else "max_tokens"
        return {"stop_reason": reason, "stop_sequence": None}
    if ended.stop in asked:
        return {"stop_reason": "stop_sequence", "stop_sequence": ended.stop}
    return {"stop_reason": "end_turn", "stop_sequence": None}


def usage(end: End) -> dict[str, int]:
    stats = end.ended.stats
    return {
        "input_tokens": max(0, stats.n_prompt - stats.n_cached),
        "output_tokens": stats.n_tokens,
        "cache_read_input_tokens": stats.n_cached,
        "cache_creation_input_tokens": 0,
    }


def blocks(end: End) -> tuple[list[dict[str, Any]], int]:
    """The content of a whole answer, and how many tool calls are not in it, since the answer ended within them."""
    reply = end.reply
    made: list[dict[str, Any]] = []
    if reply.reasoning:
        made.append({"type": "thinking", "thinking": reply.reasoning, "signature": ""})
    if reply.content:
        made.append({"type": "text", "text": reply.content})
    calls = [_tool_use(call, i) for i, call in enumerate(reply.tools)]
    return [*made, *(call for call in calls if call is not None)], calls.count(None)


def _tool_use(call: ToolCall, index: int) -> dict[str, Any] | None:
    try:
        given = json.loads(call.arguments or "{}")
    except ValueError:
        return None
    if not isinstance(given, dict):
        return None
    return {"type": "tool_use", "id": call.id or f"toolu_{index}", "name": call.name, "input": given}


class Blocks:
    """The events of the content of one answer, from its pieces."""

    def __init__(self) -> None:
        self._index = -1
        self._open: tuple[str, int] | None = None

    def feed(self, deltas: Sequence[Delta]) -> Iterator[bytes]:
        for delta in deltas:
            if delta.reasoning:
                yield from self._in(("thinking", 0), {"type": "thinking", "thinking": "", "signature": ""})
                yield self._delta({"type": "thinking_delta", "thinking": delta.reasoning})
            if delta.content:
                yield from self._in(("text", 0), {"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": delta.content})
            if (tool := delta.tool) is not None:
                block = {
                    "type": "tool_use",
                    "id": tool.id or f"toolu_{tool.index}",
                    "name": tool.name or "",
                    "input": {},
                }
                yield from self._in(("tool_use", tool.index), block)
                if tool.arguments:
                    yield self._delta({"type": "input_json_delta", "partial_json": tool.arguments})

    def finish(self) -> Iterator[bytes]:
        """The end of the block that is open, if one is."""
        if self._open is None:
            return
        if self._open[0] == "thinking":
            yield self._delta({"type": "signature_delta", "signature": ""})
        self._open = None
        yield named({"type": "content_block_stop", "index": self._index})

    def _in(self, which: tuple[str, int], block: dict[str, Any]) -> Iterator[bytes]:
        if self._open == which:
            return
        yield from self.finish()
        self._index += 1
        self._open = which
        yield named({"type": "content_block_start", "index": self._index, "content_block": block})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return named({"type": "content_block_delta", "index": self._index, "delta": delta})
