"""Streaming text: valid at every delta, nothing of a stop string, equal to the text in one piece."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.text import TextStream


def stream(pieces: list[bytes], stops: tuple[str, ...] = ()) -> tuple[list[str], TextStream]:
    text = TextStream(pieces.__getitem__, stops)
    deltas = [text.push(i) for i in range(len(pieces))]
    return [*deltas, text.flush()], text


def cut(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """The plain definition: walk the text and end where a stop string is complete."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end - len(stop)], stop
    return text, None


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(c % (len(data) + 1) for c in cuts)})
    return [data[a:b] for a, b in pairwise(edges)]


texts = st.text(alphabet="ab \nกำ้é👩‍👧😀", max_size=30)
stop_sets = st.lists(st.text(alphabet="ab กำ😀", min_size=1, max_size=4), max_size=3).map(tuple)


@given(texts, st.lists(st.integers(0, 200), max_size=40), stop_sets)
def test_deltas_join_to_the_text_whatever_the_token_borders(text: str, cuts: list[int], stops: tuple[str, ...]) -> None:
    deltas, streamed = stream(split(text.encode(), cuts), stops)
    assert ("".join(deltas), streamed.stopped) == cut(text, stops)
    assert "\ufffd" not in "".join(deltas)


@given(st.lists(st.binary(max_size=5), max_size=12), stop_sets)
def test_invalid_bytes_are_replaced_as_in_one_piece(pieces: list[bytes], stops: tuple[str, ...]) -> None:
    deltas, streamed = stream(pieces, stops)
    assert ("".join(deltas), streamed.stopped) == cut(b"".join(pieces).decode("utf-8", "replace"), stops)


def test_half_an_emoji_is_held_back_until_it_is_whole() -> None:
    deltas, _ = stream([b"hi \xf0\x9f", b"\x98", b"\x80!"])
    assert deltas == ["hi ", "", "😀!", ""]


def test_half_an_emoji_at_the_end_is_not_lost() -> None:
    deltas, _ = stream([b"hi \xf0\x9f"])
    assert deltas == ["hi ", "\ufffd"]


def test_a_stop_string_spread_over_tokens_leaks_no_prefix() -> None:
    deltas, streamed = stream([b"go on\n", b"Us", b"er", b": hello"], ("\nUser:",))
    assert deltas == ["go on", "", "", "", ""]
    assert streamed.stopped == "\nUser:"


def test_a_broken_off_partial_match_is_given_out_at_once() -> None:
    deltas, streamed = stream([b"a\nUs", b"ed", b"\nU"], ("\nUser:",))
    assert deltas == ["a", "\nUsed", "", "\nU"]
    assert streamed.stopped is None


def test_an_overlapping_restart_of_a_stop_string_is_found() -> None:
    deltas, streamed = stream([b"xa", b"a", b"a", b"b", b"z"], ("aab",))
    assert "".join(deltas) == "xa"
    assert streamed.stopped == "aab"


def test_the_stop_string_that_is_complete_first_wins() -> None:
    deltas, streamed = stream([b"one END two STOP"], ("STOP", "END"))
    assert "".join(deltas) == "one "
    assert streamed.stopped == "END"


def test_of_stop_strings_that_end_together_the_longest_is_cut() -> None:
    deltas, streamed = stream([b"x\n\nHuman:"], ("Human:", "\n\nHuman:"))
    assert "".join(deltas) == "x"
    assert streamed.stopped == "\n\nHuman:"


def test_nothing_comes_after_a_stop_string() -> None:
    deltas, _ = stream([b"a.b", b"c", b"\xff"], (".",))
    assert deltas == ["a", "", "", ""]


def test_a_very_long_stop_string_works() -> None:
    stop = "ab" * 5000
    deltas, streamed = stream([b"x"] + [b"ab"] * 5000, (stop,))
    assert "".join(deltas) == "x"
    assert streamed.stopped == stop


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        TextStream(lambda token: b"", ("a", ""))
