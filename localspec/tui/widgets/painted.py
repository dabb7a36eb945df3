"""A base of widgets that show many lines, most of which stay as they are between two paintings.

Textual styles every line of a scrolled widget anew, which takes ten times as long as looking up lines that are ready.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

#: painted lines that are kept
_MOST = 400


class Painted(Widget):
    """Shows what `line_at` gives, without padding and borders of its own. Lines are kept until `forget_lines`."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._painted: dict[int, Strip] = {}
        self._painted_width = 0
        self._base: tuple[Style, Color, Sequence[LineFilter]] | None = None

    def line_at(self, y: int) -> Strip:
        """Line `y`, counted from the beginning of what is shown, unstyled where nothing is said."""
        raise NotImplementedError

    @property
    def first_line(self) -> int:
        """The line at the top of the widget."""
        return 0

    @property
    def marking(self) -> bool:
        """Whether there is something to mark now that is not kept with the lines, such as a selection."""
        return False

    def marked(self, y: int, strip: Strip) -> Strip:
        """Line `y` with these marks."""
        return strip

    def forget_lines(self, first: int = 0, n: int | None = None) -> None:
        """`n` lines from `first` on have changed, or all from there on."""
        if n is not None:
            for y in range(first, first + n):
                self._painted.pop(y, None)
        elif first <= 0 or len(self._painted) > _MOST:
            self._painted.clear()
        else:
            for y in [y for y in self._painted if y >= first]:
                del self._painted[y]

    def notify_style_update(self) -> None:
        self.forget_lines()
        self._base = None
        super().notify_style_update()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of a region of the widget."""
        width = self.size.width
        if width != self._painted_width:
            self._painted_width = width
            self.forget_lines()
        top = self.first_line
        lines = range(top + crop.y, top + crop.bottom)
        strips = [self._line(y, width) for y in lines]
        if self.marking:
            strips = [self.marked(y, strip) for y, strip in zip(lines, strips, strict=True)]
        if crop.column_span != (0, width):
            strips = [strip.crop(crop.x, crop.right) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        """A line of the widget; the mouse finds in it what it selects."""
        return self._line(self.first_line + y, self.size.width)

    def _line(self, y: int, width: int) -> Strip:
        strip = self._painted.get(y)
        if strip is None:
            strip = self._painted[y] = self._paint(self.line_at(y), width, y)
        return strip

    def _paint(self, strip: Strip, width: int, y: int) -> Strip:
        if self._base is None:
            self._base = (self.rich_style, self.background_colors[1], self.get_line_filters())
        style, background, filters = self._base
        strip = strip.crop(0, width).apply_style(style).adjust_cell_length(width, style)
        for line_filter in filters:
            strip = strip.apply_filter(line_filter, background)
        return strip.apply_offsets(0, y)
