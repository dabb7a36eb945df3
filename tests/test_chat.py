"""Chat templates: what a model reads, and what a template must not be able to do."""

from __future__ import annotations

import logging

import pytest

from localspec import chat
from localspec.chat import ChatTemplate, chat_tokens
from localspec.errors import UsageError

USER = [{"role": "user", "content": "Hi <b>"}]


class FakeTokenizer:
    """One token a character; BOS (token -1) in front when asked for."""

    def tokenize(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        assert parse_special, "special tokens of a template must be read as such"
        return [-1] * add_special + [ord(char) for char in text]


def test_blocks_leave_no_stray_whitespace() -> None:
    source = """{% for message in messages %}
    {% if message['role'] == 'user' %}
<user>{{ message['content'] }}
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}<assistant>{% endif %}"""
    assert ChatTemplate(source).render(USER) == "<user>Hi <b>\n<assistant>"
    assert ChatTemplate(source).render(USER, add_generation_prompt=False) == "<user>Hi <b>\n"


def test_a_refusal_of_the_template_reaches_the_user_in_its_own_words() -> None:
    template = ChatTemplate("{{ raise_exception('Conversation roles must alternate user/assistant') }}")
    with pytest.raises(UsageError, match="roles must alternate user/assistant") as error:
        template.render(USER)
    assert error.value.http_status == 400


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__['os'].listdir('.') }}",
        "{{ 'x' * 10000000000 }}",
        "{{ [1] * 10000000000 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ messages[0].nothing.more }}",
        "{{ 1 / 0 }}",
        "{% for i in range(10000000000) %}{% endfor %}",
    ],
)
def test_a_hostile_or_broken_template_is_an_error_and_nothing_else(source: str) -> None:
    with pytest.raises(UsageError):
        ChatTemplate(source).render(USER)


def test_output_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAX_OUTPUT_CHARS", 10_000)
    source = "{% for i in range(90000) %}{% for j in range(90000) %}x{% endfor %}{% endfor %}"
    with pytest.raises(UsageError, match="10000 characters"):
        ChatTemplate(source).render(USER)


@pytest.mark.parametrize("source", ["{% if %}", "{{ " * 10, "x" * (chat.MAX_TEMPLATE_CHARS + 1)])
def test_an_unusable_template_is_refused_when_it_is_loaded(source: str) -> None:
    with pytest.raises(UsageError, match="chat template"):
        ChatTemplate(source)


def test_what_templates_of_the_hub_use_is_there() -> None:
    source = (
        "{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m | tojson }}{% endfor %}"
        "{{ bos_token }}{{ eos_token }}{{ strftime_now('%Y')|length }}{{ '-' * 3 }}{{ '%02d' % 7 }}"
        "{{ tools is defined }}"
    )
    messages = [{"role": "user", "content": "<é>"}, {"role": "assistant", "content": "never shown"}]
    text = ChatTemplate(source, bos="<s>", eos="</s>").render(messages)
    assert text == '{"role": "user", "content": "<é>"}<s></s>4---07False'


def test_missing_content_is_empty_text() -> None:
    template = ChatTemplate("{% for m in messages %}[{{ m['content'] }}]{% endfor %}")
    assert template.render([{"role": "assistant", "content": None}, {"role": "user"}]) == "[][]"


def test_without_a_template_chatml_is_used_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "localspec.chat"):
        template = ChatTemplate(None)
    assert "no chat template" in caplog.text
    assert template.render(USER) == "<|im_start|>user\nHi <b><|im_end|>\n<|im_start|>assistant\n"
    # such a model may not know <|im_end|> as an end token
    assert template.stops == ("<|im_end|>",)


@pytest.mark.parametrize("source", ["{{ bos_token }}x", "x"])
def test_there_is_exactly_one_bos(source: str) -> None:
    tokens = chat_tokens(FakeTokenizer(), ChatTemplate(source, bos="\x01"), USER)
    assert tokens[1:] == [ord("x")]
    assert tokens[0] in (-1, 1)


def test_a_model_without_bos_keeps_the_models_own_beginning() -> None:
    assert chat_tokens(FakeTokenizer(), ChatTemplate("x", bos=""), USER) == [-1, ord("x")]
