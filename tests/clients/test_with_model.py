"""`localspec serve` with a real model, by several libraries."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.clients.conftest import PROGRAMS, Outcomes, plain_env
from tests.with_server import running_server

pytestmark = [pytest.mark.model, pytest.mark.patched]


@pytest.fixture(scope="module")
def outcomes(client_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    with running_server(tmp_path_factory.mktemp("home")) as server:
        model = httpx.get(f"{server.url}/v1/models", timeout=30).json()["data"][0]["id"]
        command = [str(client_python), str(PROGRAMS / "whole.py"), server.url, model]
        done = subprocess.run(command, capture_output=True, text=True, env=plain_env(), timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        yield json.loads(done.stdout)


def test_every_api_has_the_same_answer_with_speculation_and_without(outcomes: Outcomes) -> None:
    texts = outcomes["texts"]["value"]
    assert texts["openai"]
    assert texts == dict.fromkeys(texts, texts["openai"])


def test_usage_adds_up(outcomes: Outcomes) -> None:
    usage = outcomes["usage"]["value"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 < usage["completion_tokens"] <= 20
    assert usage["completion_tokens_details"]["accepted_prediction_tokens"] >= 0


def test_a_schema_is_kept_to(outcomes: Outcomes) -> None:
    value = outcomes["parse"]["value"]
    assert value["finish"] == "stop"
    assert json.loads(value["text"]).keys() == {"name", "age"}


def test_tools_that_the_model_does_not_know_are_refused_and_not_ignored(outcomes: Outcomes) -> None:
    error = outcomes["tool"]["error"]
    assert error["type"] == "BadRequestError"
    assert "tools" in error["message"]


def test_log_probabilities_are_of_the_text(outcomes: Outcomes) -> None:
    value = outcomes["logprobs"]["value"]
    assert value["text"] == outcomes["texts"]["value"]["openai"]
    assert all(value["best"])
    assert all(value["numbers"])


def test_embeddings_tell_what_is_alike(outcomes: Outcomes) -> None:
    value = outcomes["embeddings"]["value"]
    assert value["lengths"] == pytest.approx([1, 1, 1], abs=1e-3)
    assert value["near"] > value["far"]


def test_a_prompt_that_is_too_long(outcomes: Outcomes) -> None:
    assert outcomes["too_long"]["error"]["code"] == "context_length_exceeded"
