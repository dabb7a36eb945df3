"""The conversation: questions, answers that grow, and remarks, as one scrolling list of lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from localspec.tui.drawing import Asked, Look, Piece, Remark
from localspec.tui.page import Page
from localspec.tui.widgets.painted import Painted

#: between the text and the edges
_MARGIN = Strip([Segment(" ")])
#: lines that are drawn anew at once after a change of width; the others follow in the background
AT_ONCE = 200


class ConversationView(Painted, ScrollView, can_focus=True):
    """Follows the end while it is scrolled to the end."""

    DEFAULT_CSS = """
    ConversationView { overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    """
    ALLOW_SELECT = True

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._look = Look()
        self._page = Page()
        self._answer = 0
        self._grows = False
        self._follow = True

    # what is on the page

    def __len__(self) -> int:
        """The number of pieces on the page: a mark that `cut` goes back to."""
        return len(self._page)

    def add(self, *pieces: Piece) -> None:
        """Put pieces at the end."""
        self._replace(len(self._page), pieces)

    def ask(self, text: str) -> None:
        """Put a question at the end, and follow what comes."""
        self.add(Asked(text))
        self.follow()

    def remark(self, text: str, style: str, hint: str | None = None, *, joined: bool = False) -> None:
        """Put a remark at the end."""
        self.add(Remark(text, style, hint, joined))

    def begin_answer(self) -> None:
        """What `write` puts on the page from now on is an answer of its own."""
        self._answer = len(self._page)
        self._grows = True
        self._show_scroll_bar()

    def write(self, index: int, pieces: Sequence[Piece]) -> None:
        """Put pieces in place of those of the answer from `index` on, with which the page ends."""
        self._replace(self._answer + index, pieces)

    def end_answer(self) -> None:
        """The answer does not grow any more."""
        self._grows = False
        self._show_scroll_bar()

    def cut(self, mark: int) -> None:
        """Take away all pieces from `mark` on."""
        self._replace(mark, ())

    # scrolling

    @property
    def follows(self) -> bool:
        """Whether the end stays in sight."""
        return self._follow

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._follow = True
        self._to_end()

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        self._follow = new >= self.max_scroll_y - 0.5
        self._show_scroll_bar()

    def _show_scroll_bar(self) -> None:
        # painting it for every new line would take as long as all the rest
        self.styles.scrollbar_visibility = "hidden" if self._grows and self._follow else "visible"

    def _to_end(self) -> None:
        if self._follow and self.max_scroll_y != self.scroll_offset.y:
            self.scroll_to(y=self.max_scroll_y, animate=False, force=True, immediate=True)

    # drawing

    def look_like(self, look: Look) -> None:
        """Draw in another look."""
        self._look = look
        self.notify_style_update()
        self._show_as()

    def on_resize(self, event: events.Resize) -> None:
        self._show_as()

    def _show_as(self) -> None:
        self._page.show_as(max(1, self.scrollable_content_region.width - 2 * len(_MARGIN.text)), self._look)
        self._redraw()

    def _redraw(self) -> None:
        self.forget_lines()
        more, grown = self._page.redraw(AT_ONCE, None if self._follow else self.scroll_offset.y)
        self._measure()
        if grown:
            self.scroll_to(y=self.scroll_offset.y + grown, animate=False, force=True, immediate=True)
        self.refresh()
        if more:
            self.set_timer(0.02, self._redraw)

    def _replace(self, first: int, pieces: Sequence[Piece]) -> None:
        height = self._page.height
        line = self._page.replace(first, pieces)
        lines = max(height, self._page.height) - line
        self.forget_lines(line)
        self.refresh(Region(0, line - self.scroll_offset.y, self.size.width, lines))
        self._measure()

    def _measure(self) -> None:
        """Tell the scroll bar how long the page is."""
        size = Size(self.scrollable_content_region.width, self._page.height)
        if size != self.virtual_size:
            follow = self._follow
            self.virtual_size = size
            self._follow = follow
            self._to_end()

    @property
    def first_line(self) -> int:
        return self.scroll_offset.y

    def line_at(self, y: int) -> Strip:
        return Strip.join([_MARGIN, self._page.line(y)])

    # selecting with the mouse

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, without the blanks at the ends of lines."""
        text = "\n".join(self.line_at(y).text.rstrip() for y in range(self._page.height))
        lines = selection.extract(text).split("\n")
        return "\n".join(line.removeprefix(_MARGIN.text) for line in lines), "\n"

    @property
    def marking(self) -> bool:
        return self.text_selection is not None

    def marked(self, y: int, strip: Strip) -> Strip:
        selection = self.text_selection
        span = None if selection is None else selection.get_span(y)
        if span is None:
            return strip
        begin, end = (strip.cell_length if at == -1 else cell_len(strip.text[:at]) for at in span)
        style = self.screen.get_component_rich_style("screen--selection")
        return Strip.join([strip.crop(0, begin), strip.crop(begin, end).apply_style(style), strip.crop(end)])

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()
