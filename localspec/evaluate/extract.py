"""What of an answer is scored: its code, its final number, its text without the wrapping."""

from __future__ import annotations

import ast
import re
import textwrap
from decimal import Decimal

#: a fence that opens or closes a code block, with the language that it may name
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*[\w.+#-]*[ \t]*$", re.MULTILINE)
#: code outside of a block begins with such a line
_START = re.compile(r"^(?:(?:from|import|def|class|async def) |@\w)", re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.])(?:(?<![)\]])-)?(?:\d{1,3}(?:,\d{3})+(?!,?\d)|\d+)(?:\.\d+)?|(?<![\w.])-?\.\d+")
_BOXED = re.compile(r"\\boxed\s*\{")
#: GSM8K's mark of an answer; that a number follows tells it from a heading in Markdown, that no text goes on behind its
#: full stop from a numbered one
_MARKED = re.compile(rf"####[ \t*$]*({_NUMBER.pattern})(?![.,]?\d|[.):]\**[ \t]+\S)")
_MOST_PARSED = 1 << 16


def blocks(text: str) -> list[str]:
    """The contents of the text's code blocks; one that is not closed goes to the end."""
    found: list[str] = []
    start: int | None = None
    mark = ""
    for match in _FENCE.finditer(text):
        if start is None:
            start, mark = match.end() + 1, match[1]
        elif match[1] == mark:
            found.append(text[start : match.start()])
            start = None
    if start is not None:
        found.append(text[start:])
    # blocks in lists are indented as a whole
    return [textwrap.dedent(block) for block in found]


def python_function(text: str, entry_point: str, preamble: str = "") -> str:
    """The program of an answer that should define `entry_point`.

    That is the last valid block that defines the function, with the blocks before it: helpers may stand in their own.
    Without a block it is the text from its first line of code to its last. An answer that goes on behind
    `preamble`, the beginning of the function, is joined to it.
    """
    defines = re.compile(rf"^(?:async )?def {re.escape(entry_point)}\b", re.MULTILINE)
    found = blocks(text)
    defining = [i for i, block in enumerate(found) if defines.search(block)]
    if defining:
        chosen = next((i for i in reversed(defining) if _parses(found[i])), defining[0])
        helpers = [block for block in found[:chosen] if not defines.search(block) and _parses(block)]
        return "\n".join([*helpers, found[chosen]])
    if defines.search(text):
        return _code_in_prose(text)
    body = found[0] if found else _FENCE.sub("", text)
    lines = [line for line in body.split("\n") if line.strip()]
    if lines and not lines[0][0].isspace():
        body = "\n".join("    " + line for line in body.split("\n"))
    return preamble.rstrip() + "\n" + body


def _code_in_prose(text: str) -> str:
    """The text from the first line that may be code on, without the lines at the end that keep it from being valid."""
    start = _START.search(text)
    code = text[start.start() :] if start else text
    lines = code[:_MOST_PARSED].split("\n")
    for n in range(len(lines), 0, -1):
        if _parses("\n".join(lines[:n])):
            return "\n".join(lines[:n])
    return code


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def final_number(text: str) -> Decimal | None:
    r"""The number that an answer ends with; None without one.

    What stands in the last \boxed{} or right behind the last #### goes before all others. Currency signs, thousands'
    commas, and a full stop or a comma behind the number do not count.
    """
    text = text.replace("\u2212", "-").replace("{,}", ",").replace("\\,", "").replace("\\$", "$")
    # "$-5" and "-$5" are the same amount
    text = re.sub(r"(-?)[$\u20ac\u00a3](?=[-\d.])", r"\1", text)
    boxed = list(_BOXED.finditer(text))
    marked = [text[boxed[-1].end() :].split("}", 1)[0].rsplit("=", 1)[-1]] if boxed else []
    if answers := _MARKED.findall(text):
        marked.append(answers[-1])
    for part in marked:
        number = _NUMBER.search(part)
        if number:
            return _decimal(number[0])
    numbers = _NUMBER.findall(text)
    return _decimal(numbers[-1]) if numbers else None


def _decimal(number: str) -> Decimal:
    return Decimal(number.replace(",", ""))


def plain_lines(text: str) -> list[str]:
    """The lines of a text without fences, without space at their ends, and without empty lines around them."""
    lines = [line.rstrip() for line in _FENCE.sub("", text.replace("\r\n", "\n")).split("\n")]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines
