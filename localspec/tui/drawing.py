"""From blocks, questions and notices to lines of styled text, by Rich; what the conversation view shows.

A Markdown widget of Textual takes 10 to 30 ms for each piece that is added, since its blocks are widgets that are laid
out again; drawing one bounded block takes about one.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import Markdown, MarkdownElement, TextElement
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme
from textual.strip import Strip

from localspec.text import without_controls
from localspec.tui import palette
from localspec.tui.blocks import Block
from localspec.tui.render.tint import Kind, tinted

_LINE_ENDS = str.maketrans({"\u2028": "\n", "\u2029": "\n"})

_MARKDOWN_STYLES = {
    "markdown.code": "bold cyan",
    "markdown.code_block": "cyan",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold underline",
    "markdown.h3": "bold",
    "markdown.h4": "bold italic",
    "markdown.block_quote": "italic",
    "markdown.item.bullet": "bold",
    "markdown.item.number": "bold",
    "markdown.link": "underline",
    "markdown.link_url": "underline",
}


@dataclass(frozen=True)
class Look:
    """What drawing depends on beside the width: the tone of the palette and the background of code (None: that of the
    text)."""

    tone: palette.Tone = "dark"
    code_background: str | None = None

    @property
    def code_theme(self) -> str:
        """The name of a theme of Pygments, or of Rich's for terminals."""
        return {"dark": "monokai", "light": "default"}.get(self.tone, "ansi_dark")


class Piece(Protocol):
    """Something that can be drawn. Pieces are equal when they look the same."""

    @property
    def joined(self) -> bool:
        """Whether it follows the piece before without a blank line."""
        ...

    def lines(self, width: int, look: Look) -> list[Strip]:
        """The lines, none of them wider than `width` cells."""
        ...


class _Heading(TextElement):
    """A heading that begins at the left, at every level and in every version of Rich."""

    def __init__(self, tag: str) -> None:
        self.style_name = f"markdown.{tag}"
        super().__init__()

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _Heading:
        return cls(token.tag)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text


class _Markdown(Markdown):
    """Markdown as chats write it: HTML is shown as it is, and a line stays a line."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _Heading}
    _parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])

    def of(self, source: str) -> _Markdown:
        """This, with another source: to make one takes longer than to draw it."""
        self.markup = source
        self.parsed = self._parser.parse(source)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"
        return self


@lru_cache(maxsize=4)
def _markdown(code_theme: str) -> _Markdown:
    return _Markdown("", code_theme=code_theme)


@lru_cache(maxsize=8)
def console_for(look: Look) -> Console:
    """A console that draws into memory with the styles of `look`."""
    theme = Theme({**palette.rich_theme(look.tone).styles, **_MARKDOWN_STYLES})
    return Console(
        file=io.StringIO(), force_terminal=True, color_system="truecolor", width=80, theme=theme, legacy_windows=False
    )


def strips(renderable: RenderableType, width: int, look: Look, *, trim: bool = True) -> list[Strip]:
    """`renderable` as lines of at most `width` cells, without control characters and (`trim`) blank lines around."""
    console = console_for(look)
    options = console.options.update(width=max(1, width), height=None, highlight=False)
    lines = [Strip(clean(line)).crop(0, width) for line in console.render_lines(renderable, options, pad=False)]
    while trim and lines and not lines[-1].text.strip():
        lines.pop()
    while trim and lines and not lines[0].text.strip():
        lines.pop(0)
    return lines


def _harmless(text: str) -> str:
    """Text without what moves a cursor or changes a terminal."""
    return without_controls(text).translate(_LINE_ENDS)


def clean(line: Iterable[Segment]) -> list[Segment]:
    """A drawn line without control characters, wherever they came from."""
    return [
        Segment(_harmless(segment.text).replace("\n", ""), segment.style) if not segment.text.isprintable() else segment
        for segment in line
        if not segment.control
    ]


@dataclass(frozen=True)
class Written:
    """A block of an answer; with `raw` the Markdown itself."""

    block: Block
    raw: bool = False

    @property
    def joined(self) -> bool:
        return self.block.joined

    def lines(self, width: int, look: Look) -> list[Strip]:
        block = self.block
        source = _harmless(block.source.expandtabs(4) if block.kind == "code" else block.source)
        if block.kind == "code":
            return self._code(source, width, look)
        if self.raw:
            return strips(Text(source), width, look)
        whole = f"{block.header}\n{source}" if block.header else source
        return strips(_markdown(look.code_theme).of(whole), width, look)

    def _code(self, source: str, width: int, look: Look) -> list[Strip]:
        code = Syntax(
            source,
            self.block.language or "text",
            theme=look.code_theme,
            word_wrap=True,
            background_color=look.code_background or "default",
        )
        style = Style(bgcolor=look.code_background) if look.code_background else Style.null()
        inner = max(1, width - 4 - self.block.indent)
        console = console_for(look)
        rendered = console.render_lines(code, console.options.update(width=inner, height=None), pad=True)
        # Syntax gives a line for the end of the last one
        if len(rendered) > 1 and not "".join(segment.text for segment in rendered[-1]).strip():
            rendered.pop()
        left, right = Segment(" " * self.block.indent), Segment("  ", style)
        return [Strip([left, right, *clean(line), right]).crop(0, width) for line in rendered]


@dataclass(frozen=True)
class Tinted:
    """A stretch of an answer as its tokens."""

    tokens: tuple[tuple[str, Kind], ...]
    joined: bool = True

    def lines(self, width: int, look: Look) -> list[Strip]:
        return strips(tinted(self.tokens), width, look, trim=False)


@dataclass(frozen=True)
class Asked:
    """A question of the person."""

    text: str
    joined: bool = False

    def lines(self, width: int, look: Look) -> list[Strip]:
        bar = Segment("▌ ", console_for(look).get_style(palette.TITLE))
        text = Text(_harmless(self.text.expandtabs(4)), style="bold")
        return [Strip([bar, *line]).crop(0, width) for line in strips(text, width - 2, look) or [Strip.blank(0)]]


@dataclass(frozen=True)
class Remark:
    """A line about an answer, or about something that happened, in a style of the palette."""

    text: str
    style: str = palette.MUTED
    hint: str | None = None
    joined: bool = False

    def lines(self, width: int, look: Look) -> list[Strip]:
        parts: list[Any] = [Text(_harmless(self.text), style=self.style)]
        if self.hint:
            parts.append(Padding(Text(_harmless(self.hint), style=palette.MUTED), (0, 0, 0, 2)))
        return [line for part in parts for line in strips(part, width, look)]
