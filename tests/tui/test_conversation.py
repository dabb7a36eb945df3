"""Conversations: what editing does to them, and that what is written can be read back or says why not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.events import DoneEvent, Stats
from localspec.tui.conversation import MAX_TITLE, Conversation, Message
from localspec.tui.transcript import from_markdown, to_markdown

DONE = DoneEvent(
    "stop",
    "",
    Stats(n_prompt=12, n_tokens=40, n_steps=16, n_drafted=30, n_accepted=24, seconds=0.5, forgiven=[3, 9]),
    lossless=False,
    accept="loose",
)

#: texts that look like what stands between messages, beside whatever hypothesis comes up with
NASTY = st.sampled_from(
    [
        "<!-- localspec message {} -->",
        "\\<!-- localspec message {} -->",
        "# A title\n\n## You\n\ntext",
        "```python\nprint('no end",
        "~~~\n```",
        "   ````\n````",
        "---\n\n\n",
        "\n\n",
        "\r\n",
        " \ud800",
        "\u2028\x0b\x1b[31m",
    ]
)
TEXTS = st.lists(st.one_of(st.text(), NASTY), max_size=4).map("\n".join)
ANSWERS = st.builds(
    Message,
    role=st.just("assistant"),
    content=TEXTS,
    stats=st.dictionaries(st.sampled_from(["seconds", "tokens_per_second"]), st.floats(0, 1e6)),
    method=st.none() | TEXTS,
    accept=st.none() | st.just("loose"),
    forgiven=st.integers(0, 9),
    partial=st.booleans(),
)
CONVERSATIONS = st.builds(
    Conversation,
    system=st.none() | TEXTS,
    method=st.none() | st.just("ptd+heads"),
    sampling=st.dictionaries(st.sampled_from(["top_k", "seed"]), st.integers(0, 99)),
    messages=st.lists(st.builds(Message, role=st.just("user"), content=TEXTS) | ANSWERS, max_size=4),
)


def talk() -> Conversation:
    conversation = Conversation(model="some-model", system="Be brief.", sampling={"temperature": 0.2})
    conversation.ask("What is\na  tree?")
    conversation.answered(Message.answer("A graph.", DONE, "ptd"))
    conversation.ask("And a forest?")
    conversation.answered(Message.answer("Many", None, "ptd"))
    return conversation


def clean(text: str | None) -> str | None:
    return None if text is None else "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)


@given(CONVERSATIONS)
def test_any_conversation_comes_back_from_json_and_from_markdown(conversation: Conversation) -> None:
    conversation.system = clean(conversation.system)
    conversation.messages = [
        Message(**{**vars(message), "method": clean(message.method)}) for message in conversation.messages
    ]
    for written in (conversation.to_json().encode(), to_markdown(conversation).encode()):
        text = written.decode()
        read = from_markdown(text) if text.startswith("<!--") else Conversation.from_json(text)
        assert read == conversation


def test_markdown_is_for_people() -> None:
    shown = [line for line in to_markdown(talk()).splitlines() if line and not line.startswith("<!--")]
    assert shown == [
        "# What is a tree?",
        "## System",
        "Be brief.",
        "## You",
        "What is",
        "a  tree?",
        "## Answer · 80.0 tok/s · ptd · loose: 2 tokens forgiven",
        "A graph.",
        "## You",
        "And a forest?",
        "## Answer · ptd · cut off",
        "Many",
    ]


@pytest.mark.parametrize(
    ("content", "end"),
    [
        ("```python\nprint(1)", "\n```"),
        ("  ~~~~\n```\n~~~", "\n  ~~~~"),
        ("```\ncode\n```", ""),
        ("``` not ` a fence", ""),
        ("```\n``` x\n````  ", ""),
    ],
)
def test_code_that_was_cut_off_does_not_swallow_what_follows(content: str, end: str) -> None:
    conversation = Conversation(messages=[Message("user", content), Message("user", "next")])
    text = to_markdown(conversation)
    assert f"\n\n{content}{end}\n\n<!--" in text
    assert from_markdown(text) == conversation


def test_markdown_that_went_through_an_editor_is_still_read() -> None:
    text = "\ufeff" + to_markdown(talk()).replace("A graph.", "A *connected* graph.").replace("\n", "\r\n").rstrip()
    assert [message.content for message in from_markdown(text).messages] == [
        "What is\na  tree?",
        "A *connected* graph.",
        "And a forest?",
        "Many",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no conversation of localspec"),
        ("# Notes\n\nSomething else.", "no conversation of localspec"),
        (to_markdown(talk()).replace('"role": "user"', '"role": "judge"'), "part 2: role is 'judge'"),
        (to_markdown(talk()).replace('{"role": "user"}', '{"role"'), "line 9: .* cannot be read"),
        (to_markdown(talk()) * 2, "second conversation"),
        (to_markdown(talk()).replace('"version": 1', '"version": 2'), "version 2"),
    ],
    ids=["empty", "other", "role", "comment", "twice", "version"],
)
def test_markdown_of_another_kind_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        from_markdown(text)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (["format"], "something", "no conversation of localspec"),
        (["version"], 2, "version 2"),
        (["about", "id"], "../../x", "no id"),
        (["about", "created"], "yesterday", "about: created is 'yesterday'"),
        (["messages"], "none", "messages is not a list"),
        (["messages", 1, "stats", "seconds"], "long", "message 2: stats.seconds is 'long'"),
        (["messages", 1, "partial"], 1, "message 2: partial is 1"),
        (["messages", 0, "content"], None, "message 1: content is missing"),
        (["messages", 0, "colour"], "red", "message 1: there is no field 'colour'"),
        (["settings", "max_tokens"], -1, "settings: max_tokens is -1"),
    ],
)
def test_json_that_is_wrong_is_refused_by_the_name_of_the_field(path: list, value: object, reason: str) -> None:
    data = talk().to_dict()
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(UsageError, match=reason):
        Conversation.from_json(json.dumps(data))


def test_an_answer_keeps_what_it_took() -> None:
    message = talk().messages[1]
    assert (message.stats["tokens_per_second"], message.stats["tokens_per_step"]) == (80.0, 2.5)
    assert (message.method, message.accept, message.forgiven, message.partial) == ("ptd", "loose", 2, False)
    stopped = Message.answer("Ma", DoneEvent("cancelled", "", Stats()))
    assert stopped.partial and stopped.finish_reason == "cancelled"


def test_editing_a_question_cuts_there_and_gives_its_text_back() -> None:
    conversation = talk()
    assert conversation.edit(2) == "And a forest?"
    assert [message.role for message in conversation.messages] == ["user", "assistant"]
    with pytest.raises(UsageError, match="no question"):
        conversation.edit(1)


def test_regenerating_drops_the_last_answer_alone() -> None:
    conversation = talk()
    assert conversation.regenerate() and conversation.regenerate()
    assert [request["role"] for request in conversation.request()] == ["system", "user", "assistant", "user"]
    assert not Conversation().regenerate()


def test_the_title_is_the_first_question_until_there_is_a_name() -> None:
    conversation = Conversation()
    assert conversation.title == "new conversation"
    conversation.ask("Why  is\nthe sky " + "very " * 20 + "blue?")
    assert conversation.title.startswith("Why is the sky very") and len(conversation.title) == MAX_TITLE
    conversation.rename(" Sky\n ")
    assert conversation.title == "Sky"
    conversation.rename(" ")
    assert conversation.title.startswith("Why is")
