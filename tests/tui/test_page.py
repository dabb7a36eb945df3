"""Pages: the same lines however they came about."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.tui.blocks import TEXT_CHARS
from localspec.tui.drawing import Asked, Look, Piece, Remark, Written
from localspec.tui.growing import GrowingText
from localspec.tui.page import Page

PIECES = st.builds(
    Remark, st.text("ab ", min_size=1, max_size=60), joined=st.booleans(), hint=st.sampled_from([None, "a hint"])
) | st.builds(Asked, st.text("xyz \n", max_size=40))


def lines(page: Page) -> list[str]:
    return [page.line(y).text.rstrip() for y in range(page.height)]


def whole(pieces: list[Piece], width: int) -> list[str]:
    page = Page(width)
    page.replace(0, pieces)
    return lines(page)


@given(st.lists(st.tuples(st.integers(0, 6), st.lists(PIECES, max_size=4)), max_size=8))
@settings(deadline=None)
def test_replacing_is_the_same_as_drawing_all(changes: list[tuple[int, list[Piece]]]) -> None:
    page, pieces = Page(20), list[Piece]()
    for at, new in changes:
        at = min(at, len(pieces))
        before = lines(page)
        pieces[at:] = new
        changed = page.replace(at, new)
        after = lines(page)
        assert after == whole(pieces, 20)
        assert after[:changed] == before[:changed]


@given(st.lists(PIECES, min_size=1, max_size=12), st.integers(5, 40), st.integers(1, 6))
@settings(deadline=None)
def test_another_width_comes_bit_by_bit_from_the_end(pieces: list[Piece], width: int, at_once: int) -> None:
    page = Page(20)
    page.replace(0, pieces)
    page.show_as(width, Look("light"))
    for _ in range(len(pieces) + 1):
        more, grown = page.redraw(at_once, below=0)
        assert grown == 0  # nothing stands above the first line
        if not more:
            break
    assert not more
    assert lines(page) == whole(pieces, width)


def test_what_grows_above_the_view_is_told() -> None:
    page = Page(40)
    page.replace(0, [Remark("word " * 12), Remark("end")])
    old = page.height
    page.show_as(10, Look())
    _, grown = page.redraw(1000, below=page.top(1))
    assert grown == page.height - old > 0


def test_what_is_not_there_is_blank() -> None:
    assert Page().line(5).text == ""


@pytest.mark.parametrize("unit", ["word and more ", "- item of a list\n", "a line\n\n", "| a | b |\n"])
@pytest.mark.parametrize("begin", ["", "```python\n", "| n | what |\n|---|---|\n"])
def test_what_a_piece_of_text_costs_does_not_grow(begin: str, unit: str) -> None:
    growing, drawn = GrowingText(), []
    growing.feed(begin)
    for _ in range(2000):
        _, pieces = growing.feed(unit)
        drawn.append(sum(len(piece.block.source) for piece in pieces if isinstance(piece, Written)))
    assert max(drawn[-400:]) <= max(drawn[:400]) <= 4 * TEXT_CHARS
