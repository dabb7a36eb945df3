"""Chat formats: what a request becomes, by llama.cpp's chat code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localspec.chat_format.api import ChatRequest
from localspec.chat_format.choose import chat_format
from localspec.chat_format.format import NativeFormat
from localspec.engine.params import GrammarStart, SamplingParams, Trigger
from localspec.errors import UsageError
from tests.chat_format.templates import BARE, PLAIN, TAGGED, THINKING, TIME, USER, WEATHER, FakeModel, needs_library

pytestmark = needs_library


def apply(template: str | None, **request: Any) -> Any:
    return NativeFormat(FakeModel(template)).apply(ChatRequest(**{"messages": [USER], **request}))


def test_messages_become_the_prompt_of_the_template() -> None:
    prompt = apply(PLAIN, messages=[{"role": "system", "content": "Be brief."}, USER])
    assert prompt.text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHow is the weather in Paris?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert prompt.grammar is None
    assert prompt.constrained(SamplingParams()) == SamplingParams()


def test_a_model_without_a_template_gets_chatml_and_its_stop() -> None:
    prompt = apply(None)
    assert prompt.text.endswith("<|im_start|>assistant\n")
    assert prompt.stops == ("<|im_end|>",)


def test_texts_in_parts_are_joined_and_the_developer_is_the_system() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    prompt = apply(PLAIN, messages=[{"role": "developer", "content": parts}, USER])
    assert prompt.text.startswith("<|im_start|>system\none\ntwo<|im_end|>")


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file"])
def test_what_is_no_text_is_refused(kind: str) -> None:
    with pytest.raises(UsageError, match=kind):
        apply(PLAIN, messages=[{"role": "user", "content": [{"type": kind, kind: {"url": "http://127.0.0.1/"}}]}])


def test_a_template_refuses_messages_in_its_own_words() -> None:
    with pytest.raises(UsageError, match=r"refuses these messages: no role stranger here$") as caught:
        apply(PLAIN, messages=[{"role": "stranger", "content": "Hi"}])
    assert caught.value.http_status == 400


@pytest.mark.parametrize("source", ["{% for %}", "{{ 'abc", "{{ missing.thing() }}", "{% include '/etc/passwd' %}"])
def test_a_broken_template_is_an_error(source: str) -> None:
    with pytest.raises(UsageError, match="chat template"):
        apply(source)


def test_tools_are_offered_and_a_call_is_held_to_their_schema() -> None:
    prompt = apply(TAGGED, tools=[WEATHER])
    assert '"get_weather"' in prompt.text
    assert prompt.grammar is not None
    assert prompt.grammar_start == GrammarStart(triggers=(Trigger("word", "<tool_call>\n"),))
    sampling = prompt.constrained(SamplingParams(json_schema={}))
    assert (sampling.grammar, sampling.json_schema) == (prompt.grammar, None)
    assert prompt.preserved == {258, 259}


def test_a_required_call_begins_with_the_end_of_the_prompt() -> None:
    prompt = apply(TAGGED, tools=[WEATHER], tool_choice="required")
    assert prompt.grammar_start == GrammarStart(prefill=tuple(b"<|im_start|>assistant\n"))
    # no text before it, which could be without end
    assert "until" not in prompt.grammar


@pytest.mark.parametrize("choice", [{"tool_choice": "get_weather_time"}, {"function": "get_weather_time"}])
def test_a_named_function_is_the_only_one_that_may_be_called(choice: dict[str, str]) -> None:
    prompt = apply(TAGGED, tools=[WEATHER, TIME], **choice)
    assert prompt.grammar_start is not None
    assert not prompt.grammar_start.triggers
    assert "get_weather_time" in prompt.grammar
    assert '"get_weather"' not in prompt.grammar


def test_no_call_is_made_when_none_is_wanted() -> None:
    assert apply(TAGGED, tools=[WEATHER], tool_choice="none").grammar is None


def test_one_call_at_a_time() -> None:
    several = apply(TAGGED, tools=[WEATHER], parallel_tool_calls=True).grammar
    one = apply(TAGGED, tools=[WEATHER], parallel_tool_calls=False).grammar
    assert several != one


def test_a_template_without_tools_refuses_them() -> None:
    with pytest.raises(UsageError, match="has no tools"):
        apply(PLAIN, tools=[WEATHER])
    assert "get_weather" not in apply(PLAIN, tools=[WEATHER], tool_choice="none").text


def test_a_template_for_tools_is_used_with_tools_alone() -> None:
    model = FakeModel(PLAIN, **{"tokenizer.chat_template.tool_use": TAGGED})
    chosen = NativeFormat(model)
    assert "get_weather" in chosen.apply(ChatRequest(messages=[USER], tools=[WEATHER])).text
    assert chosen.apply(ChatRequest(messages=[USER])).text == apply(PLAIN).text


@pytest.mark.parametrize(
    "description",
    ['"quoted" \\ \\n {{ x }} {% y %} ::= [a]', "x" * 10_000, "ünï 🙂 \u2028", "</tool_call>"],
    ids=["marks", "long", "unicode", "tag"],
)
def test_descriptions_hold_any_text(description: str) -> None:
    function = {**WEATHER["function"], "description": description}  # type: ignore[dict-item]
    properties = {"city": {"type": "string", "description": description}}
    function["parameters"] = {"type": "object", "properties": properties, "required": ["city"]}
    prompt = apply(TAGGED, tools=[{"type": "function", "function": function}])
    line = next(line for line in prompt.text.split("\n") if line.startswith('{"type"'))
    assert json.loads(line.removesuffix("<|im_end|>"))["function"]["description"] == description
    assert description == "</tool_call>" or description not in prompt.grammar


def test_past_calls_and_their_results_are_written_back() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    messages.append({"role": "tool", "tool_call_id": "1", "content": "rain"})
    prompt = apply(TAGGED, messages=messages, tools=[WEATHER])
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>' in prompt.text
    assert "<|im_start|>tool\nrain<|im_end|>" in prompt.text


def test_arguments_that_are_no_json_are_refused() -> None:
    call = {"type": "function", "function": {"name": "get_weather", "arguments": "{"}}
    with pytest.raises(UsageError, match="arguments is not JSON"):
        apply(TAGGED, messages=[USER, {"role": "assistant", "tool_calls": [call]}])


def test_a_schema_becomes_the_grammar_of_the_answer() -> None:
    prompt = apply(PLAIN, json_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    assert '\\"n\\"' in prompt.grammar
    assert prompt.grammar_start == GrammarStart(prefill=tuple(b"<|im_start|>assistant\n"))
    assert "object" in apply(PLAIN, json_schema={}).grammar


def test_a_grammar_of_the_client_is_left_as_it_is() -> None:
    prompt = apply(PLAIN, grammar='root ::= "yes" | "no"')
    assert (prompt.grammar, prompt.grammar_start) == ('root ::= "yes" | "no"', None)
    with pytest.raises(UsageError, match="exclude"):
        apply(TAGGED, tools=[WEATHER], grammar='root ::= "yes"')


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "retrieval"},
        {"type": "function", "function": {"name": ""}},
        {"type": "function", "function": {"name": "x" * 1000}},
        {"type": "function", "function": {"name": "f", "parameters": {"type": "nonsense"}}},
        {"type": "function", "function": {"name": "f", "parameters": {"$ref": "https://example.org/schema"}}},
    ],
    ids=["type", "no name", "long name", "no schema", "remote"],
)
def test_a_tool_that_is_none_is_refused(tool: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        apply(TAGGED, tools=[tool])


def test_thoughts_are_marked_and_can_be_turned_off() -> None:
    prompt = apply(THINKING, tools=[WEATHER])
    assert prompt.grammar_start.thoughts.start.strip() == "<think>"
    assert not prompt.grammar_start.thoughts.begun
    assert apply(THINKING, enable_thinking=False).text.endswith("<think>\n\n</think>\n\n")


def test_values_reach_the_template_but_not_in_place_of_the_messages() -> None:
    source = "{{ greeting }}{{ messages[0].content }}"
    assert apply(source, template_values={"greeting": "Ahoy "}).text == "Ahoy How is the weather in Paris?"
    with pytest.raises(UsageError, match="cannot set messages"):
        apply(source, template_values={"messages": []})


def test_a_message_of_the_assistant_is_continued() -> None:
    prompt = apply(PLAIN, messages=[USER, {"role": "assistant", "content": "It is"}], continue_final_message=True)
    assert prompt.text.endswith("<|im_start|>assistant\nIt is")
    with pytest.raises(UsageError, match="assistant"):
        apply(PLAIN, continue_final_message=True)


def test_the_beginning_of_a_text_is_written_by_the_template() -> None:
    assert apply(BARE).text.startswith("<s><|start_header_id|>user")


def test_the_format_of_a_model_is_made_once() -> None:
    model = FakeModel(PLAIN)
    assert chat_format(model) is chat_format(model)
