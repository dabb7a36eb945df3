"""Completions of `localspec.Llama`: shapes, defaults and errors are those of llama_cpp."""

from __future__ import annotations

import gc
import inspect
from typing import Any

import numpy as np
import pytest

from localspec import LlamaGrammar, StoppingCriteriaList
from localspec.errors import ContextLengthError, EngineError, UsageError
from tests.dropin.made import llama, text_of
from tests.server.fake import FakeEngine


def only_request(model: Any) -> Any:
    (request,) = model._engine.requests
    return request


def test_a_completion_has_the_shape_of_llama_cpp_and_tells_more() -> None:
    made = llama()("hello", max_tokens=3)
    assert made["object"] == "text_completion" and made["id"].startswith("cmpl-") and made["model"] == "fake.gguf"
    assert made["choices"] == [{"text": "hel", "index": 0, "logprobs": None, "finish_reason": "length"}]
    usage = made["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (5, 3, 8)
    assert usage["completion_tokens_details"] == {"accepted_prediction_tokens": 1, "rejected_prediction_tokens": 2}
    assert made["timings"]["predicted_n"] == 3
    assert made["speculation"]["method"] == "ptd" and made["speculation"]["lossless"]


def test_a_stream_is_the_whole_text_and_ends_with_the_reason() -> None:
    chunks = list(llama(lambda _: "naïve 😀 text")("hello", max_tokens=None, stream=True))
    assert text_of(chunks) == "naïve 😀 text"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["total_tokens"] and chunks[-1]["speculation"]
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_the_defaults_are_those_of_llama_cpp() -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    model = llama()
    model("hello")
    sampling = only_request(model).sampling
    assert (sampling.temperature, sampling.top_p, sampling.min_p, sampling.top_k) == (0.8, 0.95, 0.05, 40)
    for name in ("create_completion", "__call__", "create_chat_completion", "generate"):
        theirs = inspect.signature(getattr(_original(llama_cpp), name)).parameters
        ours = inspect.signature(getattr(type(model), name)).parameters
        order = [each for each in ours if each in theirs]
        assert order == list(theirs), name
        for each in list(theirs)[1:]:
            if each not in ("messages", "prompt", "tokens"):
                # an empty list of stop strings is none
                assert (ours[each].default or None) == (theirs[each].default or None), (name, each)


def test_all_options_of_llama_cpp_are_known() -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    from localspec.dropin.options import LlamaOptions

    ours = inspect.signature(LlamaOptions).parameters
    for name, parameter in inspect.signature(_original(llama_cpp).__init__).parameters.items():
        if name not in ("self", "model_path", "kwargs"):
            same = ours[name].default == parameter.default
            assert same or name == "flash_attn", (name, ours[name].default, parameter.default)


def _original(llama_cpp: Any) -> Any:
    return llama_cpp.llama.Llama


def test_arguments_by_place_and_unknown_ones() -> None:
    made = llama().create_completion("hello", None, 2)
    assert made["choices"][0]["text"] == "he"
    with pytest.raises(TypeError, match="nonsense"):
        llama()("hello", nonsense=1)


def test_stop_strings_and_tokens_as_prompt() -> None:
    made = llama(lambda _: "one two three")([104, 105], stop="tw")
    assert made["choices"][0] == {"text": "one ", "index": 0, "logprobs": None, "finish_reason": "stop"}
    assert llama(lambda _: "one two")("x", stop=["", "one"])["choices"][0]["text"] == ""


@pytest.mark.parametrize("max_tokens", [None, 0, -1])
def test_no_limit_is_the_end_of_the_context(max_tokens: int | None) -> None:
    model = llama(lambda _: "x" * 100)
    assert len(model("hello", max_tokens=max_tokens)["choices"][0]["text"]) == 100
    assert only_request(model).max_tokens is None


def test_echo_tells_the_prompt_first() -> None:
    assert llama(lambda _: "!")("hello", echo=True)["choices"][0]["text"] == "hello!"
    assert llama(lambda _: "!")([104, 105], echo=True)["choices"][0]["text"] == "hi!"
    assert text_of(list(llama(lambda _: "!")("hello", echo=True, stream=True))) == "hello!"


def test_logprobs_of_completions() -> None:
    made = llama(lambda _: "ab")("hello", logprobs=2)["choices"][0]["logprobs"]
    assert made["tokens"] == ["a", "b"] and made["text_offset"] == [5, 6]
    assert made["token_logprobs"] == [-0.25, -0.25]
    assert made["top_logprobs"][0] == {"a": -0.25, "b": -2.0}
    chunks = list(llama(lambda _: "ab")("hello", logprobs=0, stream=True))
    told = [chunk["choices"][0]["logprobs"] for chunk in chunks[:-1]]
    assert [each["text_offset"] for each in told] == [[5], [6]]
    assert told[0]["top_logprobs"] == [{"a": -0.25}]


def test_a_suffix_is_written_up_to() -> None:
    model = llama()
    model("before", suffix="after")
    fim = model._engine.fim_tokens
    assert only_request(model).prompt == [fim.prefix, *b"before", fim.suffix, *b"after", fim.middle]
    model._engine.fim_tokens = None
    with pytest.raises(ValueError, match="insert"):
        model("before", suffix="after")


def test_sampling_arguments_reach_the_engine() -> None:
    model = llama(last_n_tokens_size=7)
    model(
        "hello", temperature=0.0, top_k=-1, seed=5, logit_bias={"104": -3}, repeat_penalty=1.2,
        grammar=LlamaGrammar.from_string('root ::= "a"'),
    )  # fmt: skip
    sampling = only_request(model).sampling
    assert sampling.temperature == 0.0 and sampling.top_k == 0 and sampling.seed == 5
    assert sampling.logit_bias == {104: -3.0} and sampling.repeat_penalty == 1.2 and sampling.repeat_last_n == 7
    assert sampling.grammar == 'root ::= "a"'


def test_a_negative_temperature_draws_from_everything() -> None:
    model = llama()
    model("hello", temperature=-1.0)
    sampling = only_request(model).sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (1.0, 0, 1.0, 0.0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"logits_processor": [lambda ids, logits: logits]},
        {"mirostat_mode": 2},
        {"logprobs": 21},
        {"logprobs": 1, "echo": True},
        {"grammar": 3},
        {"logit_bias": {"a": 1}},
        {"temperature": 1e9},
        {"speculation": "magic"},
        {"speculation": "entmtp"},
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as caught:
        llama()("hello", **arguments)
    assert isinstance(caught.value, UsageError)


def test_tail_free_sampling_is_gone_and_that_is_told() -> None:
    with pytest.warns(UserWarning, match="tfs_z") as caught:
        llama()("hello", tfs_z=0.5)
    assert caught[0].filename == __file__


def test_a_prompt_that_is_too_long_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="context") as caught:
        llama(engine=FakeEngine(n_ctx=8))("longer than eight")
    assert isinstance(caught.value, ContextLengthError)


