"""Chat completions of `localspec.Llama`."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.chat_format.api import ChatRequest
from localspec.errors import UsageError
from tests.dropin.made import ToolFormat, llama
from tests.server.fake import FakeEngine

HELLO = [{"role": "user", "content": "hello"}]
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
NEWS = {"type": "function", "function": {"name": "news", "parameters": {}}}


def with_format(**options: Any) -> tuple[Any, ToolFormat]:
    engine = FakeEngine()
    engine.chat = made = ToolFormat(**options)  # type: ignore[assignment]
    return llama(engine=engine), made


def asked_for(**arguments: Any) -> ChatRequest:
    model, made = with_format()
    model.create_chat_completion(HELLO, **arguments)
    return made.asked[0]


def test_a_reply_has_the_shape_of_llama_cpp_and_tells_more() -> None:
    model = llama()
    made = model.create_chat_completion(HELLO)
    assert made["object"] == "chat.completion" and made["id"].startswith("chatcmpl-")
    assert made["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "user: hello"},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert made["usage"]["completion_tokens"] == 11 and made["timings"] and made["speculation"]
    (request,) = model._engine.requests
    assert request.sampling.temperature == 0.2 and request.max_tokens is None


def test_a_streamed_reply() -> None:
    chunks = list(llama().create_chat_completion(HELLO, stream=True))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant"} and deltas[-1] == {}
    assert "".join(delta["content"] for delta in deltas[1:-1]) == "user: hello"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop" and chunks[-1]["usage"] and chunks[-1]["speculation"]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


def test_tool_calls_whole_and_streamed() -> None:
    model, made = with_format()
    reply = model.create_chat_completion(HELLO, tools=[WEATHER])
    (choice,) = reply["choices"]
    assert choice["finish_reason"] == "tool_calls"
    called = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    assert choice["message"]["tool_calls"] == [called]
    assert made.asked[0].tools == [WEATHER] and made.asked[0].tool_choice == "auto"

    chunks = list(model.create_chat_completion(HELLO, tools=[WEATHER], stream=True))
    pieces = [each for chunk in chunks for each in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert pieces[0] == {
        "index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""},
    }  # fmt: skip
    assert "".join(piece["function"]["arguments"] for piece in pieces) == '{"city": "Oslo"}'
    assert all(piece["index"] == 0 for piece in pieces)
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_functions_of_old_are_tools_and_told_both_ways() -> None:
    model, made = with_format()
    arguments = {"functions": [WEATHER["function"]], "function_call": {"name": "weather"}}
    message = model.create_chat_completion(HELLO, **arguments)["choices"][0]["message"]
    assert message["function_call"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}
    assert message["tool_calls"][0]["function"] == message["function_call"]
    assert made.asked[0].tool_choice == "required" and made.asked[0].function == "weather"
    deltas = [c["choices"][0]["delta"] for c in model.create_chat_completion(HELLO, stream=True, **arguments)]
    assert "".join(d["function_call"]["arguments"] for d in deltas if "function_call" in d) == '{"city": "Oslo"}'


def test_a_tool_that_is_chosen_by_name_is_the_only_one() -> None:
    request = asked_for(tools=[NEWS, WEATHER], tool_choice={"type": "function", "function": {"name": "weather"}})
    assert request.tools == [WEATHER] and request.tool_choice == "required" and request.function == "weather"
    assert asked_for(tools=[NEWS], tool_choice="none").tool_choice == "none"


@pytest.mark.parametrize(
    ("response_format", "schema"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_object", "schema": {"type": "array"}}, {"type": "array"}),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}}}, {"type": "array"}),
    ],
)
def test_response_formats(response_format: Any, schema: Any) -> None:
    assert asked_for(response_format=response_format).json_schema == schema


@pytest.mark.parametrize(
    "arguments",
    [
        {"tool_choice": "sometimes"},
        {"tool_choice": "required"},
        {"tools": [NEWS], "tool_choice": {"type": "function", "function": {"name": "weather"}}},
        {"response_format": {"type": "xml"}},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_object"}, "grammar": 'root ::= "a"'},
        {"logprobs": True, "top_logprobs": 21},
    ],
)
def test_choices_that_cannot_be_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as caught:
        asked_for(**arguments)
    assert isinstance(caught.value, UsageError)


def test_what_the_template_refuses_is_a_value_error_with_its_words() -> None:
    with pytest.raises(ValueError, match="roles must alternate"):
        llama().create_chat_completion([*HELLO, *HELLO])


def test_the_chat_format_constrains_the_answer() -> None:
    model, _ = with_format(grammar='root ::= "b"', stops=("<end>",))
    model.create_chat_completion(HELLO, stop="x")
    (request,) = model._engine.requests
    assert request.sampling.grammar == 'root ::= "b"'
    assert request.stops == ("x", "<end>") and request.preserved == frozenset({7})


def test_thoughts_are_left_in_the_text_unless_asked_for() -> None:
    assert asked_for().reasoning_format == "none"
    engine = FakeEngine()
    engine.chat = made = ToolFormat()  # type: ignore[assignment]
    message = llama(engine=engine, reasoning_format="auto").create_chat_completion(HELLO)["choices"][0]["message"]
    assert made.asked[0].reasoning_format == "auto"
    assert message["reasoning_content"] == "hm" and message["content"] == "Well."


def test_logprobs_of_chat() -> None:
    (choice,) = llama().create_chat_completion(HELLO, logprobs=True, top_logprobs=2)["choices"]
    entry = choice["logprobs"]["content"][0]
    assert entry["token"] == "u" and entry["bytes"] == [117] and entry["logprob"] == -0.25
    assert [each["token"] for each in entry["top_logprobs"]] == ["u", "v"]
    chunks = list(llama().create_chat_completion(HELLO, logprobs=True, stream=True))
    told = [chunk["choices"][0]["logprobs"]["content"][0] for chunk in chunks[1:-1]]
    assert "".join(each["token"] for each in told) == "user: hello" and told[0]["top_logprobs"] == []


def test_the_types_of_openai() -> None:
    pytest.importorskip("openai")
    reply = llama().create_chat_completion_openai_v1(HELLO)
    assert reply.choices[0].message.content == "user: hello"
    assert reply.usage.completion_tokens_details.accepted_prediction_tokens == 5
    assert reply.speculation["method"] == "ptd"
    model, _ = with_format()
    chunks = list(model.create_chat_completion_openai_v1(HELLO, tools=[WEATHER], stream=True))
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_chat_formats_of_llama_cpp_by_name() -> None:
    pytest.importorskip("llama_cpp")
    model = llama(lambda _: "hi<|im_end|>more", chat_format="chatml")
    made = model.create_chat_completion(HELLO, max_tokens=50)
    assert model.chat_format == "chatml"
    assert made["choices"][0]["message"]["content"] == "hi" and made["object"] == "chat.completion"
    (request,) = model._engine.requests
    assert bytes(request.prompt).decode().endswith("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
    chunks = list(model.create_chat_completion(HELLO, max_tokens=1, stream=True))
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    with pytest.raises(ValueError, match="no chat_format 'chatmml'"):
        llama(chat_format="chatmml")


def test_a_chat_handler_of_ones_own() -> None:
    def handler(*, llama: Any, messages: Any, **arguments: Any) -> Any:
        made = llama.create_completion(messages[0]["content"], max_tokens=arguments["max_tokens"])
        return {"text": made["choices"][0]["text"], "stop": arguments["stop"]}

    model = llama(chat_handler=handler)
    assert model.create_chat_completion(HELLO, max_tokens=2, stop="x") == {"text": "he", "stop": ["x"]}
    with pytest.raises(ValueError, match="when the Llama is made"):
        model.create_chat_completion(HELLO, speculation="off")


def test_handlers_that_see_are_refused() -> None:
    class MTMDChatHandler:
        def __call__(self, **_: Any) -> None: ...

    class Eyes(MTMDChatHandler): ...

    with pytest.raises(ValueError, match="reads images"):
        llama(chat_handler=Eyes())
