"""What counts as literal: numbers, signs of code and indentation do, words and the marks of sentences do not."""

from __future__ import annotations

import pytest

from localspec.methods.literals import any_literal, is_literal


@pytest.mark.parametrize(
    "text",
    [
        *("7", " 42", "x2", "٣", "७", "\uff17", "½", "²"),
        *("+", " -", "−", "*", "/", "%", " =", "==", "!=", "<", " >", "&", "|", "^", "~", "!", "@", "≤", "×", "·", "°"),
        *("$", " €", "£", "¥", "₹", "\uff05", "\uff0b"),
        *("(", "))", "[", "]:", "{", "}", "\\", "_", "#", "`", '"', " '", "',", "('", "->", "<tool_call>", "**"),
        *(" ", "\t", "  ", "    ", "\n    ", ":\n  ", "\u00a0", "\n\t"),
        "",
    ],
)
def test_numbers_signs_and_indentation_are_literal(text: str) -> None:
    assert is_literal(text.encode())


@pytest.mark.parametrize(
    "text",
    ["a", " word", " Straße", " слово", "言葉", "三", " three", ".", ",", ":", ";", "?", "...", " —", "’", "“", "'s",
     "'t", "don't", "\n", "\n\n", ".\n", "👍", "é", " The"],
)  # fmt: skip
def test_words_and_the_marks_of_sentences_are_not(text: str) -> None:
    assert not is_literal(text.encode())


def test_a_part_of_a_character_is_literal_as_it_may_be_that_of_a_digit() -> None:
    digit = "٣".encode()
    assert is_literal(digit[:1]) and is_literal(digit[1:])


@pytest.mark.parametrize(
    ("before", "piece", "literal"),
    [
        *(("3", ".", True), ("3", ",", True), (" 10", "km", True), ("٣", ".", True), ("²", ".", True)),
        *(("3", " dollars", False), ("3", "\n", False), (" three", ".", False), ("3 ", ".", False), ("", ".", False)),
    ],
)
def test_what_goes_on_right_behind_a_digit_is_literal(before: str, piece: str, literal: bool) -> None:
    assert any_literal(before.encode(), piece.encode()) == literal
    # on either side
    assert any_literal(before.encode(), b" and", piece.encode()) == literal
    assert any_literal(before.encode(), piece.encode(), b" and") == literal


def test_part_of_a_character_before_a_token_is_no_digit() -> None:
    assert not any_literal("٣".encode()[:1], b"word")
