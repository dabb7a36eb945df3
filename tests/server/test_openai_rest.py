"""/v1/completions, /v1/embeddings, /v1/models, and what the server tells of itself."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from localspec.server.openai.replies import Completion, Embeddings, Models
from tests.server.client import Client
from tests.server.fake import FakeEngine


def complete(client: Client, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/completions", {"prompt": "say it", **fields})
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    Completion.model_validate(reply)
    return reply


def test_texts_go_on() -> None:
    client = Client(FakeEngine(script=lambda prompt: prompt.upper()))
    reply = complete(client, prompt=["ab", "cd"], n=2, echo=True)
    assert [choice["text"] for choice in reply["choices"]] == ["abAB", "abAB", "cdCD", "cdCD"]
    assert (reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]) == (4, 8)
    assert complete(client, prompt=[97, 98], echo=True)["choices"][0]["text"] == "abAB"
    assert complete(client, prompt=[[97], [98]])["choices"][1]["text"] == "B"
    body = {"prompt": ["ab", "cd"], "echo": True, "stream": True, "stream_options": {"include_usage": True}}
    *events, last, done = client.events("/v1/completions", body)
    texts = ["", ""]
    for event in events:
        texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert (texts, done) == (["abAB", "cdCD"], "[DONE]")
    assert last["usage"]["prompt_tokens"] == 4


def test_logprobs_have_the_shape_of_completions() -> None:
    client = Client(FakeEngine(script=lambda prompt: "né!"))
    told = complete(client, logprobs=2)["choices"][0]["logprobs"]
    assert told["tokens"] == ["n", "bytes:\\xc3", "bytes:\\xa9", "!"]
    assert told["text_offset"] == [0, 1, 1, 2]
    assert [len(top) for top in told["top_logprobs"]] == [2] * 4
    events = client.events("/v1/completions", {"prompt": "x", "logprobs": 2, "stream": True})
    streamed: dict[str, list[Any]] = {name: [] for name in told}
    for event in events[:-1]:
        for name, values in (event["choices"][0]["logprobs"] or {}).items():
            streamed[name] += values
    assert streamed == told


def test_constraints_of_texts_reach_the_engine() -> None:
    client = Client()
    complete(client, json_schema={"type": "array"})
    complete(client, grammar='root ::= "x"')
    first, second = client.engine.requests
    assert (first.sampling.json_schema, first.sampling.grammar) == ({"type": "array"}, None)
    assert second.sampling.grammar == 'root ::= "x"'


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [300]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": ["x"] * 300}, "prompt"),
        ({"prompt": ["x"] * 20, "n": 2}, "n"),
        ({"best_of": 3}, "best_of"),
        ({"suffix": "end"}, "suffix"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"logprobs": 21}, "logprobs"),
        ({"grammar": "root ::= x", "json_schema": {}}, "grammar"),
    ],
)
def test_texts_that_cannot_be(fields: dict[str, Any], param: str) -> None:
    response = Client().post("/v1/completions", {"prompt": "x", **fields})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_embeddings() -> None:
    client = Client()
    texts = client.post("/v1/embeddings", {"input": ["a", "b"], "dimensions": 4}).json()
    Embeddings.model_validate(texts)
    assert texts["usage"] == {"prompt_tokens": 2, "total_tokens": 2}
    coded = client.post("/v1/embeddings", {"input": [[97], [98]], "encoding_format": "base64"}).json()
    for one, other in zip(texts["data"], coded["data"], strict=True):
        vector = struct.unpack("<4f", base64.b64decode(other["embedding"]))
        assert list(vector) == pytest.approx(one["embedding"])
    for body, param in (
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [1000]}, "input"),
        ({"input": "a", "dimensions": 3}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ):
        response = client.post("/embeddings", body)
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_models() -> None:
    client = Client(FakeEngine("one"), FakeEngine("two"))
    client.host.unloaded.add("two")
    listed = client.get("/v1/models").json()
    Models.model_validate(listed)
    assert [(model["id"], model["loaded"]) for model in listed["data"]] == [("one", True), ("two", False)]
    assert listed["data"][0]["meta"]["n_vocab"] == 257
    assert client.get("/models").json() == listed
    assert client.get("/v1/models/two").json() == listed["data"][1]
    missing = client.get("/v1/models/three")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


def test_health_follows_the_host() -> None:
    client = Client()
    assert (client.get("/health").status_code, client.get("/health").json()) == (200, {"status": "ok"})
    client.host.now = "loading"
    response = client.get("/v1/health")
    assert (response.status_code, response.json()["error"]["message"]) == (503, "Loading model")
    assert response.json()["progress"] == 0.5
    for state in ("closing", "degraded"):
        client.host.now = state
        assert (client.get("/health").status_code, client.get("/health").json()["status"]) == (503, state)


def test_health_tells_of_a_model_that_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    monkeypatch.setattr(client.engine, "stuck", lambda: 61.0)
    response = client.get("/health")
    assert (response.status_code, response.json()["status"]) == (503, "degraded")


def test_metrics_count_what_was_done() -> None:
    client = Client()
    complete(client, max_tokens=4)
    complete(client, max_tokens=4, speculation={"method": "off"})
    lines = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#")
    assert float(lines["llamacpp:prompt_tokens_total"]) == 12
    assert float(lines["llamacpp:tokens_predicted_total"]) == 8
    assert float(lines["localspec_spec_decode_num_draft_tokens_total"]) == 4
    assert float(lines["localspec_spec_decode_num_accepted_tokens_total"]) == 2
    assert float(lines["localspec_time_to_first_token_seconds_count"]) == 2
    assert float(lines["localspec_time_per_output_token_seconds_count"]) == 6
    assert float(lines['localspec_answers_total{reason="length"}']) == 2
    assert float(lines["llamacpp:requests_processing"]) == float(lines["llamacpp:requests_deferred"]) == 0


def test_what_it_is() -> None:
    client = Client()
    assert client.get("/").json()["models"] == ["fake"]
    assert client.get("/localspec/live").headers["content-type"] == "application/json"
