"""`localspec.Llama` beside llama_cpp's own class, on SmolLM2: the same texts from the same arguments.

Both use the patched library, one thread and flash attention, where results do not depend on what is decoded at once.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import localspec
from tests.with_model import calibrated_home

pytestmark = [pytest.mark.model, pytest.mark.patched]

OPTIONS: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "verbose": False, "flash_attn": True}
PROMPTS = ["The capital of France is", "def fibonacci(n):", "1, 2, 3, 4, 5,", "Dear Sir or Madam,\n"]
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 24}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with calibrated_home(tmp_path_factory.mktemp("home")) as found:
        yield str(found)


@pytest.fixture(scope="module")
def theirs(path: str) -> Iterator[Any]:
    import llama_cpp

    made = llama_cpp.Llama(path, n_threads_batch=1, logits_all=True, **OPTIONS)
    yield made
    made.close()


@pytest.fixture(scope="module")
def ours(path: str) -> Iterator[localspec.Llama]:
    with localspec.Llama(path, n_parallel=2, **OPTIONS) as made:
        yield made


def text_of(completion: Any) -> str:
    return str(completion["choices"][0]["text"])


def test_greedy_texts_are_those_of_llama_cpp(ours: localspec.Llama, theirs: Any) -> None:
    accepted = 0
    for prompt in PROMPTS:
        made, expected = ours(prompt, **GREEDY), theirs(prompt, **GREEDY)
        assert made["choices"][0] == expected["choices"][0]
        for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
            assert made["usage"][count] == expected["usage"][count]
        accepted += made["speculation"]["accepted"]
        streamed = "".join(map(text_of, ours(prompt, stream=True, **GREEDY)))
        assert streamed == text_of(expected)
    assert accepted  # so that it was speculation which wrote them


def test_drawn_texts_are_those_of_llama_cpp(path: str) -> None:
    """With a seed of the call, and with those that follow from that of the model."""
    import llama_cpp

    with localspec.Llama(path, seed=5, **OPTIONS) as ours:
        theirs = llama_cpp.Llama(path, seed=5, n_threads_batch=1, **OPTIONS)
        for arguments in ({}, {}, {"seed": 7}, {}, {"temperature": 1.2, "top_k": 0, "top_p": 1.0, "min_p": 0.0}):
            made, expected = (text_of(each(PROMPTS[0], **arguments)) for each in (ours, theirs))
            assert made == expected, arguments
        theirs.close()


def test_penalties_are_those_of_llama_cpp(ours: localspec.Llama, theirs: Any) -> None:
    """They see the answer alone."""
    arguments = {**GREEDY, "repeat_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": 0.1}
    for prompt in PROMPTS[1:3]:
        assert text_of(ours(prompt, **arguments)) == text_of(theirs(prompt, **arguments))


def test_tokens_and_facts_are_those_of_llama_cpp(ours: localspec.Llama, theirs: Any) -> None:
    text = "héllo <|im_end|> 😀\n".encode()
    for add_bos in (True, False):
        for special in (True, False):
            tokens = ours.tokenize(text, add_bos, special)
            assert tokens == theirs.tokenize(text, add_bos, special)
            assert ours.detokenize(tokens, special=special) == theirs.detokenize(tokens, special=special)
    for fact in ("n_ctx", "n_vocab", "n_embd", "token_bos", "token_eos", "token_nl"):
        assert getattr(ours, fact)() == getattr(theirs, fact)(), fact
    assert ours.metadata == theirs.metadata


def test_chat_is_that_of_llama_cpp(ours: localspec.Llama, theirs: Any) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name three colours."}]
    made, expected = (each.create_chat_completion(messages, **GREEDY) for each in (ours, theirs))
    assert made["choices"] == expected["choices"]
    assert made["usage"]["prompt_tokens"] == expected["usage"]["prompt_tokens"]


def test_log_probabilities_are_those_of_llama_cpp(ours: localspec.Llama, theirs: Any) -> None:
    made, expected = (
        each(PROMPTS[0], logprobs=2, **{**GREEDY, "max_tokens": 6})["choices"][0]["logprobs"] for each in (ours, theirs)
    )
    assert made["tokens"] == expected["tokens"] and made["text_offset"] == expected["text_offset"]
    assert made["token_logprobs"] == pytest.approx(expected["token_logprobs"], abs=1e-3)
    for ones, others in zip(made["top_logprobs"], expected["top_logprobs"], strict=True):
        assert ones == pytest.approx(others, abs=1e-3)


def test_generate_gives_the_tokens_of_llama_cpp(ours: localspec.Llama, theirs: Any) -> None:
    prompt = ours.tokenize(PROMPTS[2].encode())
    made, expected = (each.generate(prompt, temp=0.0) for each in (ours, theirs))
    assert [next(made) for _ in range(12)] == [next(expected) for _ in range(12)]


def test_a_grammar_is_kept_to(ours: localspec.Llama) -> None:
    grammar = localspec.LlamaGrammar.from_string('root ::= "yes" | "no"')
    assert text_of(ours("Is the sky blue? ", grammar=grammar)) in ("yes", "no")
    with pytest.raises(ValueError, match="grammar"):
        ours("x", grammar="root ::= (")


def test_threads_get_what_they_would_get_alone(ours: localspec.Llama) -> None:
    requests = [{"prompt": f"{prompt} {i}", "seed": i, "max_tokens": 6} for i in range(4) for prompt in PROMPTS]
    alone = [text_of(ours(**request)) for request in requests]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda request: text_of(ours(**request)), requests))
    assert together == alone


def test_two_streams_of_one_thread(path: str) -> None:
    """One slot: the second answer is written when the first is, whoever reads first."""
    with localspec.Llama(path, **OPTIONS) as ours:
        first, second = (ours(prompt, stream=True, **GREEDY) for prompt in PROMPTS[:2])
        next(first)
        rest = list(second)
        assert rest[-1]["choices"][0]["finish_reason"] == list(first)[-1]["choices"][0]["finish_reason"] == "length"


def test_embeddings(ours: localspec.Llama) -> None:
    one, other = ours.embed(["a cat", "the weather"], normalize=True)
    assert len(one) == ours.n_embd() and one != other
    assert ours.embed("a cat", normalize=True) == pytest.approx(one, abs=1e-4)


def test_a_pickle_is_the_same_model_again(ours: localspec.Llama) -> None:
    with pickle.loads(pickle.dumps(ours)) as again:
        assert text_of(again(PROMPTS[0], **GREEDY)) == text_of(ours(PROMPTS[0], **GREEDY))


def test_a_program_may_end_while_an_answer_is_written(path: str) -> None:
    code = (
        "import sys, localspec\n"
        "model = localspec.Llama(sys.argv[1], n_threads=1)\n"
        "stream = sys.stream = model('Once upon a time', stream=True, max_tokens=400)\n"
        "next(stream)\n"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True, timeout=120)


def test_the_end_of_the_context(path: str) -> None:
    with localspec.Llama(path, **{**OPTIONS, "n_ctx": 256}) as ours:
        prompt = "one two three four five six seven eight nine ten " * 20
        made = ours(prompt, temperature=0.0, max_tokens=None)
        assert made["usage"]["total_tokens"] <= 256 and made["choices"][0]["finish_reason"] == "length"
        with pytest.raises(ValueError, match="context of 256"):
            ours(prompt * 2)
