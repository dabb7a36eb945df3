"""Replies as they are written: whatever the pieces, they add up to the same parts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.chat_format.api import ChatPrompt, ChatRequest, Delta, Reply, ToolCall
from localspec.chat_format.format import NativeFormat
from tests.chat_format.templates import BARE, PLAIN, TAGGED, THINKING, TIME, USER, WEATHER, FakeModel, needs_library

pytestmark = needs_library

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par\\"ís \\\\ 🙂", "days": 3}}\n</tool_call>'
SECOND = '<tool_call>\n{"name": "get_weather_time", "arguments": {"city": "x"}}\n</tool_call>'
PARIS = '{"city": "Paris"}'
X = '{"city": "x"}'
ARGUMENTS = '{"city": "Par\\"ís \\\\ 🙂", "days": 3}'

REPLIES = {
    "text": (TAGGED, "Hello, 🙂 world", ("Hello, 🙂 world", "", [])),
    "call": (TAGGED, CALL, ("", "", [("get_weather", ARGUMENTS)])),
    "text and call": (TAGGED, f"Sure.\n{CALL}", ("Sure.\n", "", [("get_weather", ARGUMENTS)])),
    "two calls": (TAGGED, f"{CALL}\n{SECOND}", ("", "", [("get_weather", ARGUMENTS), ("get_weather_time", X)])),
    "almost a call": (TAGGED, "the <tool_cal is none", ("the <tool_cal is none", "", [])),
    "the beginning of one": (TAGGED, "5 < 6, 7 <tool", ("5 < 6, 7 <tool", "", [])),
    "the end of thoughts": (THINKING, "<think>\nWell</th", ("", "Well</th", [])),
    "cut off": (TAGGED, CALL.partition("\\")[0], ("", "", [("get_weather", '{"city": "Par')])),
    "thoughts": (THINKING, "<think>\nWhy < not\n</think>\n\nYes", ("Yes", "Why < not\n", [])),
    "a call in thoughts": (THINKING, f"<think>\n{SECOND}\n</think>\n\nNo", ("No", f"{SECOND}\n", [])),
    "thoughts and call": (THINKING, f"<think>\nHm\n</think>\n\n{SECOND}", ("", "Hm\n", [("get_weather_time", X)])),
    "unfinished thoughts": (THINKING, "<think>\nWell", ("", "Well", [])),
    "bare call": (BARE, f'{{"name": "get_weather", "parameters": {PARIS}}}', ("", "", [("get_weather", PARIS)])),
    "bare text": (BARE, 'The {"a": 1} is JSON', ('The {"a": 1} is JSON', "", [])),
}  # fmt: skip


def prompt_of(template: str) -> tuple[NativeFormat, ChatPrompt]:
    chosen = NativeFormat(FakeModel(template))
    return chosen, chosen.apply(ChatRequest(messages=[USER], tools=[WEATHER, TIME]))


def read(made: tuple[NativeFormat, ChatPrompt], pieces: Iterable[str]) -> tuple[list[Delta], Reply]:
    reader = made[0].reader(made[1])
    deltas = [delta for piece in pieces for delta in reader.feed(piece)]
    return deltas + reader.finish(), reader.reply


def joined(deltas: Sequence[Delta]) -> Reply:
    """The reply that a client makes of the deltas."""
    calls: dict[int, list[str]] = {}
    for tool in (delta.tool for delta in deltas if delta.tool is not None):
        if tool.index in calls:
            assert tool.id is None
            assert tool.name is None
            calls[tool.index][2] += tool.arguments
        else:
            assert tool.id
            assert tool.name
            calls[tool.index] = [tool.id, tool.name, tool.arguments]
    return Reply(
        "".join(delta.content or "" for delta in deltas),
        "".join(delta.reasoning or "" for delta in deltas),
        tuple(ToolCall(*calls[i]) for i in range(len(calls))),
    )


def parts(reply: Reply) -> tuple[str, str, list[tuple[str, str]]]:
    return reply.content, reply.reasoning, [(call.name, call.arguments) for call in reply.tools]


@pytest.mark.parametrize("name", REPLIES)
def test_the_parts_are_the_same_at_every_split(name: str) -> None:
    template, text, expected = REPLIES[name]
    made = prompt_of(template)
    splits = [[text[:i], text[i:]] for i in range(len(text) + 1)]
    splits += [[text[i : i + size] for i in range(0, len(text), size)] for size in (1, 2, 3, 7)]
    for pieces in splits:
        deltas, reply = read(made, pieces)
        assert parts(reply) == expected
        assert joined(deltas) == reply


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.sampled_from(list('<>/tol_ca{}":,\\ \n"é')), max_size=60), data=st.data())
def test_nothing_but_white_space_is_lost(text: str, data: st.DataObject) -> None:
    made = prompt_of(TAGGED)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=5)))
    pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    deltas, reply = read(made, pieces)
    assert joined(deltas) == reply
    assert reply == read(made, [text])[1]
    if "<tool_call>" not in text:
        assert reply.content.strip() == text.strip()


def test_pieces_come_as_soon_as_they_are_certain() -> None:
    chosen, prompt = prompt_of(TAGGED)
    reader = chosen.reader(prompt)
    assert reader.feed("Let me ") == [Delta(content="Let me ")]
    assert reader.feed("<tool") == []
    assert reader.feed('_call>\n{"name": "get_weather", "arguments"') == []
    (first,) = reader.feed(': {"city": "Pa')
    assert first.tool is not None
    assert (first.tool.name, first.tool.arguments) == ("get_weather", '{"city": "Pa')
    (more,) = reader.feed("ris")
    assert more.tool is not None
    assert (more.tool.id, more.tool.name, more.tool.arguments) == (None, None, "ris")


def test_every_call_has_an_id_of_its_own() -> None:
    _, reply = read(prompt_of(TAGGED), [CALL, "\n", CALL])
    assert len({call.id for call in reply.tools}) == 2
    assert all(json.loads(call.arguments) == json.loads(ARGUMENTS) for call in reply.tools)


def test_brackets_without_end_do_not_end_the_process() -> None:
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": ' + "[" * 50_000
    deltas, reply = read(prompt_of(TAGGED), [text])
    assert joined(deltas) == reply


def test_without_a_template_for_tools_all_is_content() -> None:
    chosen = NativeFormat(FakeModel(PLAIN))
    prompt = chosen.apply(ChatRequest(messages=[USER]))
    _, reply = read((chosen, prompt), ["Hi ", CALL])
    assert reply.content == f"Hi {CALL}"


def test_thoughts_stay_in_the_text_when_asked() -> None:
    chosen = NativeFormat(FakeModel(THINKING))
    prompt = chosen.apply(ChatRequest(messages=[USER], reasoning_format="none"))
    _, reply = read((chosen, prompt), ["<think>\nHm\n</think>\n\nYes"])
    assert (reply.content, reply.reasoning) == ("<think>\nHm\n</think>\n\nYes", "")
