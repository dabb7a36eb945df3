"""Streams of any text, however it is spread over tokens and whatever it is to stop at: they have the text of the whole
answer, in pieces that are valid text, framed as strict readers want it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.server.client import Client, events_of
from tests.server.fake import FakeEngine

FIRST_TOKEN = 1000


class SpelledEngine(FakeEngine):
    """Writes the tokens that it was told to write, whose bytes are any."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(script=lambda prompt: "any text", n_ctx=1 << 16)
        self.pieces = pieces

    def spelled(self, text: str) -> list[int]:
        return [FIRST_TOKEN + i for i in range(len(self.pieces))]

    def piece(self, token: int, special: bool = True) -> bytes:
        return self.pieces[token - FIRST_TOKEN] if token >= FIRST_TOKEN else super().piece(token, special)


@dataclass(frozen=True)
class Api:
    """How an API is asked for a text, and where its replies have it."""

    path: str
    body: dict[str, Any]
    stops: Callable[[list[str]], dict[str, Any]]
    whole: Callable[[Any], str]
    pieces: Callable[[str], list[str]]


def choices(text: str, piece: Callable[[Any], str | None]) -> list[str]:
    """The pieces of OpenAI's streams, which end with `[DONE]`."""
    events = events_of(text)
    assert events[-1] == "[DONE]"
    return [piece(choice) or "" for event in events[:-1] for choice in event["choices"]]


def lines(text: str, piece: Callable[[Any], str]) -> list[str]:
    """The pieces of NDJSON."""
    assert text.endswith("\n")
    parts = [json.loads(line) for line in text.splitlines()]
    assert [part["done"] for part in parts] == [False] * (len(parts) - 1) + [True]
    return [piece(part) for part in parts]


ASKED = {"model": "fake", "messages": [{"role": "user", "content": "go on"}]}
APIS = {
    "chat": Api(
        "/v1/chat/completions",
        {**ASKED, "stream": True},
        lambda stops: {"stop": stops},
        lambda reply: reply["choices"][0]["message"]["content"],
        lambda text: choices(text, lambda choice: choice["delta"].get("content")),
    ),
    "completions": Api(
        "/v1/completions",
        {"model": "fake", "prompt": "go on", "stream": True},
        lambda stops: {"stop": stops},
        lambda reply: reply["choices"][0]["text"],
        lambda text: choices(text, lambda choice: choice["text"]),
    ),
    "llama.cpp": Api(
        "/completion",
        {"prompt": "go on", "stream": True},
        lambda stops: {"stop": stops},
        lambda reply: reply["content"],
        lambda text: [event["content"] for event in events_of(text) if event != "[DONE]"],
    ),
    "ollama": Api(
        "/api/chat",
        {**ASKED, "stream": True},
        lambda stops: {"options": {"stop": stops}},
        lambda reply: reply["message"]["content"],
        lambda text: lines(text, lambda part: part["message"]["content"]),
    ),
    "anthropic": Api(
        "/v1/messages",
        {**ASKED, "stream": True, "max_tokens": 1000},
        lambda stops: {"stop_sequences": stops},
        lambda reply: "".join(block["text"] for block in reply["content"]),
        lambda text: [event["delta"]["text"] for event in events_of(text) if event["type"] == "content_block_delta"],
    ),
}


def cut(text: str, stops: Sequence[str]) -> str:
    """The text before the stop string that is complete first, of several then before the longest."""
    ends = [(text.index(stop) + len(stop), -len(stop)) for stop in stops if stop in text]
    if not ends:
        return text
    end, length = min(ends)
    return text[: end + length]


#: few letters, so that stop strings occur and overlap, and what is cut at the wrong place
LETTERS = st.sampled_from(
    ["a", "b", "ab", "\n", "\r\n", "data:", "é", "\u2028", "\x85", "👩‍👧", "ไ", '"', "\\", "\x00"]
)
TEXTS = st.lists(LETTERS, max_size=12).map("".join)
CUTS = st.lists(st.integers(1, 4), min_size=1, max_size=6)
STOPS = st.lists(st.lists(LETTERS, min_size=1, max_size=3).map("".join), max_size=3)


def spread(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """The data in pieces of these sizes, over and over."""
    pieces = []
    while data:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[:size])
        data = data[size:]
    return pieces


@pytest.mark.parametrize("name", APIS)
@given(text=TEXTS | st.text(max_size=20), sizes=CUTS, stops=STOPS)
@example(text="aab", sizes=[1], stops=["ab", "aab"])
@example(text="ab👩‍👧\u2028ไทย", sizes=[1], stops=["\u2028"])
@settings(max_examples=15, deadline=None)
def test_a_stream_has_the_text_of_the_whole_answer(name: str, text: str, sizes: list[int], stops: list[str]) -> None:
    check(APIS[name], text.encode("utf-8", "replace"), sizes, stops)


@pytest.mark.parametrize("name", APIS)
@given(data=st.binary(max_size=12), sizes=CUTS)
@settings(max_examples=5, deadline=None)
def test_bytes_that_are_no_text_become_text(name: str, data: bytes, sizes: list[int]) -> None:
    check(APIS[name], data, sizes, [])


def check(api: Api, data: bytes, sizes: Sequence[int], stops: list[str]) -> None:
    client = Client(SpelledEngine(spread(data, sizes)))
    body = {**api.body, **(api.stops(stops) if stops else {})}
    whole = client.post(api.path, {**body, "stream": False})
    streamed = client.post(api.path, body)
    assert (whole.status_code, streamed.status_code) == (200, 200), whole.text
    pieces = api.pieces(streamed.content.decode())
    expected = cut(data.decode("utf-8", "replace"), stops)
    assert api.whole(whole.json()) == expected
    assert "".join(pieces) == expected
    for piece in pieces:
        piece.encode()  # no half of a character
