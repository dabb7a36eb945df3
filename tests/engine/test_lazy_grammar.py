"""Grammars that begin later than the answer: with a trigger, after thoughts, or with the end of the prompt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.engine import bindings
from localspec.engine.model import Model
from localspec.engine.params import ContextParams, GrammarStart, SamplingParams, Thoughts, Trigger
from localspec.engine.sampler import ChainSampler
from localspec.errors import EngineError, UsageError
from localspec.events import StepEvent
from localspec.job import Limits
from localspec.session import Session
from tests.with_model import calibrated_home

pytestmark = pytest.mark.skipif(
    bindings.library() is None, reason="llama-cpp-python is not patched: pip install ./ggml_patches"
)

CALL = 'root ::= "<call>" [a-z]+ "(" [0-9]+ ")"'
WORD = Trigger("word", "<call>")
THOUGHTS = Thoughts("<think>", ("</think>",))

MakeSampler = Callable[..., ChainSampler]


@pytest.fixture
def make(tiny: dict[str, Model]) -> Callable[..., ChainSampler]:
    """A sampler of the tiny model, whose tokens are bytes from 5 on."""

    def sampler(grammar: str = CALL, **start: Any) -> ChainSampler:
        made = ChainSampler(tiny["llama"], SamplingParams(grammar=grammar, grammar_start=GrammarStart(**start)))
        made.start([])
        return made

    return sampler


def write(sampler: ChainSampler, text: str) -> ChainSampler:
    for byte in text.encode():
        sampler.accept(5 + byte)
    return sampler


def permitted(sampler: ChainSampler) -> str:
    """The letters, digits and marks that may come next."""
    return "".join(letter for letter in "abz019<>(){ .!" if sampler.permits(5 + ord(letter)))


def test_everything_is_allowed_until_the_trigger(make: MakeSampler) -> None:
    sampler = write(make(triggers=(WORD,)), "Say <cal")
    assert permitted(sampler) == "abz019<>(){ .!"
    assert permitted(write(sampler, "l>")) == "abz"
    assert permitted(write(sampler, "add(1")) == "019)"
    with pytest.raises(EngineError, match="breaks the grammar"):
        write(sampler, "x")
    write(sampler, "2)")
    sampler.start([])
    assert permitted(sampler) == "abz019<>(){ .!"


def test_copies_of_a_waiting_grammar_go_their_own_ways(make: MakeSampler) -> None:
    sampler = write(make(triggers=(WORD,)), "<call")
    fork = write(sampler.fork(), ">")
    assert permitted(fork) == "abz"
    assert permitted(sampler) == "abz019<>(){ .!"
    sampler.adopt(write(fork, "a("))
    assert permitted(sampler) == "019"


def test_a_pattern_begins_with_its_group(make: MakeSampler) -> None:
    sampler = make(triggers=(Trigger("pattern", "call: *(<call>)"),))
    assert permitted(write(sampler, "<call>")) == "abz019<>(){ .!"
    assert permitted(write(sampler, " call:  <call>")) == "abz"


def test_marks_of_regular_expressions_in_words_are_plain_text(make: MakeSampler) -> None:
    sampler = make('root ::= "[a.b]*(" [0-9]+', triggers=(Trigger("word", "[a.b]*("),))
    assert permitted(write(sampler, "a(")) == "abz019<>(){ .!"
    assert permitted(write(sampler, "[a.b]*(")) == "019"


def test_a_token_is_a_trigger(make: MakeSampler) -> None:
    sampler = make('root ::= "!" [0-9]', triggers=(Trigger("token", "!", 5 + ord("!")),))
    assert permitted(write(sampler, "ab!")) == "019"


def test_what_the_grammar_cannot_begin_with_is_no_trigger(make: MakeSampler) -> None:
    sampler = make('root ::= "<call>" [0-9]', triggers=(Trigger("word", "call"), Trigger("token", "!", 5 + ord("!"))))
    assert permitted(write(sampler, "a call and! <call>")) == "abz019<>(){ .!"


def test_thoughts_do_not_trigger(make: MakeSampler) -> None:
    sampler = write(make(triggers=(WORD,), thoughts=THOUGHTS), "<think>I could <call>!</thi")
    assert permitted(sampler) == "abz019<>(){ .!"
    assert permitted(write(sampler, "nk>Now <call>")) == "abz"


def test_a_prompt_may_end_within_thoughts(make: MakeSampler) -> None:
    begun = Thoughts("<think>", ("</think>", "<call>"), begun=True)
    sampler = write(make(triggers=(WORD,), thoughts=begun), "thinking of <cal")
    assert permitted(sampler) == "abz019<>(){ .!"
    # a call ends the thoughts, and begins the grammar
    assert permitted(write(sampler, "l>")) == "abz"


def test_a_grammar_begins_with_the_end_of_the_prompt(make: MakeSampler) -> None:
    sampler = make('root ::= "Answer: " [0-9]+', prefill=tuple(5 + byte for byte in b"Answer: "))
    assert permitted(sampler) == "019"
    write(sampler, "42")
    sampler.start([])
    assert permitted(sampler) == "019"


@pytest.mark.parametrize(
    "start",
    [{"prefill": (5 + ord("x"),)}, {"triggers": (Trigger("pattern", "(unclosed"),)}],
    ids=["prefill", "pattern"],
)
def test_a_start_that_cannot_be_is_an_error(make: MakeSampler, start: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        make(**start)


@pytest.mark.model
@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_speculation_writes_the_same_calls(tmp_path: Path, temperature: float) -> None:
    start = GrammarStart(triggers=(WORD,))
    sampling = SamplingParams(temperature=temperature, seed=5, grammar=CALL, grammar_start=start)
    with (
        calibrated_home(tmp_path) as path,
        Session.open(path, context=ContextParams(n_ctx=512, n_threads=1)) as session,
    ):
        prompt = session.raw_prompt("Calls: <call>add(12), then <call>sum(7), then <call>add(9), and finally")
        texts = set()
        for method in ("plain", "lookup", "ptd"):
            events = session.generate(prompt, sampling, Limits(40), method, governed=False)
            tokens = [token for event in events if isinstance(event, StepEvent) for token in event.tokens]
            texts.add(session.model.text(tokens).decode())
    (text,) = texts
    assert "<call>" in text
    assert text.endswith(")")
