"""Replies as they are written: what one more piece of text makes certain."""

from __future__ import annotations

import secrets
from typing import Any, Protocol

from localspec.chat_format.api import Delta, Reply, ToolCall, ToolDelta
from localspec.chat_format.native import UnparsedError


class ReplyParser(Protocol):
    """The part of `native.Parser` that is used here."""

    def parse(self, text: str, is_partial: bool) -> dict[str, Any]: ...


class ContentReader:
    """Reads replies of which all text is content."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def feed(self, text: str) -> list[Delta]:
        """See `ReplyReader`."""
        self._parts.append(text)
        return [Delta(content=text)] if text else []

    def finish(self) -> list[Delta]:
        """See `ReplyReader`."""
        return []

    @property
    def reply(self) -> Reply:
        """See `ReplyReader`."""
        return Reply("".join(self._parts))


class _Call:
    """What was told of one tool call."""

    def __init__(self, call_id: str, name: str) -> None:
        self.id, self.name = call_id, name
        self.arguments = ""


class NativeReader:
    """Reads replies with llama.cpp's parser.

    All of the text is parsed again with every piece, as the parser keeps nothing; what is longer than it was is told.
    What was told is never taken back: the parser may hold a beginning for something else than the whole turns out to
    be, and then says nothing new until the two agree.
    """

    def __init__(self, parser: ReplyParser) -> None:
        self._parser = parser
        self._text = ""
        self._content = self._reasoning = ""
        self._calls: list[_Call] = []

    def feed(self, text: str) -> list[Delta]:
        """See `ReplyReader`."""
        self._text += text
        if not text:
            return []
        try:
            return self._told(self._parser.parse(self._text, is_partial=True), is_partial=True)
        except UnparsedError:
            return []

    def finish(self) -> list[Delta]:
        """See `ReplyReader`."""
        try:
            message = self._parser.parse(self._text, is_partial=False)
        except UnparsedError:
            return self._as_content()
        return self._told(message if message["tool_calls"] else self._with_tail(message), is_partial=False)

    @property
    def reply(self) -> Reply:
        """See `ReplyReader`."""
        return Reply(
            self._content,
            self._reasoning,
            tuple(ToolCall(call.id, call.name, call.arguments) for call in self._calls),
        )

    def _with_tail(self, message: dict[str, Any]) -> dict[str, Any]:
        """The message, with the end of the text that the parser holds back as it could begin a mark.

        A character that is part of no mark decides that it does not.
        """
        try:
            longer = self._parser.parse(self._text + _NO_MARK, is_partial=True)
        except UnparsedError:
            return message
        for part in ("content", "reasoning_content"):
            text = longer[part].removesuffix(_NO_MARK)
            if text != longer[part] and text.startswith(message[part]) and not longer["tool_calls"]:
                return {**message, part: text}
        return message

    def _told(self, message: dict[str, Any], is_partial: bool) -> list[Delta]:
        deltas = []
        if more := _more(self._reasoning, message["reasoning_content"]):
            self._reasoning += more
            deltas.append(Delta(reasoning=more))
        if more := _more(self._content, message["content"]):
            self._content += more
            deltas.append(Delta(content=more))
        calls = message["tool_calls"]
        for i, call in enumerate(calls):
            # a name may grow, and arguments change their beginning, as long as nothing follows
            if is_partial and i == len(calls) - 1 and len(call["arguments"]) < _SETTLED:
                break
            deltas += self._called(i, call)
        return deltas

    def _called(self, i: int, call: dict[str, Any]) -> list[Delta]:
        arguments = call["arguments"]
        if i == len(self._calls):
            self._calls.append(_Call(call["id"] or _new_id(), call["name"]))
            known = self._calls[i]
            known.arguments = arguments
            return [Delta(tool=ToolDelta(i, known.id, known.name, arguments))]
        known = self._calls[i]
        more = _more(known.arguments, arguments)
        known.arguments += more
        return [Delta(tool=ToolDelta(i, arguments=more))] if more else []

    def _as_content(self) -> list[Delta]:
        """The rest of a text that is no reply of the format, where nothing else than its beginning was told."""
        if self._reasoning or self._calls:
            return []
        more = _more(self._content, self._text)
        self._content += more
        return [Delta(content=more)] if more else []


#: of no alphabet and no markup
_NO_MARK = "\ue000"
#: characters of arguments: "{" alone may be made up by the parser
_SETTLED = 2


def _more(told: str, now: str) -> str:
    """What `now` has after `told`; nothing when it does not begin with that."""
    return now[len(told) :] if now.startswith(told) else ""


def _new_id() -> str:
    return f"call_{secrets.token_hex(12)}"
