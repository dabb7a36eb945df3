"""Ollama's API, as its clients meet it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from localspec.errors import DownloadError, EngineError
from localspec.server.ollama import durations, schemas
from tests.server.client import Client
from tests.server.fake import FakeEngine, FakeHost
from tests.server.leaving import leave
from tests.server.marked import marked

HELLO = [{"role": "user", "content": "hello"}]
CHAT, GENERATE = "/api/chat", "/api/generate"


def strict(model: Any, reply: Any) -> Any:
    """A reply whose fields are all known."""
    made = model.model_validate(reply)
    assert json.loads(made.model_dump_json(exclude_unset=True)) == reply
    return made


def lines(client: Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = client.post(path, body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.text.endswith("\n")
    return [json.loads(line) for line in response.text[:-1].split("\n")]


def chat(client: Client, **fields: Any) -> dict[str, Any]:
    """A whole answer."""
    response = client.post(CHAT, {"model": "fake", "messages": HELLO, "stream": False, **fields})
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    strict(schemas.ChatResponse, reply)
    return reply


def generate(client: Client, **fields: Any) -> dict[str, Any]:
    response = client.post(GENERATE, {"model": "fake", "prompt": "hello", "stream": False, **fields})
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    strict(schemas.GenerateResponse, reply)
    return reply


def refusal(client: Client, path: str, status: int = 400, **fields: Any) -> str:
    response = client.post(path, {"model": "fake", **fields})
    assert response.status_code == status, response.text
    strict(schemas.ErrorResponse, response.json())
    error: str = response.json()["error"]
    return error


def asked(client: Client) -> Any:
    """What the engine was asked for last."""
    return client.engine.requests[-1]


def test_answers_come_by_the_line_unless_they_are_not_wanted_so() -> None:
    client, _ = marked("ein Ü und 👩‍👩‍👧")
    got = lines(client, CHAT, {"model": "fake", "messages": HELLO})
    for line in got:
        strict(schemas.ChatResponse, line)
    assert "".join(line["message"]["content"] for line in got) == "ein Ü und 👩‍👩‍👧"
    assert [line["done"] for line in got] == [False] * (len(got) - 1) + [True]
    assert got == [*got[:-1], got[-1]]
    whole = chat(client)
    assert whole["message"]["content"] == "ein Ü und 👩‍👩‍👧"
    for last in (got[-1], whole):
        assert last["done_reason"] == "stop"
        assert last["eval_count"] == len("ein Ü und 👩‍👩‍👧".encode())
        assert last["eval_duration"] > 0 < last["prompt_eval_count"]
        assert last["total_duration"] >= last["load_duration"] >= 0
        assert last["speculation"]["method"] == "ptd"


def test_a_name_may_have_the_tag_latest() -> None:
    client, _ = marked("x")
    assert chat(client, model="fake:latest")["model"] == "fake:latest"
    assert "no model" in refusal(client, CHAT, 404, model="llama3:8b", messages=HELLO)


def test_thoughts_and_calls_of_tools() -> None:
    client, form = marked('«hm»I look.⟨get|{"city": "Köln"}⟩⟨stop|⟩')
    tool = {"type": "function", "function": {"name": "get", "description": "d", "parameters": {"type": "object"}}}
    calls = [
        {"id": "call_0", "function": {"index": 0, "name": "get", "arguments": {"city": "Köln"}}},
        {"id": "call_1", "function": {"index": 1, "name": "stop", "arguments": {}}},
    ]
    message = {"role": "assistant", "content": "I look.", "thinking": "hm", "tool_calls": calls}
    reply = chat(client, tools=[tool])
    assert reply["message"] == message
    assert reply["done_reason"] == "stop"
    assert form.asked[0].tools == [tool]
    got = [line["message"] for line in lines(client, CHAT, {"model": "fake", "messages": HELLO, "tools": [tool]})]
    assert "".join(each["content"] for each in got) == "I look."
    assert "".join(each.get("thinking", "") for each in got) == "hm"
    assert [call for each in got for call in each.get("tool_calls", [])] == calls


def test_a_call_that_was_cut_is_left_out_and_told_of() -> None:
    client, _ = marked('⟨get|{"city": "K')
    for last in (chat(client), lines(client, CHAT, {"model": "fake", "messages": HELLO})[-1]):
        assert "tool_calls" not in last["message"]
        assert "cut" in last["warnings"][0]


def test_a_conversation_with_tools_reaches_the_chat_format() -> None:
    client, form = marked("ok")
    call = {"function": {"name": "get", "arguments": {"city": "Köln"}}}
    messages = [
        {"role": "user", "content": "weather?", "images": []},
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call, {"function": {"name": "now"}}]},
        {"role": "tool", "content": "noon", "tool_name": "now"},
        {"role": "user", "content": "go on"},
        {"role": "tool", "content": "rain"},
        {"role": "user", "content": "and?"},
    ]
    chat(client, messages=messages, tools=[])
    _, assistant, now, _, rain, _ = form.asked[0].messages
    first, second = assistant["tool_calls"]
    assert first["function"] == {"name": "get", "arguments": '{"city": "Köln"}'}
    assert second["function"] == {"name": "now", "arguments": "{}"}
    assert assistant["reasoning_content"] == "hm"
    assert (now["tool_call_id"], now["name"]) == (second["id"], "now")
    assert rain["tool_call_id"] == first["id"] != second["id"]


def test_options_reach_the_engine() -> None:
    client, _ = marked("one two")
    options = {
        "temperature": 0, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "typical_p": 0.9, "repeat_penalty": 1.1,
        "repeat_last_n": -1, "presence_penalty": 0.5, "frequency_penalty": 0.25, "seed": 7, "num_predict": 5,
        "stop": ["X", ""], "num_ctx": 1024, "num_thread": 2, "num_gpu": -1, "use_mmap": True, "num_keep": 4,
    }  # fmt: skip
    reply = chat(client, options=options)
    assert reply["message"]["content"] == "one t"
    assert reply["done_reason"] == "length"
    assert "warnings" not in reply
    sampling = asked(client).sampling
    for name in ("temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "repeat_last_n", "seed"):
        assert getattr(sampling, name) == options[name]
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.5, 0.25)
    assert (asked(client).max_tokens, asked(client).stops) == (5, ("X",))


@pytest.mark.parametrize("num_predict", [-1, -2, 0, None])
def test_an_answer_without_a_limit(num_predict: int | None) -> None:
    client, _ = marked("one two")
    assert chat(client, options={"num_predict": num_predict})["message"]["content"] == "one two"
    assert asked(client).max_tokens is None


def test_a_stop_string_may_come_without_a_list() -> None:
    client, _ = marked("one two")
    assert chat(client, options={"stop": " t"})["message"]["content"] == "one"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"options": {"mirostat": 2}}, "mirostat"),
        ({"options": {"tfs_z": 0.5}}, "tfs_z"),
        ({"options": {"num_ctx": 100_000}}, "1024 tokens"),
        ({"options": {"num_magic": 3}}, "num_magic"),
        ({"think": True}, "thoughts"),
        ({"magic": 1}, "magic"),
    ],
)
def test_what_is_not_done_is_told(fields: dict[str, Any], words: str) -> None:
    client, _ = marked("x")
    [told] = chat(client, **fields)["warnings"]
    assert words in told
    assert lines(client, CHAT, {"model": "fake", "messages": HELLO, **fields})[-1]["warnings"] == [told]


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "images"),
        (CHAT, {"messages": [{"role": "king", "content": "x"}]}, "role"),
        (CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}, "surrogate"),
        (CHAT, {"messages": [*HELLO, *HELLO]}, "roles must alternate"),
        (CHAT, {"messages": HELLO * 5000}, "at most"),
        (CHAT, {"messages": HELLO, "options": {"num_predict": -3}}, "num_predict"),
        (CHAT, {"messages": HELLO, "options": {"num_ctx": -1}}, "num_ctx"),
        (CHAT, {"messages": HELLO, "options": {"num_keep": -2}}, "num_keep"),
        (CHAT, {"messages": HELLO, "options": {"temperature": "hot"}}, "temperature"),
        (CHAT, {"messages": HELLO, "options": {"stop": ["x"] * 100}}, "stop"),
        (CHAT, {"messages": HELLO, "format": "xml"}, "format"),
        (CHAT, {"messages": HELLO, "keep_alive": "soon"}, "keep_alive"),
        (CHAT, {"messages": HELLO, "top_logprobs": 21}, "top_logprobs"),
        (CHAT, {"messages": HELLO, "think": "hard"}, "think"),
        (CHAT, {"messages": HELLO, "speculation": {"method": "magic"}}, "speculation"),
        (GENERATE, {"prompt": "x", "images": ["aGk="]}, "images"),
        (GENERATE, {"prompt": "x", "template": "{{ .Prompt }}"}, "template"),
        (GENERATE, {"prompt": "x", "raw": True, "system": "y"}, "raw"),
        (GENERATE, {"prompt": "x", "context": [99999]}, "99999"),
        (GENERATE, {"prompt": "x", "context": [-1]}, "context"),
        (GENERATE, {"prompt": "x" * 2000}, "context"),
        (GENERATE, {"model": ""}, "model"),
    ],
)
def test_refusals(path: str, fields: dict[str, Any], words: str) -> None:
    assert words in refusal(marked("x")[0], path, **fields)


def test_a_busy_server_says_when_to_come_back() -> None:
    client, _ = marked("x")
    client.engine.full = True
    response = client.post(CHAT, {"model": "fake", "messages": HELLO})
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")
    assert "full" in response.json()["error"]


def test_an_error_in_the_middle_is_the_last_line() -> None:
    client, _ = marked(lambda prompt: ["some ", EngineError("the engine broke")])
    got = lines(client, CHAT, {"model": "fake", "messages": HELLO})
    assert "".join(line["message"]["content"] for line in got[:-1]) == "some "
    assert got[-1] == {"error": "the engine broke"}
    assert refusal(client, CHAT, 500, messages=HELLO, stream=False) == "the engine broke"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("after", [0, 1])
def test_a_client_that_goes_frees_the_slot(stream: bool, after: int) -> None:
    client, _ = marked("word " * 1000, pause=0.001, n_ctx=100_000)
    leave(client, CHAT, {"model": "fake", "messages": HELLO, "stream": stream}, after if stream else 0)
    assert not client.engine.busy
    assert all(generation.cancelled for generation in client.engine.generations)


def test_a_prompt_is_what_a_user_says() -> None:
    client, form = marked("«hm»hi")
    reply = generate(client, system="be brief")
    assert (reply["response"], reply["thinking"]) == ("hi", "hm")
    assert [dict(message) for message in form.asked[0].messages] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
    ]
    assert generate(client, think=False) and not form.asked[-1].enable_thinking
    assert generate(client, think="high") and form.asked[-1].template_values == {"reasoning_effort": "high"}


def test_a_raw_prompt_is_the_prompt() -> None:
    client, form = marked("«x»")
    reply = generate(client, raw=True)
    assert (reply["response"], "context" in reply) == ("«x»", False)
    assert bytes(asked(client).prompt) == b"hello"
    assert not form.asked
    assert generate(client, raw=True, format="json") and asked(client).sampling.json_schema == {"type": "object"}


def test_the_context_of_an_answer_goes_before_the_next_prompt() -> None:
    client, _ = marked("hi")
    first = generate(client)
    assert bytes(first["context"]) == b"user: hello\n>hi"
    generate(client, prompt="more", context=first["context"])
    assert bytes(asked(client).prompt) == b"user: hello\n>hiuser: more\n>"


def test_text_is_written_between_two_texts() -> None:
    client, _ = marked("mid")
    reply = generate(client, prompt="before", suffix="after")
    assert reply["response"] == "mid"
    assert bytes(asked(client).prompt) == b"\x01before\x02after\x03"
    client.engine.fim_tokens = None
    assert "does not support insert" in refusal(client, GENERATE, prompt="before", suffix="after")


@pytest.mark.parametrize(
    ("format", "schema"), [("json", {"type": "object"}), ({"type": "array"}, {"type": "array"}), ("", None)]
)
def test_formats_of_the_answer(format: Any, schema: Any) -> None:
    client, form = marked("x")
    chat(client, format=format)
    assert form.asked[0].json_schema == schema


def test_log_probabilities() -> None:
    client, _ = marked("ab")
    reply = chat(client, logprobs=True, top_logprobs=2)
    a, b = reply["logprobs"]
    assert (a["token"], a["bytes"], a["logprob"]) == ("a", [97], -0.25)
    assert [each["token"] for each in b["top_logprobs"]] == ["b", "c"]
    got = lines(client, CHAT, {"model": "fake", "messages": HELLO, "logprobs": True})
    assert [each["token"] for line in got for each in line.get("logprobs", [])] == ["a", "b"]
    assert "top_logprobs" not in got[0]["logprobs"][0]


def test_speculation_is_as_the_request_wants_it() -> None:
    client, _ = marked("x")
    assert chat(client, speculation={"method": "off"})["speculation"]["method"] == "off"
    # ollama's own libraries have no other place for it
    reply = chat(client, options={"speculation": {"method": "lookup"}})
    assert reply["speculation"] | {"method": "lookup", "requested": "lookup"} == reply["speculation"]


@pytest.mark.parametrize(
    ("path", "empty"), [(CHAT, {"messages": []}), (CHAT, {}), (GENERATE, {}), (GENERATE, {"prompt": ""})]
)
def test_nothing_to_write_loads_or_unloads_a_model(path: str, empty: dict[str, Any]) -> None:
    client = Client(FakeEngine("fake"), FakeEngine("other"))
    client.host.unloaded.add("other")
    loaded = client.post(path, {"model": "other", "keep_alive": "10m", **empty}).json()
    assert (loaded["done"], loaded["done_reason"]) == (True, "load")
    assert ("other" in client.host.unloaded, client.host.keeps) == (False, {"other": 600.0})
    unloaded = client.post(path, {"model": "other:latest", "keep_alive": 0, **empty}).json()
    assert (unloaded["done_reason"], client.host.unloaded) == ("unload", {"other"})
    assert client.post(path, {"model": "none", "keep_alive": 0, **empty}).status_code == 404


@pytest.mark.parametrize(
    ("keep_alive", "seconds"), [("5m", 300.0), (-1, None), ("-1", None), (0, 0.0), ("1h30m", 5400.0)]
)
def test_how_long_a_model_is_kept(keep_alive: Any, seconds: float | None) -> None:
    client, _ = marked("x")
    chat(client, keep_alive=keep_alive)
    assert client.host.keeps == {"fake": seconds}


def test_durations() -> None:
    assert durations.parse("1m0.5s") == 60.5
    assert durations.parse("250ms") == 0.25
    assert durations.parse("-1m") is None
    assert durations.parse("99999999h") is None
    for text in ("", "m", "5", "5x", "1h 2m", "nan", "--1s"):
        if text == "5":
            assert durations.parse(text) == 5
            continue
        with pytest.raises(ValueError, match="duration"):
            durations.parse(text)


def test_lists_of_models() -> None:
    client = Client(FakeEngine("fake"), FakeEngine("other"))
    client.host.unloaded.add("other")
    tags = client.get("/api/tags").json()
    strict(schemas.TagsResponse, tags)
    assert [model["name"] for model in tags["models"]] == ["fake:latest", "other:latest"]
    assert tags["models"][0]["details"]["family"] == "llama"
    assert tags["models"][0]["details"]["quantization_level"] == "Q8_0"
    assert len({model["digest"] for model in tags["models"]}) == 2
    running = client.get("/api/ps").json()
    strict(schemas.PsResponse, running)
    [model] = running["models"]
    assert (model["name"], model["context_length"], model["size_vram"]) == ("fake:latest", 1024, 0)
    assert client.get("/api/version").json()["version"].count(".") == 2
    assert client("HEAD", "/").status_code == 200


@pytest.mark.parametrize("body", [{"model": "fake"}, {"name": "fake:latest", "verbose": True}])
def test_what_there_is_to_know_of_a_model(body: dict[str, Any]) -> None:
    client, _ = marked("x")
    shown = client.post("/api/show", body).json()
    strict(schemas.ShowResponse, shown)
    # what a request can have here, which is less than the model was trained for
    assert shown["model_info"]["llama.context_length"] == 1024
    assert shown["capabilities"] == ["completion", "insert"]
    assert ".Suffix" in shown["template"]
    assert shown["parameters"] == "num_ctx 1024"
    client.engine.fim_tokens = None
    shown = client.post("/api/show", body).json()
    assert (shown["capabilities"], shown["template"]) == (["completion"], "{{ messages }}")


def test_asking_about_a_model_does_not_load_it() -> None:
    client = Client(FakeEngine("fake"), FakeEngine("other"))
    client.host.unloaded.add("other")
    assert client.post("/api/show", {"model": "other"}).status_code == 200
    assert client.host.unloaded == {"other"}
    assert "not found" in client.post("/api/show", {"model": "none"}).json()["error"]


def test_embeddings() -> None:
    client = Client()
    reply = client.post("/api/embed", {"model": "fake", "input": ["a", "b"]}).json()
    strict(schemas.EmbedResponse, reply)
    assert (len(reply["embeddings"]), reply["prompt_eval_count"]) == (2, 2)
    one = client.post("/api/embed", {"model": "fake", "input": "a", "keep_alive": "5m"}).json()
    assert one["embeddings"] == reply["embeddings"][:1]
    short = client.post("/api/embed", {"model": "fake", "input": "a", "dimensions": 1}).json()["embeddings"][0]
    assert len(short) == 1 and abs(short[0]) == pytest.approx(1)
    old = client.post("/api/embeddings", {"model": "fake", "prompt": "a"}).json()
    assert old == {"embedding": one["embeddings"][0]}
    assert client.post("/api/embed", {"model": "fake", "input": []}).json()["embeddings"] == []


def test_texts_to_embed_are_cut_only_in_the_open() -> None:
    client = Client()
    long = {"model": "fake", "input": ["a" * 2000, "b"]}
    assert "1 of 2 texts were cut" in client.post("/api/embed", long).json()["warnings"][0]
    assert "2000 tokens" in refusal(client, "/api/embed", truncate=False, input=long["input"])
    assert "dimensions" in refusal(client, "/api/embed", input="a", dimensions=100)


def test_a_download_tells_how_far_it_is() -> None:
    client = Client()
    got = lines(client, "/api/pull", {"model": "fake:latest"})
    for line in got:
        strict(schemas.PullProgress, line)
    assert got[0]["status"] == "pulling manifest"
    assert (got[-2]["completed"], got[-2]["total"]) == (100, 100)
    assert got[-1] == {"status": "success"}
    assert client.post("/api/pull", {"name": "fake", "stream": False}).json() == {"status": "success"}
    assert "no model" in refusal(client, "/api/pull", 404, model="none")
    assert "no model" in refusal(client, "/api/pull", 404, model="none", stream=False)


class BreakingHost(FakeHost):
    async def pull(self, name: str, progress: Any) -> None:
        progress("downloading", 1, 2)
        await asyncio.sleep(0.05)
        raise DownloadError("the connection broke")


def test_a_download_that_breaks_says_so() -> None:
    got = lines(Client(host=BreakingHost()), "/api/pull", {"model": "fake"})
    assert got[-1] == {"error": "the connection broke"}


@pytest.mark.parametrize("content_type", [None, "application/x-www-form-urlencoded", "text/plain"])
@pytest.mark.parametrize("path", [CHAT, "/api/show", "/tokenize"])
def test_a_body_is_json_whatever_its_type(content_type: str | None, path: str) -> None:
    client, _ = marked("x")
    body = json.dumps({"model": "fake", "messages": HELLO, "content": "x"}).encode()
    headers = {"content-type": content_type} if content_type else {}
    assert client("POST", path, content=body, headers=headers).status_code == 200
    assert client("POST", path, content=b"{", headers=headers).status_code == 400
    foreign = {**headers, "origin": "https://evil.example"}
    assert client("POST", path, content=body, headers=foreign).status_code == 403
