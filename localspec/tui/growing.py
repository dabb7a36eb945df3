"""An answer as pieces to draw, while it is written: of what is there already only the last piece changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from localspec.tui.blocks import Blocks
from localspec.tui.drawing import Piece, Tinted, Written
from localspec.tui.render.tint import Kind

#: the most tokens of one tinted piece
TINTED = 160


class GrowingText:
    """Markdown; with `raw` its source."""

    def __init__(self, raw: bool = False) -> None:
        self._blocks = Blocks()
        self._raw = raw

    def feed(self, text: str) -> tuple[int, list[Piece]]:
        """Add text; returns all pieces from the first one that changed, and its index."""
        first = self._blocks.feed(text)
        return first, [Written(block, self._raw) for block in self._blocks.blocks[first:]]


class GrowingTint:
    """The tokens, marked by where they came from."""

    def __init__(self) -> None:
        self._last: list[tuple[str, Kind]] = []
        self._n_whole = 0

    def feed(self, tokens: Iterable[tuple[str, Kind]]) -> tuple[int, list[Piece]]:
        """Add tokens; returns as `GrowingText.feed` does."""
        first = self._n_whole
        pieces: list[Piece] = []
        for text, kind in tokens:
            before, newline, after = text.rpartition("\n")
            self._last.append((before if newline else text, kind))
            if newline or len(self._last) >= TINTED:
                # a piece begins on a line of its own, so it ends at the end of one where it can
                pieces.append(self._piece())
                self._last = [(after, kind)] if after else []
                self._n_whole += 1
        if self._last:
            pieces.append(self._piece())
        return first, pieces

    def _piece(self) -> Tinted:
        return Tinted(tuple(self._last), joined=self._n_whole > 0)


def text_pieces(text: str, raw: bool = False) -> Sequence[Piece]:
    """The pieces of a whole answer."""
    return GrowingText(raw).feed(text)[1]


def tinted_pieces(tokens: Iterable[tuple[str, Kind]]) -> Sequence[Piece]:
    """The pieces of a whole answer as tokens."""
    return GrowingTint().feed(tokens)[1]
