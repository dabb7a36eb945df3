"""The pieces of a conversation as one long list of lines, of which a view shows a part."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from textual.strip import Strip

from localspec.tui.drawing import Look, Piece

_BLANK = Strip([], 0)


@dataclass
class _Slot:
    """A piece and its lines, drawn for a width and a look."""

    piece: Piece
    drawn: tuple[int, Look]
    lines: list[Strip]
    gap: int

    @property
    def height(self) -> int:
        return self.gap + len(self.lines)


class Page:
    """Pieces below each other, with a blank line between those that are not joined."""

    def __init__(self, width: int = 80, look: Look | None = None) -> None:
        self._how = (width, look or Look())
        self._slots: list[_Slot] = []
        #: the first line of each slot
        self._tops: list[int] = []
        self._stale = 0

    def __len__(self) -> int:
        """The number of pieces."""
        return len(self._slots)

    @property
    def height(self) -> int:
        """The number of lines."""
        return self._tops[-1] + self._slots[-1].height if self._slots else 0

    def top(self, index: int) -> int:
        """The first line of a piece; the height for the index after the last one."""
        return self._tops[index] if index < len(self._slots) else self.height

    def line(self, y: int) -> Strip:
        """A line, blank where there is none."""
        index = bisect_right(self._tops, y) - 1
        if index < 0:
            return _BLANK
        slot = self._slots[index]
        at = y - self._tops[index] - slot.gap
        return slot.lines[at] if 0 <= at < len(slot.lines) else _BLANK

    def replace(self, first: int, pieces: Sequence[Piece]) -> int:
        """Put `pieces` in the place of all from index `first` on; returns the first line that may have changed."""
        keep = first
        while keep < len(self._slots) and keep - first < len(pieces) and self._same(keep, pieces[keep - first]):
            keep += 1
        line = self.top(keep)
        old = self._slots[keep] if keep < len(self._slots) else None
        del self._slots[keep:], self._tops[keep:]
        for piece in pieces[keep - first :]:
            self._tops.append(self.height)
            self._slots.append(self._draw(piece, first=not self._slots))
        if old is not None and keep < len(self._slots):
            line += _common(old, self._slots[keep])
        return line

    def show_as(self, width: int, look: Look) -> None:
        """Another width or look: `redraw` has work to do."""
        if (width, look) != self._how:
            self._how = (width, look)
            self._stale = len(self._slots)

    def redraw(self, lines: int, below: int | None = None) -> tuple[bool, int]:
        """Draw stale pieces anew, the last ones first, until `lines` lines are done.

        Returns whether there is more to do, and by how many lines what stands above line `below` has grown.
        """
        grown, done = 0, 0
        while self._stale and done < lines:
            self._stale -= 1
            if self._stale >= len(self._slots):
                continue
            slot = self._slots[self._stale]
            if slot.drawn != self._how:
                new = self._draw(slot.piece, first=not self._stale)
                if below is not None and self._tops[self._stale] < below:
                    grown += new.height - slot.height
                self._slots[self._stale] = new
                done += new.height
        if done:
            self._lay_out()
        return self._stale > 0, grown

    def _lay_out(self) -> None:
        top = 0
        for i, slot in enumerate(self._slots):
            self._tops[i] = top
            top += slot.height

    def _same(self, index: int, piece: Piece) -> bool:
        slot = self._slots[index]
        return slot.drawn == self._how and slot.piece == piece

    def _draw(self, piece: Piece, *, first: bool) -> _Slot:
        lines = piece.lines(*self._how)
        return _Slot(piece, self._how, lines, 0 if first or piece.joined or not lines else 1)


def _common(old: _Slot, new: _Slot) -> int:
    """How many lines at the beginning are the same."""
    if old.gap != new.gap:
        return 0
    same = new.gap
    for a, b in zip(old.lines, new.lines, strict=False):
        if a != b:
            break
        same += 1
    return same
