"""The status line and the panel: texts that change a few times a second, of which only changed lines are painted."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text
from textual.geometry import Region, Size
from textual.strip import Strip

from localspec.tui.drawing import Look, clean, console_for
from localspec.tui.widgets.painted import Painted

_BLANK = Strip([], 0)

#: draws for a width and a height in cells
Draw = Callable[[int, int], Text]


class Figures(Painted):
    """Shows what the last `Draw` given to `show` makes of its size."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._look = Look()
        self._draw: Draw | None = None
        self._lines: list[Strip] = []

    def show(self, draw: Draw, look: Look) -> None:
        """Draw this from now on, also after a change of size."""
        self._draw, self._look = draw, look
        self._update()

    @property
    def text(self) -> str:
        """What is shown."""
        return "\n".join(line.text for line in self._lines)

    def on_resize(self) -> None:
        self._update()

    def _update(self) -> None:
        width, height = self.size
        if self._draw is None or not width or not height:
            return
        console = console_for(self._look)
        options = console.options.update(width=width, height=None, no_wrap=True, overflow="crop", highlight=False)
        text = self._draw(width, height)
        lines = [Strip(clean(line)).crop(0, width) for line in console.render_lines(text, options, pad=False)[:height]]
        changed = [y for y in range(max(len(lines), len(self._lines))) if _at(lines, y) != _at(self._lines, y)]
        self._lines = lines
        if changed:
            for y in changed:
                self.forget_lines(y, 1)
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return 1

    def line_at(self, y: int) -> Strip:
        return _at(self._lines, y) or _BLANK


def _at(lines: list[Strip], y: int) -> Strip | None:
    return lines[y] if y < len(lines) else None
