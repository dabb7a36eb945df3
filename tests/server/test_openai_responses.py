"""/v1/responses."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.errors import EngineError
from localspec.server.openai.responses_reply import ResponseReply
from tests.server.client import Client
from tests.server.fake import FakeEngine
from tests.server.test_openai_chat import calling

PATH = "/v1/responses"
ADD = {"type": "function", "name": "add", "parameters": {"type": "object"}}


def ask(client: Client, **fields: Any) -> dict[str, Any]:
    response = client.post(PATH, {"input": "hello", **fields})
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    ResponseReply.model_validate(reply)
    return reply


def stable(response: dict[str, Any]) -> dict[str, Any]:
    """The response without what is fresh in each."""
    items = [{**item, "id": "", "call_id": ""} for item in response["output"]]
    return {**response, "id": "", "created_at": 0, "output": items}


def test_a_text() -> None:
    reply = ask(Client(), input="hello", instructions="be brief", metadata={"a": "b"}, user="me")
    item = reply["output"][0]
    assert (item["type"], item["status"], item["content"][0]["text"]) == ("message", "completed", "user: hello")
    assert (reply["status"], reply["instructions"], reply["metadata"]) == ("completed", "be brief", {"a": "b"})
    assert reply["usage"]["output_tokens"] == len("user: hello")
    assert reply["store"] is False


def test_a_stream_tells_how_the_response_grows() -> None:
    client, _ = calling()
    fields = {"input": "hello", "tools": [ADD], "seed": 3}
    events = client.events(PATH, {**fields, "stream": True})
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = list(dict.fromkeys(event["type"].removeprefix("response.") for event in events))
    assert kinds == [
        "created", "in_progress", "output_item.added", "content_part.added", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done", "function_call_arguments.delta",
        "function_call_arguments.done", "completed",
    ]  # fmt: skip
    call = events[-1]["response"]["output"][1]
    assert (call["type"], call["call_id"], call["name"], call["arguments"]) == (
        "function_call", "call_1", "add", '{"a": 1}',
    )  # fmt: skip
    assert stable(events[-1]["response"]) == stable(ask(client, **fields))


def test_the_texts_of_a_stream_add_up() -> None:
    events = Client(FakeEngine(script=lambda prompt: "drei Käse 🧀")).events(PATH, {"input": "hello", "stream": True})
    text = "".join([event["delta"] for event in events if event["type"] == "response.output_text.delta"])
    assert text == events[-1]["response"]["output"][0]["content"][0]["text"] == "drei Käse 🧀"


def test_an_answer_that_was_cut() -> None:
    reply = ask(Client(), max_output_tokens=2)
    assert (reply["status"], reply["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


def test_logprobs() -> None:
    reply = ask(Client(), include=["message.output_text.logprobs"], top_logprobs=1)
    part = reply["output"][0]["content"][0]
    assert "".join([entry["token"] for entry in part["logprobs"]]) == part["text"]
    assert ask(Client())["output"][0]["content"][0]["logprobs"] == []


def test_a_conversation_reaches_the_chat_format() -> None:
    client, form = calling()
    items = [
        {"role": "developer", "content": "be brief"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "1+1?"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "c2", "name": "add", "arguments": '{"a": 2}'},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
    ]
    wanted = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "array"}}}
    ask(client, input=items, text=wanted, tools=[ADD], tool_choice={"type": "function", "name": "add"})
    asked = form.asked[0]
    assert [message["role"] for message in asked.messages] == ["system", "user", "assistant", "tool"]
    assistant = asked.messages[2]
    assert [call["id"] for call in assistant["tool_calls"]] == ["c1", "c2"]
    assert assistant["reasoning_content"] == "hm"
    assert (asked.json_schema, asked.function) == ({"type": "array"}, "add")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x"}]}]},
         "input[0].content[0]"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"max_output_tokens": -5}, "max_output_tokens"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_named(fields: dict[str, Any], param: str) -> None:
    response = Client().post(PATH, {"input": "hello", **fields})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_what_is_left_out_is_told() -> None:
    reply = ask(Client(), tools=[{"type": "web_search"}], store=True, previous_response_id=None)
    assert [warning.split(":")[0] for warning in reply["warnings"]] == ["store", "tools[0]"]


def test_an_error_in_the_middle_is_told() -> None:
    client = Client(FakeEngine(script=lambda prompt: ["half", EngineError("the device is lost")]))
    last = client.events(PATH, {"input": "hello", "stream": True})[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"]["message"] == "the device is lost"
    assert client.post(PATH, {"input": "hello"}).status_code == 500
