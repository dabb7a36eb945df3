"""llama.cpp's own API, as its clients meet it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from localspec.errors import EngineError
from localspec.server.llamacpp import schemas
from tests.server.client import Client
from tests.server.fake import FIM, FakeEngine
from tests.server.leaving import leave

PATH = "/completion"


def writing(text: str = "some text", **options: Any) -> Client:
    return Client(FakeEngine(script=lambda prompt: text, **options))


def complete(client: Client, path: str = PATH, **fields: Any) -> dict[str, Any]:
    """A whole answer."""
    response = client.post(path, {"prompt": "hello", **fields})
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    if "response_fields" not in fields:
        known(schemas.Completion, reply)
    return reply


def known(model: Any, reply: dict[str, Any]) -> None:
    assert set(reply) <= set(model.model_fields)
    model.model_validate(reply)


def refusal(client: Client, path: str = PATH, status: int = 400, **fields: Any) -> dict[str, Any]:
    body = fields if path != PATH else {"prompt": "hello", **fields}
    response = client.post(path, body)
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def asked(client: Client) -> Any:
    return client.engine.requests[-1]


def test_a_reply_has_all_that_clients_read() -> None:
    reply = complete(writing("one\ntwo"), n_predict=-1, cache_prompt=True, id_slot=-1, seed=5, return_tokens=True)
    assert (reply["content"], reply["stop"], reply["index"], reply["model"]) == ("one\ntwo", True, 0, "fake")
    assert (reply["prompt"], reply["tokens_evaluated"]) == ("hello", 5)
    assert (reply["tokens_predicted"], bytes(reply["tokens"])) == (7, b"one\ntwo")
    assert (reply["stop_type"], reply["stopping_word"], reply["truncated"]) == ("eos", "", False)
    assert (reply["has_new_line"], reply["id_slot"]) == (True, 0)
    assert reply["tokens_cached"] == 5 + 7 - 1
    assert reply["timings"]["predicted_n"] == 7
    assert reply["generation_settings"]["seed"] == 5
    assert "completion_probabilities" not in reply and "warnings" not in reply


def test_a_stream_ends_with_an_event_that_says_so() -> None:
    client = writing("ein Ü und 👩‍👩‍👧")
    events = client.events(PATH, {"prompt": "hello", "stream": True})
    for event in events:
        known(schemas.Completion, event)
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert "".join(event["content"] for event in events) == "ein Ü und 👩‍👩‍👧"
    tokens = [token for event in events for token in event["tokens"]]
    assert bytes(tokens).decode() == "ein Ü und 👩‍👩‍👧"
    assert events[-2]["tokens_predicted"] == events[-1]["tokens_predicted"] == len(tokens)
    assert events[-1]["content"] == ""
    assert events[-1]["timings"]["predicted_n"] == len(tokens)


def test_why_an_answer_ended() -> None:
    client = writing("some text STOP more")
    word = complete(client, stop=["STOP", ""])
    assert (word["stop_type"], word["stopping_word"], word["content"]) == ("word", "STOP", "some text ")
    limit = complete(client, n_predict=4)
    assert (limit["stop_type"], limit["stopping_word"], limit["content"]) == ("limit", "", "some")
    nothing = complete(client, n_predict=0)
    assert (nothing["stop_type"], nothing["content"], nothing["tokens_predicted"]) == ("limit", "", 0)


@pytest.mark.parametrize("field", ["n_predict", "max_tokens", "max_completion_tokens"])
def test_limits_of_an_answer(field: str) -> None:
    assert complete(writing(), **{field: 3})["content"] == "som"
    assert complete(writing(), **{field: -1})["content"] == "some text"


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("a", ["a"]),
        ([97, 98], ["ab"]),
        (["a", 98, "c"], ["abc"]),
        ([98, "c"], ["bc"]),
        (["a", "b"], ["a", "b"]),
        ([[97], "b", ["c", 100], {"prompt_string": "e"}], ["a", "b", "cd", "e"]),
        ({"prompt_string": "a"}, ["a"]),
        (["a"], ["a"]),
    ],
)
def test_prompts(prompt: Any, texts: list[str]) -> None:
    client = writing()
    response = client.post(PATH, {"prompt": prompt})
    assert response.status_code == 200, response.text
    assert [bytes(request.prompt).decode() for request in client.engine.requests] == texts
    replies = response.json() if len(texts) > 1 else [response.json()]
    assert [(reply["index"], reply["prompt"]) for reply in replies] == list(enumerate(texts))


def test_several_answers_to_one_prompt() -> None:
    client = writing()
    replies = client.post(PATH, {"prompt": "x", "n_cmpl": 2, "seed": 1}).json()
    assert [reply["index"] for reply in replies] == [0, 1]
    assert [request.sampling.seed for request in client.engine.requests] == [1, 2]
    events = client.events(PATH, {"prompt": "x", "n": 2, "stream": True})
    assert sorted(event["index"] for event in events if event["stop"]) == [0, 1]


def test_options_reach_the_engine() -> None:
    client = writing()
    options = {
        "temperature": 0.5, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "typical_p": 0.9, "repeat_penalty": 1.1,
        "repeat_last_n": -1, "presence_penalty": 0.5, "frequency_penalty": 0.25, "grammar": 'root ::= "x"',
    }  # fmt: skip
    biases = [[97, 1.5], [98, False], ["99", -2]]
    settings = complete(client, **options, logit_bias=biases, ignore_eos=True, cache_prompt=False)[
        "generation_settings"
    ]
    sampling = asked(client).sampling
    for name, value in options.items():
        assert getattr(sampling, name) == settings[name] == value
    assert sampling.logit_bias[97] == 1.5 and sampling.logit_bias[98] < -1e5 and sampling.logit_bias[99] == -2
    assert asked(client).ignore_eos and not asked(client).cache_prompt
    complete(client, json_schema={})
    assert asked(client).sampling.json_schema == {"type": "object"}
    complete(client, logit_bias={"97": 1})
    assert asked(client).sampling.logit_bias == {97: 1.0}


def test_samplers_that_are_not_listed_are_off() -> None:
    client = writing()
    reply = complete(client, samplers=["top_k", "top_p", "infill"], top_k=3, top_p=0.5, min_p=0.5, temperature=0.3)
    sampling = asked(client).sampling
    assert (sampling.top_k, sampling.top_p, sampling.min_p, sampling.temperature) == (3, 0.5, 0.0, 1.0)
    assert ["infill" in told for told in reply["warnings"]] == [True]
    assert "warnings" not in complete(client, samplers="edkypmxt", temperature=0.3)
    assert asked(client).sampling.temperature == 0.3
    assert "order" in complete(client, samplers=["temperature", "top_k"])["warnings"][0]


@pytest.mark.parametrize(
    "fields",
    [
        {"mirostat": 2}, {"dry_multiplier": 0.8}, {"xtc_probability": 0.5}, {"dynatemp_range": 0.5},
        {"top_n_sigma": 1.0}, {"n_indent": 4}, {"min_keep": 3},
        {"lora": [{"id": 0, "scale": 1.0}]}, {"return_progress": True}, {"magic": 1},
    ],
)  # fmt: skip
def test_what_is_not_done_is_told(fields: dict[str, Any]) -> None:
    [told] = complete(writing(), **fields)["warnings"]
    assert next(iter(fields)) in told


def test_what_is_off_or_changes_nothing_is_not_told() -> None:
    nothing = {
        "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "dry_multiplier": 0.0, "dry_base": 1.75,
        "dry_allowed_length": 2, "dry_penalty_last_n": -1, "xtc_probability": 0, "xtc_threshold": 0.1,
        "top_n_sigma": -1, "dynatemp_range": 0, "dynatemp_exponent": 1, "min_keep": 0, "n_keep": -1, "n_discard": 0,
        "n_cache_reuse": 256,
        "n_indent": 0, "t_max_prompt_ms": 500, "t_max_predict_ms": -1, "lora": [], "id_slot": 0, "image_data": [],
        "timings_per_token": False, "post_sampling_probs": False, "dry_sequence_breakers": ["\n"],
    }  # fmt: skip
    assert "warnings" not in complete(writing(), **nothing)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n_discard": -1}, "n_discard"),
        ({"dry_allowed_length": -1}, "dry_allowed_length"),
        ({"dry_penalty_last_n": -2}, "dry_penalty_last_n"),
        ({"n_keep": -2}, "n_keep"),
        ({"n_predict": -2}, "n_predict"),
        ({"n_predict": 2**40}, "n_predict"),
        ({"n_cmpl": -1}, "n_cmpl"),
        ({"n_cmpl": 10**6}, "n"),
        ({"id_slot": -2}, "id_slot"),
        ({"min_keep": -1}, "min_keep"),
        ({"n_indent": -1}, "n_indent"),
        ({"n_cache_reuse": -1}, "n_cache_reuse"),
        ({"t_max_predict_ms": -2}, "t_max_predict_ms"),
        ({"repeat_last_n": -2}, "repeat_last_n"),
        ({"top_k": -2}, "top_k"),
        ({"n_probs": -1}, "n_probs"),
        ({"n_probs": 100}, "n_probs"),
        ({"post_sampling_probs": True, "n_probs": 1}, "post_sampling_probs"),
        ({"temperature": -1}, "temperature"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, [2]]}, "prompt"),
        ({"prompt": [99999]}, "prompt"),
        ({"prompt": "\ud800"}, "prompt"),
        ({"prompt": ["x"] * 1000}, "prompt"),
        ({"prompt": {"prompt_string": "x", "multimodal_data": ["aGk="]}}, "prompt.multimodal_data"),
        ({"image_data": [{"data": "aGk=", "id": 1}]}, "image_data"),
        ({"logit_bias": [["text", 1.0]]}, "logit_bias"),
        ({"logit_bias": [97]}, "logit_bias"),
        ({"stop": ["x" * 1000]}, "stop"),
        ({"speculation": {"method": "magic"}}, "speculation.method"),
    ],
)
def test_what_cannot_be_is_refused_and_named(fields: dict[str, Any], param: str) -> None:
    error = refusal(writing(), **fields)
    assert (error["param"] or "").startswith(param), error


def test_a_prompt_that_is_too_long() -> None:
    error = refusal(writing(), prompt="x" * 2000)
    assert error["code"] == "context_length_exceeded"
    assert "2000" in error["message"] and "1024" in error["message"]


def test_log_probabilities() -> None:
    client = writing("ab")
    a, b = complete(client, n_probs=2)["completion_probabilities"]
    assert (a["id"], a["token"], a["bytes"], a["logprob"]) == (97, "a", [97], -0.25)
    assert [each["token"] for each in b["top_logprobs"]] == ["b", "c"]
    events = client.events(PATH, {"prompt": "x", "n_probs": 2, "stream": True})
    assert [each["id"] for event in events for each in event.get("completion_probabilities", [])] == [97, 98]


def test_only_the_fields_that_are_wanted() -> None:
    wanted = ["content", "timings/predicted_n", "generation_settings/top_k", "no/such", "tokens_cached/x"]
    reply = complete(writing(), response_fields=wanted, top_k=7)
    assert reply == {"content": "some text", "timings/predicted_n": 9, "generation_settings/top_k": 7}


def test_speculation_is_as_the_request_wants_it() -> None:
    assert complete(writing())["speculation"]["method"] == "ptd"
    reply = complete(writing(), speculation={"method": "off"})
    assert reply["speculation"]["reason"]
    assert reply["timings"]["draft_n"] == 0


def test_an_answer_ends_with_the_line_in_which_its_time_is_up() -> None:
    client = writing("a line\n" * 100, pause=0.002)
    reply = complete(client, t_max_predict_ms=50)
    assert reply["stop_type"] == "limit"
    assert 0 < reply["tokens_predicted"] < 700
    assert reply["timings"]["predicted_n"] == reply["tokens_predicted"]
    events = client.events(PATH, {"prompt": "x", "stream": True, "t_max_predict_ms": 50})
    assert events[-1]["stop_type"] == "limit"
    assert len(events) < 700


def test_an_error_in_the_middle_is_the_last_event() -> None:
    client = Client(FakeEngine(script=lambda prompt: ["some ", EngineError("the engine broke")]))
    events = client.events(PATH, {"prompt": "x", "stream": True})
    assert events[-1]["error"]["message"] == "the engine broke"
    assert "".join(event["content"] for event in events[:-1]) == "some "


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("after", [0, 1])
def test_a_client_that_goes_frees_the_slot(stream: bool, after: int) -> None:
    client = writing("word " * 1000, pause=0.001, n_ctx=100_000)
    leave(client, PATH, {"prompt": "x", "stream": stream}, after if stream else 0)
    assert not client.engine.busy
    assert all(generation.cancelled for generation in client.engine.generations)


def test_infill() -> None:
    client = writing("mid")
    body = {"input_prefix": "before", "input_suffix": "after"}
    assert complete(client, "/infill", **body, prompt="")["content"] == "mid"
    assert bytes(asked(client).prompt) == b"\x01before\x02after\x03"
    extra = [{"filename": "a.py", "text": "first"}, {"text": "second"}]
    complete(client, "/infill", **body, prompt="now", input_extra=extra)
    files = b"\x04myproject\n\x05a.py\nfirst\x05tmp\nsecond\x05filename\n"
    assert bytes(asked(client).prompt) == files + b"\x01beforenow\x02after\x03"
    complete(client, "/infill", input_prefix=["be", 102], input_suffix=[97], prompt="")
    assert bytes(asked(client).prompt) == b"\x01bef\x02a\x03"
    client.engine.fim_tokens = type(FIM)(1, 2, 3)
    complete(client, "/infill", **body, prompt="", input_extra=extra[:1])
    assert bytes(asked(client).prompt).endswith(b"snippet ---\n\nfirst\x01before\x02after\x03")


def test_extra_texts_leave_room_for_the_answer() -> None:
    client = writing("mid")
    extra = [{"filename": "a", "text": "x" * 500}, {"filename": "b", "text": "y" * 500}]
    complete(client, "/infill", input_prefix="p", input_suffix="s", input_extra=extra, n_predict=100, prompt="")
    prompt = bytes(asked(client).prompt)
    assert b"y" * 500 in prompt and b"x" not in prompt.replace(b"prefix", b"")
    complete(client, "/infill", input_prefix="p", input_suffix="s", input_extra=extra, n_predict=1000, prompt="")
    assert bytes(asked(client).prompt) == b"\x01p\x02s\x03"


def test_infill_that_cannot_be() -> None:
    client = writing()
    assert refusal(client, "/infill", input_prefix="x")["param"] == "input_suffix"
    assert refusal(client, "/infill", input_prefix="x", input_suffix="", input_extra=[{}])["param"]
    client.engine.fim_tokens = None
    assert "does not support" in refusal(client, "/infill", input_prefix="x", input_suffix="y")["message"]


def test_texts_and_tokens() -> None:
    client = writing()
    assert client.post("/tokenize", {"content": "aé"}).json() == {"tokens": [97, 195, 169]}
    pieces = client.post("/tokenize", {"content": "aé", "with_pieces": True}).json()["tokens"]
    assert pieces == [{"id": 97, "piece": "a"}, {"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}]
    assert client.post("/detokenize", {"tokens": [97, 195, 169]}).json() == {"content": "aé"}
    assert "token" in client.post("/detokenize", {"tokens": [9999]}).json()["error"]["message"]
    assert client.post("/detokenize", {"tokens": [-1]}).status_code == 400
    assert client.post("/tokenize", {}).status_code == 400


def test_the_prompt_of_a_conversation() -> None:
    messages = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
    assert writing().post("/apply-template", {"messages": messages}).json() == {"prompt": "system: be\nuser: hi\n>"}
    response = writing().post("/apply-template", {"messages": [messages[1]] * 2})
    assert (response.status_code, "alternate" in response.json()["error"]["message"]) == (400, True)


def test_slots_tell_what_watchers_read() -> None:
    client = writing()
    slots = client.get("/slots").json()
    for slot in slots:
        known(schemas.Slot, slot)
        # what llamastat makes whole numbers of
        for name in ("id", "id_task", "n_ctx", "n_prompt_tokens", "n_prompt_tokens_processed", "n_prompt_tokens_cache"):
            assert isinstance(slot[name], int)
        assert (slot["is_processing"], slot["next_token"][0]["n_remain"], slot["id_task"]) == (False, -1, -1)
    assert len(slots) == 2
    assert client.get("/slots?fail_on_no_slot=1").status_code == 200


def test_slots_at_work() -> None:
    engine = FakeEngine(n_slots=1)
    client = Client(engine)
    busy = engine.submit(asked_before(client))
    updates = iter(busy)
    next(updates)
    [slot] = client.get("/slots").json()
    assert (slot["is_processing"], slot["n_prompt_tokens"], slot["id_task"]) == (True, 5, busy.id)
    assert slot["params"]["n_predict"] == -1
    response = client.get("/slots?fail_on_no_slot=1")
    assert (response.status_code, response.json()["error"]["message"]) == (503, "no slot available")
    updates.close()  # type: ignore[attr-defined]


def test_a_prompt_counts_as_read_when_its_last_token_waits_for_the_answer() -> None:
    client = writing()
    [state, *_] = client.engine.slots()
    for n_read, told in ((3, 3), (9, 10), (10, 10)):
        client.engine.slots = lambda n=n_read: [replace(state, busy=True, n_prompt=10, n_read=n)]  # type: ignore[misc,method-assign]
        assert client.get("/slots").json()[0]["n_prompt_tokens_processed"] == told


def asked_before(client: Client) -> Any:
    complete(client)
    return asked(client)


def test_props_tell_what_watchers_read() -> None:
    client = writing()
    props = client.get("/props").json()
    known(schemas.Props, props)
    assert (props["model_alias"], props["total_slots"], props["is_sleeping"]) == ("fake", 2, False)
    assert props["default_generation_settings"]["n_ctx"] == 1024
    assert {"temperature", "top_p", "top_k", "min_p", "max_tokens"} <= props["default_generation_settings"][
        "params"
    ].keys()
    assert client.get("/props?model=none").status_code == 404


def test_watching_loads_nothing() -> None:
    client = writing()
    client.host.unloaded.add("fake")
    props = client.get("/props").json()
    assert (props["model_alias"], props["is_sleeping"]) == ("fake", True)
    assert client.get("/slots?fail_on_no_slot=1").json() == []
    assert client.get("/slots?model=none").status_code == 404
    assert client.host.unloaded == {"fake"}
    client.host.now = "loading"
    response = client.get("/props")
    assert (response.status_code, "Loading model" in response.json()["error"]["message"]) == (503, True)
