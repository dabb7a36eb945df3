"""Answers whose tokens are marked by where they came from."""

from __future__ import annotations

from dataclasses import replace

from localspec.tui.render import styles
from localspec.tui.render.tint import kinds, tinted, tokens
from tests.tui.made import Words

CHAIN = (-1, 0, 1)
TEXTS = (" the", " red", " fox")


def test_tokens_are_told_apart() -> None:
    words = Words()
    assert kinds(words.step(TEXTS, CHAIN, path=(1, 2), bonus="!")) == ["accepted", "accepted", "bonus"]
    assert kinds(words.step(TEXTS, CHAIN, path=(1, 2), bonus=None, forgiven=(1,))) == ["accepted", "forgiven"]
    assert kinds(words.step(TEXTS, CHAIN, path=(), bonus="!")) == ["bonus"]
    assert kinds(words.step(bonus="!")) == ["plain"]


def test_pieces_make_up_the_text() -> None:
    words = Words()
    event = words.step(TEXTS, CHAIN, path=(1, 2), bonus="!")
    assert tokens(event, words.piece) == [(" red", "accepted"), (" fox", "accepted"), ("!", "bonus")]
    # a stop string cut the text, or a character began in the step before
    assert tokens(replace(event, text=" red f"), words.piece) == [(" red f", "accepted")]
    assert tokens(replace(event, text=""), words.piece) == []


def test_each_kind_has_its_style_and_the_text_stays() -> None:
    text = tinted([(" red", "accepted"), ("\n", "forgiven"), (" fox", "bonus"), (" ran", "plain")])
    assert text.plain == " red\n fox ran"
    assert [(span.start, span.end, span.style) for span in text.spans] == [
        (0, 4, styles.TINT_ACCEPTED),
        (4, 5, styles.TINT_FORGIVEN),
        (5, 9, styles.TINT_BONUS),
    ]


def test_a_text_cannot_command_the_terminal() -> None:
    assert tinted([("a\x1b[2J\x9b\tb", "plain")]).plain == "a[2J\tb"
