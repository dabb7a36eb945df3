"""Conversations as Markdown, for people to read, edit and keep, that can be loaded back.

Comments, which no Markdown viewer shows, carry what JSON would: `<!-- localspec ... {...} -->` stands before the title
and before every heading of a message. A line of a message that looks like such a comment gets a backslash in front,
which Markdown does not show either, and a block of code that was cut off is closed, so that what follows is no code;
the comment says so. Any text comes back as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from localspec.errors import UsageError
from localspec.tui.checked import Fields
from localspec.tui.conversation import FORMAT, VERSION, Conversation, Message, check_version, from_parts

_OPEN = "<!-- localspec "
_MARKER = re.compile(r"<!-- localspec (conversation|message) (\{.*\}) -->")
_ESCAPED = re.compile(r"^(\\*<!-- localspec )", re.MULTILINE)
_UNESCAPED = re.compile(r"^\\(\\*<!-- localspec )", re.MULTILINE)
_HEADING = re.compile(r"\n*#[^\n]*\n?")
_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})(.*)$", re.MULTILINE)
_HEADINGS = {"system": "System", "user": "You", "assistant": "Answer"}


def to_markdown(conversation: Conversation) -> str:
    """The whole conversation; `from_markdown` reads it back."""
    settings = {name: value for name, value in conversation.settings().items() if name != "system"}
    head = {"version": VERSION, "about": conversation.about(), "settings": settings}
    blocks = [f"{_marker('conversation', head)}\n# {conversation.title}"]
    if conversation.system is not None:
        blocks.append(_block({"role": "system"}, "System", conversation.system))
    for message in conversation.messages:
        facts = {name: value for name, value in message.to_dict().items() if name != "content"}
        blocks.append(_block(facts, _heading(message), message.content))
    return "\n\n".join(blocks) + "\n"


def from_markdown(text: str) -> Conversation:
    """Read what `to_markdown` wrote, also after a person changed messages. Raises `UsageError`."""
    text = text.removeprefix("\ufeff")
    first, _, _ = text.partition("\n")
    if first.endswith("\r"):  # an editor or a mail program turned all ends of lines
        text = text.replace("\r\n", "\n")
    parts = list(_split(text))
    if not parts or parts[0][0] != "conversation":
        raise UsageError(
            "this Markdown is no conversation of localspec",
            f"such a file begins with the comment {_OPEN}conversation {{...}} -->",
        )
    head = Fields(parts[0][1], "the first comment")
    check_version(FORMAT, head.count("version"))
    conversation = from_parts(head.value("about"), head.value("settings"))
    head.refuse_others()
    for number, (kind, facts, content) in enumerate(parts[1:], 1):
        if kind != "message":
            raise UsageError(f"part {number} is a second conversation", "one file holds one conversation")
        fence = facts.get("fence")
        if isinstance(fence, str):
            del facts["fence"]
            content = content.removesuffix("\n" + fence)
        if facts.get("role") == "system" and number == 1:
            conversation.system = content
        else:
            conversation.messages.append(Message.from_dict({**facts, "content": content}, f"part {number}"))
    return conversation


def _heading(message: Message) -> str:
    parts = [_HEADINGS[message.role]]
    if rate := message.stats.get("tokens_per_second"):
        parts.append(f"{rate:.1f} tok/s")
    if message.method:
        parts.append(message.method)
    if message.forgiven:
        parts.append(f"{message.accept}: {message.forgiven} tokens forgiven")
    if message.partial:
        parts.append("cut off")
    return " · ".join(parts).replace("\n", " ")


def _block(facts: dict[str, Any], heading: str, content: str) -> str:
    fence = _open_fence(content)
    if fence is not None:
        facts = {**facts, "fence": fence}
    end = "" if fence is None else "\n" + fence
    return f"{_marker('message', facts)}\n## {heading}\n\n{_ESCAPED.sub(_backslash, content)}{end}"


def _open_fence(text: str) -> str | None:
    """The line that closes the block of code at the end of a text; None where there is none that is open."""
    opened: str | None = None
    for indent, mark, info in _FENCE.findall(text):
        if opened is None:
            if mark[0] == "~" or "`" not in info:
                opened = indent + mark
        elif opened.strip()[0] == mark[0] and len(mark) >= len(opened.strip()) and not info.strip():
            opened = None
    return opened


def _backslash(match: re.Match[str]) -> str:
    return "\\" + match[1]


def _marker(kind: str, data: dict[str, Any]) -> str:
    # a ">" inside could end the comment
    inside = json.dumps(data, ensure_ascii=True).replace(">", "\\u003e")
    return f"{_OPEN}{kind} {inside} -->"


def _split(text: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The parts of a file: (kind, data of the comment, text below the heading)."""
    starts = list(re.finditer(rf"^{re.escape(_OPEN)}.*$", text, re.MULTILINE))
    for index, start in enumerate(starts):
        last = index + 1 == len(starts)
        below = text[start.end() + 1 : len(text) if last else starts[index + 1].start()]
        kind, data = _read_marker(start[0], text.count("\n", 0, start.start()) + 1)
        below = below.removesuffix("\n" if last else "\n\n")
        heading = _HEADING.match(below)
        if heading is not None:
            below = below[heading.end() :].removeprefix("\n")
        yield kind, data, _UNESCAPED.sub(r"\1", below)


def _read_marker(line: str, number: int) -> tuple[str, dict[str, Any]]:
    found = _MARKER.fullmatch(line.rstrip())
    try:
        if found is None:
            raise ValueError("it is not complete")
        data = json.loads(found[2])
    except (ValueError, RecursionError) as error:
        raise UsageError(f"line {number}: the comment of localspec cannot be read: {error}") from error
    return found[1], data
