"""Lines while they are put together: parts of text with the names of their styles.

A panel is drawn many times a second beside the model, and `rich.text.Text` takes its time for every part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Span, Text

#: text and the name of its style, "" for none
Part = tuple[str, str]
Line = list[Part]


def plain(line: Iterable[Part]) -> str:
    """The text alone."""
    return "".join([text for text, _ in line])


def width(line: Iterable[Part]) -> int:
    """Cells that a line takes."""
    return cell_len(plain(line))


def crop(line: Line, cells: int) -> Line:
    """The first `cells` of a line."""
    cropped: Line = []
    for text, style in line:
        size = cell_len(text)
        if size > cells:
            if cells > 0:
                cropped.append((set_cell_size(text, cells), style))
            break
        cropped.append((text, style))
        cells -= size
    return cropped


def to_text(lines: Sequence[Line]) -> Text:
    """Lines below each other."""
    texts: list[str] = []
    spans: list[Span] = []
    at = 0
    for n, line in enumerate(lines):
        if n:
            texts.append("\n")
            at += 1
        for text, style in line:
            texts.append(text)
            end = at + len(text)
            if style and text:
                if spans and spans[-1].end == at and spans[-1].style == style:
                    spans[-1] = Span(spans[-1].start, end, style)
                else:
                    spans.append(Span(at, end, style))
            at = end
    return Text("".join(texts), spans=spans)
