"""Anthropic's Messages API, as its clients meet it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localspec.errors import EngineError
from localspec.server.anthropic import schemas
from tests.server.client import Client
from tests.server.fake import FakeEngine, FakeFormat
from tests.server.leaving import leave
from tests.server.marked import marked

PATH = "/v1/messages"
HELLO = [{"role": "user", "content": "hello"}]
TOOL = {
    "name": "get",
    "description": "d",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def send(client: Client, **fields: Any) -> dict[str, Any]:
    """A whole answer."""
    response = client.post(PATH, {"model": "fake", "max_tokens": 500, "messages": HELLO, **fields})
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    made = schemas.MessageResponse.model_validate(reply)
    assert json.loads(made.model_dump_json(exclude_unset=True)) == reply
    return reply


def events(client: Client, **fields: Any) -> list[dict[str, Any]]:
    """The events of an answer, each of which has a name."""
    response = client.post(PATH, {"model": "fake", "max_tokens": 500, "messages": HELLO, "stream": True, **fields})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    made = []
    for block in response.text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        made.append(event)
    return [event for event in made if event["type"] != "ping"]


def refusal(client: Client, status: int = 400, **fields: Any) -> dict[str, Any]:
    response = client.post(PATH, {"model": "fake", "max_tokens": 500, "messages": HELLO, **fields})
    assert response.status_code == status, response.text
    body = response.json()
    schemas.ErrorResponse.model_validate(body)
    assert body["type"] == "error"
    error: dict[str, Any] = body["error"]
    return error


def test_a_reply_has_all_that_clients_read() -> None:
    client, _ = marked("ein Ü")
    reply = send(client)
    assert reply["id"].startswith("msg_")
    assert (reply["type"], reply["role"], reply["model"]) == ("message", "assistant", "fake")
    assert reply["content"] == [{"type": "text", "text": "ein Ü"}]
    assert (reply["stop_reason"], reply["stop_sequence"]) == ("end_turn", None)
    assert reply["usage"] | {"input_tokens": 13, "output_tokens": 6, "cache_read_input_tokens": 0} == reply["usage"]
    assert (reply["speculation"]["method"], reply["timings"]["predicted_n"]) == ("ptd", 6)


def test_a_stream_is_made_of_blocks() -> None:
    client, _ = marked('«hm»I look.⟨get|{"city": "Köln"}⟩⟨stop|{}⟩')
    got = events(client, tools=[TOOL, {**TOOL, "name": "stop"}], thinking={"type": "enabled", "budget_tokens": 1024})
    assert got[0]["type"] == "message_start"
    start = got[0]["message"]
    assert (start["content"], start["stop_reason"], start["usage"]["output_tokens"]) == ([], None, 0)
    assert start["usage"]["input_tokens"] > 0
    assert [event["type"] for event in got[-2:]] == ["message_delta", "message_stop"]
    assert got[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert got[-2]["usage"]["output_tokens"] > 0
    assert "budget_tokens" in got[-2]["warnings"][0]
    blocks: list[dict[str, Any]] = []
    for event in got[1:-2]:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append({**event["content_block"], "open": True, "json": ""})
        elif event["type"] == "content_block_stop":
            assert blocks[event["index"]].pop("open")
        else:
            block, delta = blocks[event["index"]], event["delta"]
            assert block["open"] and event["index"] == len(blocks) - 1
            field = {"input_json_delta": "partial_json", "thinking_delta": "thinking", "text_delta": "text"}
            name = field.get(delta["type"], "signature")
            block["json" if name == "partial_json" else name] += delta[name]
    assert all("open" not in block for block in blocks)
    thinking, text, get, stop = blocks
    assert (thinking["thinking"], thinking["signature"], text["text"]) == ("hm", "", "I look.")
    assert (get["id"], get["name"], get["input"], json.loads(get["json"])) == ("call_0", "get", {}, {"city": "Köln"})
    assert (stop["name"], stop["json"]) == ("stop", "{}")


def test_a_whole_answer_has_the_same_blocks() -> None:
    client, form = marked('«hm»I look.⟨get|{"city": "Köln"}⟩⟨stop|⟩')
    reply = send(client, tools=[TOOL], thinking={"type": "adaptive"})
    assert reply["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "call_0", "name": "get", "input": {"city": "Köln"}},
        {"type": "tool_use", "id": "call_1", "name": "stop", "input": {}},
    ]
    assert reply["stop_reason"] == "tool_use"
    assert form.asked[0].enable_thinking
    cut = send(marked('⟨get|{"city')[0], tools=[TOOL])
    assert (cut["content"], "cut" in cut["warnings"][0]) == ([], True)


def test_why_an_answer_ended() -> None:
    client, _ = marked("one STOP two")
    stopped = send(client, stop_sequences=["STOP"])
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "STOP")
    assert stopped["content"][0]["text"] == "one "
    assert events(client, stop_sequences=["STOP"])[-2]["delta"]["stop_sequence"] == "STOP"
    assert send(client, max_tokens=3)["stop_reason"] == "max_tokens"


class StoppingFormat(FakeFormat):
    def apply(self, request: Any) -> Any:
        prompt = super().apply(request)
        return type(prompt)(prompt.text, stops=("STOP",))


def test_a_stop_string_of_the_chat_format_is_none_of_the_client() -> None:
    engine = FakeEngine(script=lambda prompt: "one STOP two")
    engine.chat = StoppingFormat()
    reply = send(Client(engine))
    assert (reply["stop_reason"], reply["stop_sequence"]) == ("end_turn", None)
    assert reply["content"][0]["text"] == "one "


def test_a_conversation_reaches_the_chat_format() -> None:
    client, form = marked("ok")
    cached = {"cache_control": {"type": "ephemeral"}}
    messages = [
        {"role": "user", "content": "weather?"},
        {"role": "user", "content": [{"type": "text", "text": "in Köln", **cached}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "abc"}, {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "get", "input": {"city": "Köln"}},
            {"type": "tool_use", "id": "t2", "name": "now", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}]},
            {"type": "tool_result", "tool_use_id": "t2", "content": "no clock", "is_error": True},
            {"type": "text", "text": "and?"},
        ]},
    ]  # fmt: skip
    system = [{"type": "text", "text": "be"}, {"type": "text", "text": "brief", **cached}]
    reply = send(client, messages=messages, system=system, tools=[TOOL], metadata={"user_id": "me"}, temperature=0.5)
    assert "warnings" not in reply
    made = [dict(message) for message in form.asked[0].messages]
    assert made[0] == {"role": "system", "content": "be\nbrief"}
    assert made[1] == {"role": "user", "content": "weather?\n\nin Köln"}
    calls = made[2].pop("tool_calls")
    assert made[2] == {"role": "assistant", "content": "I look.", "reasoning_content": "hm"}
    assert calls[0] == {"id": "t1", "type": "function", "function": {"name": "get", "arguments": '{"city": "Köln"}'}}
    assert made[3] == {"role": "tool", "tool_call_id": "t1", "content": "rain"}
    assert made[4] == {"role": "tool", "tool_call_id": "t2", "content": "Error: no clock"}
    assert made[5] == {"role": "user", "content": "and?"}
    assert form.asked[0].tools[0]["function"]["parameters"] == TOOL["input_schema"]
    assert client.engine.requests[0].sampling.temperature == 0.5


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ("auto", None, True, 2)),
        ({"type": "auto", "disable_parallel_tool_use": True}, ("auto", None, False, 2)),
        ({"type": "any"}, ("required", None, True, 2)),
        ({"type": "none"}, ("none", None, True, 2)),
        ({"type": "tool", "name": "b"}, ("required", "b", True, 1)),
    ],
)
def test_choices_of_tools(choice: Any, expected: tuple[Any, ...]) -> None:
    client, form = marked("x")
    send(client, tools=[{**TOOL, "name": "a"}, {**TOOL, "name": "b", "type": "custom"}], tool_choice=choice)
    asked = form.asked[0]
    assert (asked.tool_choice, asked.function, asked.parallel_tool_calls, len(asked.tools)) == expected


def test_the_beginning_of_an_answer_can_be_given() -> None:
    client, form = marked("B)")
    messages = [*HELLO, {"role": "assistant", "content": "The answer is ("}]
    send(client, messages=messages)
    assert (form.asked[0].continue_final_message, form.asked[0].add_generation_prompt) == (True, False)


ARRAY = {"type": "json_schema", "schema": {"type": "array"}}


@pytest.mark.parametrize("field", [{"output_config": {"format": ARRAY}}, {"output_format": ARRAY}])
def test_formats_of_the_answer(field: dict[str, Any]) -> None:
    client, form = marked("[]")
    send(client, **field)
    assert form.asked[0].json_schema == {"type": "array"}


def test_thoughts_are_not_asked_for_unless_wanted() -> None:
    client, form = marked("x")
    send(client)
    send(client, thinking={"type": "disabled"})
    send(client, thinking={"type": "enabled"}, output_config={"effort": "max"})
    assert [asked.enable_thinking for asked in form.asked] == [False, False, True]
    assert form.asked[-1].template_values == {"reasoning_effort": "high"}


def said(*blocks: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(blocks)}]}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "role"),
        (said({"type": "image", "source": {"type": "url", "url": "http://x"}}), "image"),
        (said({"type": "document", "source": {"type": "url"}}), "document"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages"),
        (said({"type": "tool_use", "id": "a", "name": "f"}, role="assistant"), "tool_result"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search"),
        ({"tools": [{"name": "f"}]}, "input_schema"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "g"),
        ({"tool_choice": {"type": "any"}}, "no tools"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{"url": "http://x"}]}, "mcp_servers"),
        ({"temperature": -1}, "temperature"),
        ({"top_k": -2}, "top_k"),
        ({"stop_sequences": ["x"] * 100}, "stop_sequences"),
        ({"messages": [{"role": "user", "content": "x" * 2000}]}, "prompt is too long"),
        ({"speculation": {"method": "magic"}}, "speculation"),
    ],
)  # fmt: skip
def test_refusals(fields: dict[str, Any], words: str) -> None:
    error = refusal(marked("x")[0], **fields)
    assert (error["type"], words in error["message"]) == ("invalid_request_error", True), error


def test_what_is_not_done_is_told() -> None:
    assert "magic" in send(marked("x")[0], magic=1)["warnings"][0]
    assert "warnings" not in send(marked("x")[0], service_tier="auto", cache_control={"type": "ephemeral"})


def test_kinds_of_errors() -> None:
    client, _ = marked("x")
    assert refusal(client, 404, model="claude")["type"] == "not_found_error"
    client.engine.full = True
    assert refusal(client, 503)["type"] == "overloaded_error"
    locked = Client(FakeEngine(), api_keys=("secret",))
    assert refusal(locked, 401)["type"] == "authentication_error"
    for headers in ({"x-api-key": "secret"}, {"authorization": "Bearer secret"}):
        body = {"model": "fake", "max_tokens": 5, "messages": HELLO}
        assert locked.post(PATH, body, headers=headers).status_code == 200


def test_an_error_in_the_middle_is_an_event() -> None:
    client, _ = marked(lambda prompt: ["some ", EngineError("the engine broke")])
    got = events(client)
    assert got[-1] == {"type": "error", "error": {"type": "api_error", "message": "the engine broke"}}
    assert refusal(client, 500)["message"] == "the engine broke"


@pytest.mark.parametrize(("stream", "after"), [(True, 0), (True, 2), (True, 4), (False, 0)])
def test_a_client_that_goes_frees_the_slot(stream: bool, after: int) -> None:
    client, _ = marked("word " * 1000, pause=0.001, n_ctx=100_000)
    leave(client, PATH, {"model": "fake", "max_tokens": 9000, "messages": HELLO, "stream": stream}, after)
    assert not client.engine.busy
    assert all(generation.cancelled for generation in client.engine.generations)


def test_speculation_is_as_the_request_wants_it() -> None:
    client, _ = marked("x")
    assert send(client, speculation={"method": "off"})["speculation"]["method"] == "off"
    assert events(client, speculation={"method": "lookup"})[-2]["speculation"]["requested"] == "lookup"


def test_tokens_are_counted_without_an_answer() -> None:
    client, _ = marked("x")
    body = {"model": "fake", "messages": HELLO, "system": "be brief", "tools": [TOOL]}
    counted = client.post(f"{PATH}/count_tokens", body)
    assert counted.json() == {"input_tokens": len("system: be brief\nuser: hello\n>")}
    assert not client.engine.requests
    wrong = client.post(f"{PATH}/count_tokens", {"model": "fake"})
    assert (wrong.status_code, wrong.json()["type"]) == (400, "error")


def test_the_list_of_models_is_anthropics_for_its_clients() -> None:
    client, _ = marked("x")
    reply = client.get("/v1/models", headers={"anthropic-version": "2023-06-01"}).json()
    schemas.ModelList.model_validate(reply)
    [model] = reply["data"]
    assert (model["id"], model["type"], reply["has_more"], reply["last_id"]) == ("fake", "model", False, "fake")
    one = client.get("/v1/models/fake", headers={"anthropic-version": "2023-06-01"}).json()
    assert one == model
