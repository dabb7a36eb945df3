"""More of OpenAI's API, with its own libraries. The Python one checks every reply against its types."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.conftest import Outcomes

PERSON = {"name": "Ada", "age": 36}


@pytest.fixture
def of(outcomes: Callable[[str], Outcomes]) -> Outcomes:
    return outcomes("openai_python.py")


@pytest.fixture
def node(outcomes: Callable[[str], Outcomes]) -> Outcomes:
    return outcomes("openai_node.mjs")


def test_models(of: Outcomes, node: Outcomes) -> None:
    assert of["models"]["value"] == node["models"]["value"] == ["scripted"]
    assert of["model"]["value"] == "scripted"
    assert of["chat"]["value"]["model"] == "scripted"


def test_usage_comes_only_when_asked_for_and_nothing_of_the_answer_after_its_end(of: Outcomes) -> None:
    assert of["stream"]["value"]["usage"] == []
    assert of["stream"]["value"]["after"] == 0
    (usage,) = of["usage"]["value"]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_an_answer_has_llama_cpp_timings_and_what_speculation_did(of: Outcomes) -> None:
    value = of["extras"]["value"]
    assert value["timings"]["predicted_n"] == len("hello")
    assert value["speculation"]["method"] in ("off", "plain")
    assert value["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] == 0


@pytest.mark.parametrize("name", ["developer", "parts", "nulls"])
def test_ways_to_ask(of: Outcomes, name: str) -> None:
    assert of[name]["value"] == "hello"


def test_stops_and_lengths(of: Outcomes) -> None:
    stopped = of["stop"]["value"]
    assert (stopped["text"], stopped["finish"]) == ("one ", ["stop"])
    assert of["length"]["value"] == {"text": "one two", "finish": "length", "model": "scripted"}
    assert (of["length_new_name"]["value"]["text"], of["length_new_name"]["value"]["finish"]) == ("one two", ["length"])
    assert of["n"]["value"] == [0, 1]


@pytest.mark.parametrize("library", ["of", "node"])
def test_tool_calls_in_a_stream(library: str, request: pytest.FixtureRequest) -> None:
    value = request.getfixturevalue(library)["tools_stream"]["value"]
    assert [json.loads(call["arguments"]) for call in value["calls"]] == [{"city": "Paris"}, {"city": "Oslo"}]
    assert len({call["id"] for call in value["calls"]}) == 2
    assert value["finish"] == "tool_calls"


def test_the_results_of_tools_are_answered(of: Outcomes, node: Outcomes) -> None:
    assert of["tool_loop"]["value"] == "It has 21 degrees."
    assert node["tool_loop"]["value"].startswith("It has ")


def test_thoughts_are_apart_from_the_answer(of: Outcomes) -> None:
    assert of["thoughts"]["value"] == {"content": "4", "reasoning": "Two and two.", "streamed": "Two and two."}


@pytest.mark.parametrize("library", ["of", "node"])
def test_answers_as_objects(library: str, request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue(library)["parse"]["value"] == {"whole": PERSON, "streamed": PERSON}


def test_log_probabilities(of: Outcomes) -> None:
    assert of["logprobs"]["value"] == {
        "tokens": ["h", "e", "y"],
        "bytes": [[104], [101], [121]],
        "top": [2, 2, 2],
        "streamed": ["h", "e", "y"],
    }


@pytest.mark.parametrize(
    ("name", "kind", "status", "code"),
    [
        ("too_long", "BadRequestError", 400, "context_length_exceeded"),
        ("unknown_model", "NotFoundError", 404, "model_not_found"),
        ("bad_roles", "BadRequestError", 400, None),
        ("wrong_key", "AuthenticationError", 401, "invalid_api_key"),
        ("full", None, 503, None),
    ],
)
def test_errors(of: Outcomes, name: str, kind: str | None, status: int, code: str | None) -> None:
    error: dict[str, Any] = (of[name].get("error") or of[name]["value"]) | {}
    assert error["status"] == status
    assert kind is None or error["type"] == kind
    assert code is None or error["code"] == code


def test_a_busy_server_says_when_to_come_back_and_a_bad_request_is_not_sent_again(of: Outcomes) -> None:
    assert of["full"]["value"]["retry_after"] == "1"
    assert "temperature" in of["bad_parameter"]["error"]["message"]
    assert "alternate" in of["bad_roles"]["error"]["message"]


def test_embeddings_as_bytes_and_as_numbers_are_the_same(of: Outcomes) -> None:
    assert of["embeddings"]["value"] == {"same": True, "indices": [0, 1], "tokens": len("hello") + len("you")}


def test_completions(of: Outcomes) -> None:
    assert of["completions"]["value"] == {"texts": ["one", "two"], "streamed": "one", "usage": 3}


def test_responses(of: Outcomes, node: Outcomes) -> None:
    for value in (of["responses"]["value"], node["responses"]["value"]):
        assert (value["text"], value["status"]) == ("hello", "completed")
        assert value["types"][0] == "response.created"
        assert value["types"][-1] == "response.completed"
    assert of["responses"]["value"]["streamed"] == "hello"
    assert of["responses"]["value"]["usage"] == len("hello")


def test_responses_with_tools_and_schemas(of: Outcomes) -> None:
    value = of["responses_tools"]["value"]
    assert value["name"] == "weather"
    assert json.loads(value["arguments"]) == json.loads(value["streamed"]) == {"city": "Paris"}
    assert value["after"] == "It has 21 degrees."
    assert of["responses_parse"]["value"] == PERSON


def test_a_response_that_breaks_is_not_completed(of: Outcomes) -> None:
    types = of["responses_broken"]["value"]["types"]
    assert "response.completed" not in types
    assert types[-1] in ("response.failed", "error", "APIError")
