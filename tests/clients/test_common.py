"""What every client must get right, the same for all of them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.clients.conftest import Outcomes
from tests.clients.scripted import UNUSUAL

#: programs, and the operations of each that are to fail
PROGRAMS = {
    "openai_python.py": {"too_long", "full", "wrong_key", "bad_parameter", "bad_roles", "unknown_model"},
    "openai_node.mjs": {"too_long", "wrong_key"},
    "litellm_python.py": {"too_long", "wrong_key"},
    "langchain_python.py": {"too_long", "wrong_key"},
    "anthropic_python.py": {"too_long", "wrong_key"},
    "ollama_python.py": {"too_long", "full", "wrong_key", "pull_unknown", "unknown_model"},
    "ollama_node.mjs": {"too_long", "wrong_key"},
    "ai_sdk.mjs": {"too_long", "wrong_key"},
    "continue.mjs": {"too_long", "wrong_key"},
}
#: how a stream that breaks looks to those who do not just raise the server's own words
BROKEN = {"litellm_python.py": "MidStreamFallbackError"}
ENDS = {"anthropic_python.py": "end_turn"}


def programs(but: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """All programs but those whose names begin so."""
    return pytest.mark.parametrize("program", [name for name in PROGRAMS if not name.startswith(but or "-")])


every = programs()
of_openai = programs(but=("anthropic", "ollama"))


@pytest.fixture
def of(program: str, outcomes: Callable[[str], Outcomes]) -> Outcomes:
    return outcomes(program)


@every
def test_what_can_work_works(program: str, of: Outcomes) -> None:
    failed = {name: outcome["error"] for name, outcome in of.items() if "error" in outcome}
    assert failed.keys() <= PROGRAMS[program], failed


@every
def test_an_answer(program: str, of: Outcomes) -> None:
    value = of["chat"]["value"]
    assert (value["text"], value["finish"]) == ("hello", ENDS.get(program, "stop"))


@every
def test_a_stream_has_the_same_text_in_pieces_and_says_why_it_ended(program: str, of: Outcomes) -> None:
    value = of["stream"]["value"]
    finish = value["finish"] if isinstance(value["finish"], list) else [value["finish"]]
    assert (value["text"], finish, value["error"]) == ("hello", [ENDS.get(program, "stop")], None)
    assert value["n"] > 1


@of_openai
def test_the_usage_of_a_stream(program: str, of: Outcomes) -> None:
    usage = of["usage"]["value"]["usage"]
    last = usage[-1]
    read = last.get("prompt_tokens", last.get("input_tokens"))
    written = last.get("completion_tokens", last.get("output_tokens"))
    assert (read, written) == (len("user: say hello\n>"), len("hello"))


@of_openai
def test_a_tool_call(program: str, of: Outcomes) -> None:
    (call,) = of["tools"]["value"]
    arguments = call["arguments"]
    assert call["id"]
    assert call["name"] == "weather"
    assert (json.loads(arguments) if isinstance(arguments, str) else arguments) == {"city": "Paris"}


@every
def test_text_that_readers_of_lines_stumble_over(program: str, of: Outcomes) -> None:
    assert of["unusual"]["value"] == {"whole": UNUSUAL, "streamed": UNUSUAL}


@every
def test_a_prompt_that_is_too_long_is_refused_in_words_that_name_both_numbers(program: str, of: Outcomes) -> None:
    error = of["too_long"]["error"]
    assert error["status"] in (400, None), error
    assert "5008" in error["message"], error
    assert "2048" in error["message"], error


@every
def test_a_stream_that_breaks_is_an_error_after_its_text(program: str, of: Outcomes) -> None:
    value = of["broken"]["value"]
    assert value["text"] == "Half of "
    assert value["error"] is not None
    assert "the machine broke" in value["error"]["message"]
    assert value["error"]["type"] == BROKEN.get(program, value["error"]["type"])


@programs(but=("ollama", "continue"))
def test_a_server_that_is_busy_is_asked_again(program: str, of: Outcomes) -> None:
    assert of["busy"]["value"]["text"] in {"openai", "openai node", "litellm", "langchain", "anthropic", "ai sdk"}


@every
def test_keys(program: str, of: Outcomes) -> None:
    error = of["wrong_key"]["error"]
    assert error["status"] == 401 or "Authentication" in error["type"], error
    assert of["right_key"]["value"] == "hello"


@programs(but=("openai_python", "ollama_python", "anthropic"))
def test_embeddings(program: str, of: Outcomes) -> None:
    assert of["embeddings"]["value"] == 2
