"""Chat formats without llama.cpp's chat code: texts work, and what does not is told."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.chat_format import choose, native
from localspec.chat_format.api import ChatRequest, Delta
from localspec.chat_format.fallback import PlainFormat
from localspec.errors import UsageError
from tests.chat_format.templates import PLAIN, TAGGED, USER, WEATHER, FakeModel


def request(**fields: Any) -> ChatRequest:
    return ChatRequest(**{"messages": [USER], **fields})


def test_it_is_chosen_where_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    assert isinstance(choose.chat_format(FakeModel(PLAIN)), PlainFormat)


def test_messages_become_a_prompt_and_all_of_a_reply_is_content() -> None:
    chosen = PlainFormat(FakeModel(PLAIN))
    messages = [{"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}, USER]
    prompt = chosen.apply(request(messages=messages))
    assert prompt.text.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n")
    reader = chosen.reader(prompt)
    assert reader.feed("<tool_call>") == [Delta(content="<tool_call>")]
    assert reader.finish() == []
    assert reader.reply.content == "<tool_call>"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tools": [WEATHER]}, "tools need"),
        ({"continue_final_message": True}, "continued"),
        ({"template_values": {"messages": []}}, "cannot set messages"),
        ({"messages": [{"role": "stranger", "content": "Hi"}]}, "refuses these messages: no role stranger here"),
    ],
    ids=["tools", "continuation", "values", "role"],
)
def test_what_it_cannot_do_is_told(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        PlainFormat(FakeModel(TAGGED)).apply(request(**fields))


def test_an_answer_can_follow_a_schema() -> None:
    prompt = PlainFormat(FakeModel(PLAIN)).apply(request(json_schema={}))
    assert prompt.grammar is not None
    assert "root ::=" in prompt.grammar
