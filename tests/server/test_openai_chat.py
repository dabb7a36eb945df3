"""/v1/chat/completions, as clients meet it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from localspec.chat_format.api import ChatPrompt, ChatRequest, Delta, Reply, ToolCall, ToolDelta
from localspec.engine.params import SamplingParams
from localspec.errors import EngineError, UsageError
from localspec.server.openai.replies import ChatCompletion, ErrorBody
from localspec.serving.api import Update
from tests.server.client import Client
from tests.server.fake import FakeEngine, FakeFormat, FakeGeneration

PATH = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]


def ask(client: Client, **fields: Any) -> dict[str, Any]:
    """The reply to a request that is answered."""
    response = client.post(PATH, {"messages": HELLO, **fields})
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    ChatCompletion.model_validate(reply)
    return reply


def refusal(client: Client, status: int = 400, **fields: Any) -> dict[str, Any]:
    """The error of a request that is refused for good."""
    response = client.post(PATH, {"messages": HELLO, **fields})
    assert response.status_code == status, response.text
    assert response.headers["x-should-retry"] == "false"
    ErrorBody.model_validate(response.json())
    error: dict[str, Any] = response.json()["error"]
    return error


def streamed(events: list[Any], index: int = 0) -> str:
    choices = [choice for event in events[:-1] for choice in event["choices"] if choice["index"] == index]
    return "".join([choice["delta"].get("content") or "" for choice in choices])


class CallingFormat(FakeFormat):
    """A format whose replies are thoughts, a call of a tool in two pieces, and text."""

    asked: list[ChatRequest]

    def __init__(self) -> None:
        self.asked = []

    def apply(self, request: ChatRequest) -> ChatPrompt:
        self.asked.append(request)
        return super().apply(request)

    def reader(self, prompt: ChatPrompt) -> Any:
        return CallingReader()


class CallingReader:
    def __init__(self) -> None:
        self.reply = Reply()

    def feed(self, text: str) -> list[Delta]:
        return [Delta(reasoning=text)]

    def finish(self) -> list[Delta]:
        self.reply = Reply("", "hello", (ToolCall("call_1", "add", '{"a": 1}'),))
        return [
            Delta(tool=ToolDelta(0, "call_1", "add", "")),
            Delta(tool=ToolDelta(0, arguments='{"a": ')),
            Delta(tool=ToolDelta(0, arguments="1}")),
        ]


def calling() -> tuple[Client, CallingFormat]:
    engine, form = FakeEngine(), CallingFormat()
    engine.chat = form
    return Client(engine), form


def test_a_reply_has_all_that_clients_read() -> None:
    reply = ask(Client(FakeEngine(script=lambda prompt: "Grüße 🦉")))
    assert reply["choices"][0]["message"]["content"] == "Grüße 🦉"
    assert reply["choices"][0]["finish_reason"] == "stop"
    usage = reply["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    details = usage["completion_tokens_details"]
    drafted = details["accepted_prediction_tokens"] + details["rejected_prediction_tokens"]
    assert drafted == reply["timings"]["draft_n"] == reply["speculation"]["drafted"] > 0


@pytest.mark.parametrize("name", [None, "", "default", "localspec", "fake"])
def test_the_model_may_be_left_to_the_server(name: str | None) -> None:
    assert ask(Client(), model=name)["model"] == "fake"


def test_a_model_that_is_not_here() -> None:
    assert refusal(Client(), 404, model="gpt-4o")["code"] == "model_not_found"
    assert ask(Client(any_model=True), model="gpt-4o")["model"] == "fake"
    other = Client(FakeEngine("one"), FakeEngine("two"), any_model=True)
    assert ask(other, model="two")["model"] == "two"


def test_a_stream_is_the_same_answer() -> None:
    client = Client(FakeEngine(script=lambda prompt: "ein Ü und 👩‍👩‍👧 dazu"))
    events = client.events(PATH, {"messages": HELLO, "stream": True})
    assert events[-1] == "[DONE]"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert streamed(events) == ask(client)["choices"][0]["message"]["content"]
    reasons = [event["choices"][0]["finish_reason"] for event in events[:-1]]
    assert reasons == [None] * (len(reasons) - 1) + ["stop"]
    assert {event["object"] for event in events[:-1]} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events[:-1]}) == 1
    assert {"timings", "speculation"} <= events[-2].keys()


def test_usage_comes_last_and_only_if_asked_for() -> None:
    client = Client()
    for options in ({}, {"stream_options": None}, {"stream_options": {"include_usage": False}}):
        events = client.events(PATH, {"messages": HELLO, "stream": True, **options})
        assert all("usage" not in event for event in events[:-1])
    options = {"stream_options": {"include_usage": True}}
    *events, last, done = client.events(PATH, {"messages": HELLO, "stream": True, **options})
    assert (last["choices"], done) == ([], "[DONE]")
    assert last["usage"]["completion_tokens"] > 0
    assert all("usage" not in event for event in events)


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_both_names_of_the_limit_end_an_answer_with_length(field: str) -> None:
    reply = ask(Client(), **{field: 3})
    assert (reply["choices"][0]["finish_reason"], reply["usage"]["completion_tokens"]) == ("length", 3)


def test_no_limit_is_no_limit() -> None:
    client = Client()
    ask(client, max_tokens=-1)
    ask(client)
    assert [request.max_tokens for request in client.engine.requests] == [None, None]


@pytest.mark.parametrize("stop", ["ll", ["zz", "ll"]])
def test_stop_strings(stop: Any) -> None:
    reply = ask(Client(FakeEngine(script=lambda prompt: "hello")), stop=stop)
    assert reply["choices"][0]["message"]["content"] == "he"
    assert reply["choices"][0]["finish_reason"] == "stop"


def test_absent_null_and_empty_are_the_same() -> None:
    client = Client()
    names = ChatCompletionFields - {"messages"}
    nulls = ask(client, **dict.fromkeys(names), messages=[{**HELLO[0], "name": None, "tool_calls": None}])
    assert not nulls.get("warnings")
    assert ask(client, tools=[], stop=[], metadata={}, logit_bias={}, tool_choice="none").get("warnings") is None
    first, second = client.engine.requests
    assert first == second


ChatCompletionFields = {
    "audio", "frequency_penalty", "function_call", "functions", "grammar", "logit_bias", "logprobs", "max_tokens",
    "max_completion_tokens", "messages", "metadata", "modalities", "model", "n", "parallel_tool_calls", "prediction",
    "presence_penalty", "reasoning_effort", "response_format", "seed", "service_tier", "speculation", "stop", "store",
    "stream", "stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "whatever",
}  # fmt: skip


def test_sampling_reaches_the_engine_over_that_of_the_server() -> None:
    client = Client(sampling=SamplingParams(temperature=0.1, top_k=7))
    ask(client, top_p=0.5, seed=-5, repetition_penalty=1.5, presence_penalty=1, logit_bias={"65": -100, "66": 3.5})
    params = client.engine.requests[0].sampling
    assert (params.temperature, params.top_k, params.top_p, params.seed) == (0.1, 7, 0.5, 2**64 - 5)
    assert (params.repeat_penalty, params.presence_penalty) == (1.5, 1.0)
    assert params.logit_bias == {65: -100.0, 66: 3.5}


def test_several_answers_have_seeds_that_follow_each_other() -> None:
    client = Client()
    reply = ask(client, n=3, seed=11)
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert [request.sampling.seed for request in client.engine.requests] == [11, 12, 13]
    prompt = len(client.engine.requests[0].prompt)
    written = sum(choice["timings"]["predicted_n"] for choice in reply["choices"])
    assert (reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]) == (prompt, written)
    events = client.events(PATH, {"messages": HELLO, "n": 3, "stream": True})
    assert [streamed(events, i) for i in range(3)] == [choice["message"]["content"] for choice in reply["choices"]]
    assert refusal(client, n=33)["param"] == "n"


def test_logprobs() -> None:
    client = Client(FakeEngine(script=lambda prompt: "é!"))
    reply = ask(client, logprobs=True, top_logprobs=2)
    entries = reply["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == ["bytes:\\xc3", "bytes:\\xa9", "!"]
    assert bytes([byte for entry in entries for byte in entry["bytes"]]).decode() == "é!"
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    events = client.events(PATH, {"messages": HELLO, "logprobs": True, "top_logprobs": 2, "stream": True})
    told = [event["choices"][0]["logprobs"] for event in events[:-1]]
    assert [entry for each in told if each for entry in each["content"]] == entries
    assert ask(client, logprobs=True)["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []
    assert ask(client)["choices"][0]["logprobs"] is None
    assert refusal(client, top_logprobs=2)["param"] == "top_logprobs"


@pytest.mark.parametrize(
    ("asked", "method", "accept"),
    [("auto", None, None), ("off", "plain", None), ("ptd", "ptd", None), ("lookup", "lookup", None)],
)
def test_speculation_is_as_asked_for_and_told(asked: str, method: str | None, accept: str | None) -> None:
    client = Client()
    told = ask(client, speculation={"method": asked})["speculation"]
    request = client.engine.requests[0]
    assert (request.method, request.accept) == (method, accept)
    assert told["requested"] == asked
    if asked == "off":
        assert told["method"] == "off"
        assert told["reason"]
        assert told["drafted"] == 0
    assert ask(client, speculation={"method": asked, "accept": "typical"})
    assert client.engine.requests[1].accept == "typical"


def test_speculation_that_there_is_none_of_is_refused() -> None:
    error = refusal(Client(), speculation={"method": "draft"})
    assert error["param"] == "speculation.method"
    assert "one of auto, off, ptd, lookup" in error["message"]
    assert refusal(Client(), speculation={"method": "magic"})["param"] == "speculation.method"
    assert refusal(Client(), speculation={"accept": "never"})["param"] == "speculation.accept"


def test_thoughts_and_calls_of_tools() -> None:
    client, _ = calling()
    reply = ask(client, tools=[tool("add")])
    message = reply["choices"][0]["message"]
    assert reply["choices"][0]["finish_reason"] == "tool_calls"
    assert message["content"] is None
    assert message["reasoning_content"] == "hello"
    assert message["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    ]
    events = client.events(PATH, {"messages": HELLO, "tools": [tool("add")], "stream": True})
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert "".join([delta.get("reasoning_content", "") for delta in deltas]) == "user: hello"
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert all(call["index"] == 0 and isinstance(call["function"]["arguments"], str) for call in calls)
    assert (calls[0]["id"], calls[0]["function"]["name"]) == ("call_1", "add")
    assert "".join([call["function"]["arguments"] for call in calls]) == '{"a": 1}'
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": 'says "x\\', "parameters": parameters}}


def test_a_conversation_reaches_the_chat_format() -> None:
    client, form = calling()
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}]},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "content": "2", "tool_call_id": "c1"},
    ]
    kwargs = {"enable_thinking": False, "colour": "red"}
    ask(client, messages=messages, tools=[tool("add"), tool("sub")], parallel_tool_calls=False,
        tool_choice={"type": "function", "function": {"name": "sub"}}, chat_template_kwargs=kwargs)  # fmt: skip
    asked = form.asked[0]
    system, _, assistant, result = asked.messages
    assert system == {"role": "system", "content": "be\nbrief"}
    assert assistant["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert assistant["reasoning_content"] == "hm"
    assert result == {"role": "tool", "content": "2", "tool_call_id": "c1"}
    assert (asked.tool_choice, asked.function) == ("required", "sub")
    assert [each["function"]["name"] for each in asked.tools] == ["sub"]
    assert not asked.parallel_tool_calls
    assert not asked.enable_thinking
    assert asked.template_values == {"colour": "red"}


@pytest.mark.parametrize(
    ("wanted", "schema"),
    [
        ({"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"type": "array"}}},
         {"type": "array"}),
        ({"type": "json_schema", "schema": {"type": "array"}}, {"type": "array"}),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_object", "schema": {"type": "array"}}, {"type": "array"}),
        ({"type": "text"}, None),
    ],
)  # fmt: skip
def test_formats_of_the_answer(wanted: dict[str, Any], schema: dict[str, Any] | None) -> None:
    client, form = calling()
    ask(client, response_format=wanted)
    assert form.asked[0].json_schema == schema


DEEP: dict[str, Any] = {"type": "object"}
for _ in range(100):
    DEEP = {"type": "object", "properties": {"a": DEEP}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]},
         "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "x"}] * 5000}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
         "messages[0].tool_calls[0].function.arguments"),
        ({"reasoning_effort": "\ud800"}, "reasoning_effort"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 1e9}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 10**30}, "n"),
        ({"n": 1.5}, "n"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"max_tokens": 2**40}, "max_tokens"),
        ({"max_tokens": 2**30}, "max_tokens"),
        ({"seed": 2**64}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": ["x"] * 65}, "stop"),
        ({"stop": "x" * 513}, "stop"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {str(i): 1 for i in range(3000)}}, "logit_bias"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"grammar": "x" * (1 << 18)}, "grammar"),
        ({"grammar": "root ::= x", "response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
         "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": DEEP}}},
         "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_object", "schema": {"enum": ["x" * 300_000]}}}, "response_format.schema"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"tools": [tool("f"), tool("f")]}, "tools"),
        ({"tools": [tool("f", a=DEEP)]}, "tools[0].function.parameters"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": [tool("f")]}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"mirostat": 2}, "mirostat"),
        ({"dry_multiplier": 0.8}, "dry_multiplier"),
        ({"guided_regex": "a+"}, "guided_regex"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_named(fields: dict[str, Any], param: str) -> None:
    client = Client()
    error = refusal(client, **fields)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert not client.engine.requests


def test_what_is_not_known_is_told() -> None:
    client = Client()
    reply = ask(client, prediction={"type": "content"}, mirostat=0, store=True, speculation={"depth": 3})
    assert [warning.split()[0] for warning in reply["warnings"]] == ["prediction", "speculation.depth"]
    events = client.events(PATH, {"messages": HELLO, "stream": True, "prediction": {"type": "content"}})
    assert events[-2]["warnings"] == reply["warnings"][:1]
    assert "reasoning_effort" in ask(client, reasoning_effort="high")["warnings"][0]


@pytest.mark.parametrize(
    "fields",
    [
        {"\ud800": 1},
        {"model": "\ud800"},
        {"user": "\ud800"},
        {"metadata": {"\ud800": "\ud800"}},
        {"tools": [{"type": "\ud800"}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"\ud800": 1}}}]},
        {"response_format": {"type": "json_object", "schema": {"\ud800": 1}}},
        {"chat_template_kwargs": {"a": ["\ud800"]}},
    ],
)
def test_half_characters_break_no_reply(fields: dict[str, Any]) -> None:
    client = Client()
    for stream in (False, True):
        assert client.post(PATH, {"messages": HELLO, **fields, "stream": stream}).status_code in (200, 400, 404)
        assert client.post("/v1/responses", {"input": "x", **fields, "stream": stream}).status_code in (200, 400, 404)


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_that_does_not_fit(stream: bool) -> None:
    error = refusal(Client(), messages=[{"role": "user", "content": "x" * 2000}], stream=stream)
    assert error["code"] == "context_length_exceeded"
    assert "this model's maximum context length is" in error["message"]
    assert "2008" in error["message"]
    assert "1024" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_template_refuses(stream: bool) -> None:
    error = refusal(Client(), messages=HELLO + HELLO, stream=stream)
    assert "roles must alternate" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue(stream: bool) -> None:
    client = Client()
    client.engine.full = True
    response = client.post(PATH, {"messages": HELLO, "stream": stream})
    assert response.status_code == 503
    assert response.headers["retry-after"] == "2"
    assert "x-should-retry" not in response.headers


def test_an_error_in_the_middle_is_told_and_ends_the_stream() -> None:
    script = ["half", EngineError("the device is lost")]
    client = Client(FakeEngine(script=lambda prompt: script))
    events = client.events(PATH, {"messages": HELLO, "stream": True})
    assert events[-1]["error"]["message"] == "the device is lost"
    assert streamed(events) == "half"
    assert "[DONE]" not in events
    response = client.post(PATH, {"messages": HELLO})
    assert (response.status_code, response.json()["error"]["type"]) == (500, "server_error")


def test_a_fault_in_the_middle_is_told_without_details(caplog: pytest.LogCaptureFixture) -> None:
    def fault(prompt: str) -> str:
        raise RuntimeError("secret place")

    events = Client(FakeEngine(script=fault)).events(PATH, {"messages": HELLO, "stream": True})
    assert events[-1]["error"]["code"] == "internal_error"
    assert "secret" not in str(events)
    assert "secret place" in caplog.text


@pytest.mark.parametrize("path", ["/chat/completions", "/v1/chat/completions"])
def test_addresses_with_and_without_the_version(path: str) -> None:
    assert Client().post(path, {"messages": HELLO}).status_code == 200


def test_bodies_that_are_none() -> None:
    client = Client()
    for content, kind, status in (
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"n": ' + b"9" * 5000 + b"}", "application/json", 400),
        (b'{"messages": NaN}', "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"{}", "text/plain", 415),
    ):
        response = client("POST", PATH, content=content, headers={"Content-Type": kind})
        assert response.status_code == status, content[:20]
        ErrorBody.model_validate(response.json())


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_engine_refuses_at_once_has_a_status(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: FakeGeneration) -> Iterator[Update]:
        raise UsageError("grammar cannot be used: expecting ')'")
        yield

    monkeypatch.setattr(FakeGeneration, "_updates", refused)
    assert "expecting ')'" in refusal(Client(), grammar="root ::= (", stream=stream)["message"]
