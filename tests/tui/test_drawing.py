"""What is drawn of blocks: nothing harmful, nothing lost, nothing too wide."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.tui.blocks import Block
from localspec.tui.drawing import Asked, Look, Piece, Remark, Tinted, Written
from localspec.tui.growing import GrowingText, GrowingTint, text_pieces, tinted_pieces

LOOKS = [Look("dark", "#202020"), Look("light"), Look("ansi"), Look("none")]


def drawn(piece: Piece, width: int = 60, look: Look = LOOKS[0]) -> list[str]:
    return [strip.text.rstrip() for strip in piece.lines(width, look)]


def pieces(text: str) -> list[Piece]:
    return [
        *text_pieces(text),
        *text_pieces(f"```\n{text}\n```"),
        *text_pieces(text, raw=True),
        Asked(text),
        Remark(text, hint=text),
        Tinted(((text, "accepted"),)),
    ]


@given(st.text(max_size=80), st.integers(4, 60))
@settings(deadline=None)
def test_nothing_is_wider_than_there_is_room(text: str, width: int) -> None:
    for piece in pieces(text):
        assert all(strip.cell_length <= width for strip in piece.lines(width, LOOKS[0]))


@pytest.mark.parametrize("look", LOOKS)
def test_controls_do_not_reach_the_terminal(look: Look) -> None:
    for piece in pieces("red \x1b[31m, title \x1b]0;x\x07, \x9b2J, \x08\x08 &#27; end\u2028of it"):
        text = "\n".join(drawn(piece, look=look))
        assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c == "\u2028" for c in text)
        assert "title" in text and "of it" in text


def test_wide_characters_are_measured() -> None:
    lines = Written(Block("text", "日本語の文章です。" * 5 + " 👩‍💻🙂")).lines(20, LOOKS[0])
    assert len(lines) > 4
    assert all(strip.cell_length <= 20 for strip in lines)


def test_what_looks_like_html_is_shown() -> None:
    assert drawn(Written(Block("text", "use <b>x</b> or <div>"))) == ["use <b>x</b> or <div>"]


def test_lines_of_a_poem_stay_lines() -> None:
    assert drawn(Written(Block("text", "one\ntwo **bold**"))) == ["one", "two bold"]


def test_code_keeps_its_blanks_and_blank_lines() -> None:
    assert drawn(Written(Block("code", "if x:\n\n    y()", "python"))) == ["  if x:", "", "      y()"]


def test_raw_is_the_source() -> None:
    assert drawn(Written(Block("text", "# a **b**"), raw=True)) == ["# a **b**"]


def test_a_cut_table_is_a_table() -> None:
    first = drawn(Written(Block("text", "| a | b |\n|---|---|\n| 1 | 2 |")))
    rest = drawn(Written(Block("text", "| 3 | 4 |", joined=True, header="| a | b |\n|---|---|")))
    assert [line.split() for line in (*first[:1], first[-1], rest[-1])] == [["a", "b"], ["1", "2"], ["3", "4"]]


TOKENS = st.lists(st.tuples(st.text("ab \n🙂", max_size=6), st.sampled_from(["accepted", "bonus"])), max_size=60)


@given(TOKENS, st.integers(1, 7))
def test_tint_grows_to_what_it_is_when_whole(tokens: list, size: int) -> None:  # type: ignore[type-arg]
    growing, shown = GrowingTint(), []
    for at in range(0, len(tokens), size):
        first, new = growing.feed(tokens[at : at + size])
        shown[first:] = new
    assert shown == list(tinted_pieces(tokens))
    text = "\n".join("".join(text for text, _ in piece.tokens) for piece in shown)
    assert text.split() == "".join(text for text, _ in tokens).split()


@given(st.text("ab \n`#-", max_size=80), st.integers(1, 7))
def test_text_grows_to_what_it_is_when_whole(text: str, size: int) -> None:
    growing, shown = GrowingText(), []
    for at in range(0, len(text), size):
        first, new = growing.feed(text[at : at + size])
        shown[first:] = new
    assert shown == list(text_pieces(text))
