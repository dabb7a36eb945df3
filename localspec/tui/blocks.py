"""Markdown that arrives in pieces, cut into blocks of bounded size.

A finished block never changes again, so a view draws each of them once, and the cost of a token does not grow with the
answer: what is parsed again with every piece is the last block. Knows nothing of screens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

#: code is cut after so many lines, text once it has so many characters; both bound what a new piece costs
CODE_LINES = 32
TEXT_CHARS = 800
#: tables may be larger, as the columns of what is cut off do not line up with those above
TABLE_CHARS = 1200

_FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)$")
#: a line that may become one that begins or ends code
_MAYBE_FENCE = re.compile(r"^ *(?:`+|~+|`{3,}[^`]*|~{3,}[^`]*)$")
_ITEM = re.compile(r"^ {0,3}(?:[-*+]|\d{1,9}[.)]) ")
_DELIMITER_ROW = re.compile(r"^ *\|?(?: *:?-+:? *\|)+ *:?-*:? *$")


@dataclass(frozen=True)
class Block:
    """A stretch of an answer. `source` of code is without its fences, and without the `indent` these had.

    `header` are lines that belong before the source, such as the head of a table that was cut; with `joined` the block
    goes on where the previous one was cut.
    """

    kind: Literal["text", "code"]
    source: str = ""
    language: str = ""
    indent: int = 0
    joined: bool = False
    header: str = ""


class Blocks:
    """The blocks of an answer so far, in `blocks`; the last one may still grow."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        # what whole lines make; the line that has no end yet is in `blocks` alone
        self._whole: list[Block] = []
        self._fence: str | None = None
        self._lines: list[str] = []
        self._size = 0
        self._partial = ""
        self._open = False
        self._blank = False

    def feed(self, text: str) -> int:
        """Add a piece of text; returns the index of the first block that is new or changed."""
        first = max(0, len(self._whole) - 1)
        *lines, partial = (self._partial + text).split("\n")
        for line in lines:
            self._line(self._cut_long(line))
        self._partial = self._cut_long(partial)
        if lines or partial != self._partial:
            self._store()
        self.blocks[first:] = self._whole[first:]
        self._show_partial()
        return first

    def _show_partial(self) -> None:
        """Put the line that has no end yet where it will probably stand."""
        line = self._partial
        if not line.strip() or _MAYBE_FENCE.match(line):
            return
        last = self.blocks[-1] if self._open else None
        if last is None or (last.kind == "text" and self._blank and not self._goes_on(line)):
            self.blocks.append(Block("text", line))
        else:
            added = _dedent(line, last.indent) if last.kind == "code" else line
            self.blocks[-1] = replace(last, source="\n".join([*self._lines, added]))

    def _cut_long(self, line: str) -> str:
        """The end of a line of which what would make a block too large has been cut off."""
        while len(line) > 2 * TEXT_CHARS:
            at = line.rfind(" ", TEXT_CHARS, 2 * TEXT_CHARS) + 1 or 2 * TEXT_CHARS
            self._line(line[:at])
            self._cut()
            line = line[at:]
        return line

    def _line(self, line: str) -> None:
        if self._fence is not None:
            self._code_line(line, self._fence)
        elif fence := _FENCE.match(line):
            self._end()
            info = fence["info"].split()
            self._fence = fence["mark"]
            self._begin(Block("code", language=info[0] if info else "", indent=len(fence["indent"])))
        elif not line.strip():
            self._blank = True
            if self._open:
                self._add("")
        else:
            self._text_line(line)

    def _code_line(self, line: str, fence: str) -> None:
        text = line.strip()
        if text and set(text) == {fence[0]} and len(text) >= len(fence):
            self._end()
            self._fence = None
            return
        if len(self._lines) >= CODE_LINES or self._size > 4 * TEXT_CHARS:
            self._cut()
        self._add(_dedent(line, self._whole[-1].indent))

    def _text_line(self, line: str) -> None:
        if self._open:
            if self._blank and not self._goes_on(line):
                self._end()
            elif self._size > (TABLE_CHARS if self._table_head() else TEXT_CHARS) or (
                self._size > TEXT_CHARS // 2 and _ITEM.match(line)
            ):
                self._cut()
        if not self._open:
            self._begin(Block("text"))
        self._blank = False
        self._add(line)

    def _goes_on(self, line: str) -> bool:
        """Whether a line after a blank one belongs to the block still: to an item of its list."""
        return bool(self._lines and _ITEM.match(self._lines[0])) and line.startswith("  ")

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line) + 1

    def _begin(self, block: Block) -> None:
        self._whole.append(block)
        self._lines, self._size, self._open, self._blank = [], 0, True, False

    def _end(self) -> None:
        """Nothing is added to the last block any more."""
        self._store()
        self._open = False

    def _cut(self) -> None:
        """End the last block in the middle and go on in one like it."""
        header = ""
        last = self._whole[-1]
        if last.kind == "text":
            header = self._table_head()
        self._end()
        self._begin(replace(last, source="", joined=True, header=header))

    def _table_head(self) -> str:
        """The head of the table in which the block ends; "" where it does not."""
        if not self._lines or "|" not in self._lines[-1]:
            return ""
        at = next((i for i, line in enumerate(self._lines[1:], 1) if _DELIMITER_ROW.match(line)), 0)
        return "\n".join(self._lines[at - 1 : at + 1]) if at else self._whole[-1].header

    def _store(self) -> None:
        if self._open:
            self._whole[-1] = replace(self._whole[-1], source="\n".join(self._lines))


def blocks_of(text: str) -> list[Block]:
    """The blocks of a whole text."""
    blocks = Blocks()
    blocks.feed(text)
    return blocks.blocks


def code_of(text: str) -> list[str]:
    """The blocks of code in a text, whole."""
    found: list[str] = []
    for block in blocks_of(text):
        if block.kind == "code":
            if block.joined:
                found[-1] += "\n" + block.source
            else:
                found.append(block.source)
    return found


def _dedent(line: str, indent: int) -> str:
    return line[min(indent, len(line) - len(line.lstrip(" "))) :]
