"""LM Studio's own API, as its clients meet it."""

from __future__ import annotations

from localspec.server import lmstudio
from tests.server.client import Client
from tests.server.fake import FakeEngine

HELLO = {"model": "fake", "messages": [{"role": "user", "content": "hello"}]}


def test_lists_of_models() -> None:
    client = Client(FakeEngine("fake"), FakeEngine("other"))
    client.host.unloaded.add("other")
    reply = client.get("/api/v0/models").json()
    lmstudio.Models.model_validate(reply)
    loaded, other = reply["data"]
    assert (loaded["id"], loaded["state"], loaded["loaded_context_length"]) == ("fake", "loaded", 1024)
    assert loaded["max_context_length"] == 4096
    assert (loaded["compatibility_type"], loaded["type"], loaded["capabilities"]) == ("gguf", "llm", [])
    assert (other["state"], "loaded_context_length" in other) == ("not-loaded", False)
    assert client.get("/api/v0/models/other").json() == other
    wrong = client.get("/api/v0/models/none")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (404, "model_not_found")
    assert client.host.unloaded == {"other"}


def test_answers_have_its_numbers() -> None:
    client = Client()
    reply = client.post("/api/v0/chat/completions", HELLO).json()
    lmstudio.ChatCompletion.model_validate(reply)
    assert reply["choices"][0]["message"]["content"]
    assert reply["stats"]["stop_reason"] == "eosFound"
    assert reply["stats"]["tokens_per_second"] == reply["timings"]["predicted_per_second"] > 0
    assert {"time_to_first_token", "generation_time"} <= reply["stats"].keys()
    short = client.post("/api/v0/completions", {"model": "fake", "prompt": "hello", "max_tokens": 1}).json()
    assert short["stats"]["stop_reason"] == "maxPredictedTokensReached"
    assert len(client.post("/api/v0/embeddings", {"model": "fake", "input": "x"}).json()["data"]) == 1


def test_streams_are_openais() -> None:
    events = Client().events("/api/v0/chat/completions", {**HELLO, "stream": True})
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"


def test_errors_are_openais() -> None:
    error = Client().post("/api/v0/chat/completions", {**HELLO, "model": "none"}).json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