def test_an_empty_prompt() -> None:
    with pytest.raises(ValueError, match="empty"):
        llama()("")


def test_speculation_is_chosen_by_call_and_by_model() -> None:
    model = llama(speculation="lookup")
    assert model("hello")["speculation"]["requested"] == "lookup"
    made = model("hello", speculation="off")
    assert [request.method for request in model._engine.requests] == ["lookup", "plain"]
    assert made["speculation"]["method"] == "off" and made["speculation"]["reason"]


def test_stopping_criteria_see_the_tokens_and_end_before_the_one_they_stop_at() -> None:
    seen = []

    def at_space(ids: Any, logits: Any) -> bool:
        assert isinstance(ids, np.ndarray) and len(logits) == 0
        seen.append(list(ids))
        return ids[-1] == ord(" ")

    model = llama(lambda _: "one two")
    made = model("hi", stopping_criteria=StoppingCriteriaList([at_space]))
    assert made["choices"][0]["text"] == "one" and made["choices"][0]["finish_reason"] == "stop"
    assert seen[-1] == list(b"hione ")
    assert text_of(list(model("hi", stopping_criteria=at_space, stream=True))) == "one"
    assert not model._engine.busy


def test_a_stream_that_is_dropped_ends_the_generation() -> None:
    model = llama(lambda _: "x" * 500)
    stream = model("hello", max_tokens=None, stream=True)
    next(stream)
    assert model._engine.busy
    del stream
    gc.collect()
    assert model._engine.generations[0].cancelled and not model._engine.busy


def test_an_answer_that_somebody_else_cancels_is_an_error() -> None:
    model = llama(lambda _: "x" * 500)
    stream = model("hello", max_tokens=None, stream=True)
    next(stream)
    model._engine.generations[0].cancel()
    with pytest.raises(EngineError, match="cancelled"):
        list(stream)


def test_a_full_queue_is_waited_for() -> None:
    import threading

    model = llama(lambda _: "yes")
    model._engine.full = True
    threading.Timer(0.1, setattr, [model._engine, "full", False]).start()
    assert model("hello")["choices"][0]["text"] == "yes"


def test_generate_yields_tokens() -> None:
    model = llama(lambda _: "abc")
    assert list(model.generate([104], temp=0.0)) == [97, 98, 99]
    assert only_request(model).sampling.temperature == 0.0 and only_request(model).max_tokens is None


def test_seeds_follow_from_that_of_the_model() -> None:
    def seeds(**options: Any) -> list[int | None]:
        model = llama(**options)
        for _ in range(2):
            model("hello")
        model("hello", seed=9)
        model("hello", seed=-1)
        return [request.sampling.seed for request in model._engine.requests]

    assert seeds(seed=1) == seeds(seed=1)
    assert len(set(seeds(seed=1))) == 4
    assert seeds(seed=1)[2:] == [9, -1]
    assert seeds(seed=1) != seeds(seed=2)
    assert seeds(seed=-1)[:2] == [-1, -1]
    model = llama()
    model.set_seed(9)
    model("hello")
    assert only_request(model).sampling.seed == seeds(seed=9)[0]
