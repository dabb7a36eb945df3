"""More of the APIs of Ollama and Anthropic, and of what clients make of OpenAI's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.conftest import Outcomes

PERSON = {"name": "Ada", "age": 36}
PARIS = ["weather", {"city": "Paris"}]

#: (program, operation) -> what comes of it
VALUES = {
    ("ollama_python.py", "list"): ["scripted:latest"],
    ("ollama_python.py", "ps"): ["scripted:latest"],
    ("ollama_python.py", "embed"): {"one": 1, "two": 2, "old": True},
    ("ollama_python.py", "pull"): ["pulling manifest", "downloading", "success"],
    ("ollama_python.py", "load"): "load",
    ("ollama_python.py", "length"): {"text": "one two", "finish": "length", "n_tokens": 7},
    ("ollama_python.py", "thoughts"): "Two and two.",
    ("ollama_python.py", "structured"): '{"name": "Ada", "age": 36}',
    ("ollama_python.py", "tools"): {"whole": [PARIS], "streamed": [PARIS], "after": "It has 21 degrees."},
    ("ollama_node.mjs", "generate"): "hello",
    ("ollama_node.mjs", "list"): ["scripted:latest"],
    ("ollama_node.mjs", "pull"): ["pulling manifest", "downloading", "success"],
    ("anthropic_python.py", "token"): "hello",
    ("anthropic_python.py", "length"): "max_tokens",
    ("anthropic_python.py", "tools"): {
        "whole": [PARIS, ["weather", {"city": "Oslo"}]],
        "streamed": [PARIS, ["weather", {"city": "Oslo"}]],
        "finish": ["tool_use", "tool_use"],
        "after": "It has 21 degrees.",
    },
    ("anthropic_python.py", "models"): ["scripted"],
    ("langchain_python.py", "structured"): PERSON,
    ("langchain_python.py", "ollama_embeddings"): 2,
    ("litellm_python.py", "thoughts"): "Two and two.",
    ("litellm_python.py", "ollama"): {"text": "hello", "finish": "stop"},
    ("ai_sdk.mjs", "thoughts"): "Two and two.",
    ("ai_sdk.mjs", "tool_loop"): "It has 21 degrees in Paris.",
    ("continue.mjs", "models"): ["scripted"],
}
TEXTS = {
    ("ollama_python.py", "options"): "one ",
    ("anthropic_python.py", "stop"): "one ",
    ("anthropic_python.py", "system"): "hello",
    ("langchain_python.py", "ollama"): "hello",
    ("litellm_python.py", "ollama_stream"): "hello",
    ("continue.mjs", "llama_cpp"): "hello",
    ("continue.mjs", "ollama"): "hello",
}


@pytest.mark.parametrize(("program", "operation"), VALUES)
def test_values(program: str, operation: str, outcomes: Callable[[str], Outcomes]) -> None:
    assert outcomes(program)[operation].get("value") == VALUES[program, operation], outcomes(program)[operation]


@pytest.mark.parametrize(("program", "operation"), TEXTS)
def test_texts(program: str, operation: str, outcomes: Callable[[str], Outcomes]) -> None:
    outcome: dict[str, Any] = outcomes(program)[operation]
    assert outcome.get("value", {}).get("text") == TEXTS[program, operation], outcome


def test_ollama_generates_with_and_without_a_template_and_counts(outcomes: Callable[[str], Outcomes]) -> None:
    value = outcomes("ollama_python.py")["generate"]["value"]
    assert (value["text"], value["raw"], value["streamed"], value["done"]) == ("hello", "hello", "hello", True)
    assert value["counts"] == [len("user: say hello\n>"), len("hello")]
    assert all(duration > 0 for duration in value["durations"])


def test_ollama_shows_what_apps_look_for(outcomes: Callable[[str], Outcomes]) -> None:
    shown = outcomes("ollama_python.py")["show"]["value"]
    assert shown["context"] == [2048]
    assert shown["quant"] == "Q8_0"
    assert "completion" in shown["capabilities"]


@pytest.mark.parametrize(("operation", "status"), [("full", 503), ("unknown_model", 404), ("pull_unknown", 404)])
def test_errors_of_ollama(operation: str, status: int, outcomes: Callable[[str], Outcomes]) -> None:
    assert outcomes("ollama_python.py")[operation]["error"]["status"] == status


def test_litellm_knows_a_context_that_is_too_small(outcomes: Callable[[str], Outcomes]) -> None:
    """Agents shorten the conversation on this very error."""
    assert outcomes("litellm_python.py")["too_long"]["error"]["type"] == "ContextWindowExceededError"


def test_a_prompt_that_is_too_long_for_anthropic_s_clients(outcomes: Callable[[str], Outcomes]) -> None:
    assert "prompt is too long" in outcomes("anthropic_python.py")["too_long"]["error"]["message"]


def test_anthropic_counts_tokens_of_a_prompt(outcomes: Callable[[str], Outcomes]) -> None:
    assert outcomes("anthropic_python.py")["count_tokens"]["value"] == len("user: count\n>")
