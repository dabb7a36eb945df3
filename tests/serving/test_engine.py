"""Requests to the engine: alone and in company, ended early, in excess, and what is told about them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.engine.params import SamplingParams
from localspec.errors import ContextLengthError, EngineError, LocalspecError, UsageError
from localspec.serving.answer import TimedOutError
from localspec.serving.api import Begun, BusyError, Ended, Request, Update, Written
from localspec.serving.engine import BatchEngine
from tests.serving.conftest import N_CTX, N_SLOTS, Answered, ask, chat, collect, open_engine

pytestmark = [pytest.mark.model, pytest.mark.patched]

PROMPTS = [
    "Count from 1 to 30.",
    "Repeat these words three times: red green blue.",
    "Tell me a story about a fox.",
    "Write a Python function that adds two numbers.",
    "Name ten animals.",
    "What is the capital of France?",
]
LONG = "The quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 24


def requests_of(engine: BatchEngine) -> list[Request]:
    """Greedy and sampled, with and without penalties, log-probabilities, stops and speculation."""
    samplings = [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.9, seed=7),
        SamplingParams(temperature=0.7, seed=1, repeat_penalty=1.3),
    ]
    return [
        Request(
            prompt=chat(engine, text),
            sampling=samplings[i % 3],
            max_tokens=20 + 3 * i,
            stops=("4",) if i == 0 else (),
            method="plain" if i == 4 else None,
            top_logprobs=3 if i % 2 else None,
            cache_prompt=False,
            owner=str(i % 2),
        )
        for i, text in enumerate(PROMPTS)
    ]


def together(engine: BatchEngine, requests: list[Request]) -> list[Answered]:
    answers = [engine.submit(request) for request in requests]
    found: list[list[Update]] = [[] for _ in requests]
    threads = [threading.Thread(target=lambda i=i: found[i].extend(answers[i])) for i in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [collect(updates) for updates in found]


def same(a: Answered, b: Answered) -> bool:
    return (a.text, a.tokens, a.logprobs, a.end.reason, a.end.stop) == (
        b.text,
        b.tokens,
        b.logprobs,
        b.end.reason,
        b.end.stop,
    )


def test_requests_in_company_get_what_they_get_alone(engine: BatchEngine) -> None:
    """P17: text, tokens and log-probabilities to the last bit, more requests than slots, prompts read in pieces."""
    requests = requests_of(engine)
    alone = [collect(list(engine.submit(request))) for request in requests]
    assert alone[0].end.stop == "4" and "4" not in alone[0].text
    assert any(answered.end.stats.n_drafted for answered in alone)
    for _ in range(2):
        for one, other in zip(alone, together(engine, requests), strict=True):
            assert same(one, other)


def test_speculation_changes_nothing_that_is_told(engine: BatchEngine) -> None:
    """P43: log-probabilities too; and tokens make the text."""
    prompt = chat(engine, PROMPTS[0])
    # this one drafts at every step, however fast the machine is
    on = ask(engine, prompt, max_tokens=60, top_logprobs=5, cache_prompt=False, method="ptd-published")
    off = ask(engine, prompt, max_tokens=60, top_logprobs=5, cache_prompt=False, method="plain")
    assert same(on, off)
    assert on.end.speculation.accepted > 1
    assert off.end.speculation.method == "plain" and off.end.speculation.reason
    assert b"".join(item.piece for item in on.logprobs).decode() == on.text
    for item in on.logprobs:
        assert item.top[0][2] == max(p for *_, p in item.top) and len(item.top) == 5
        assert item.logprob <= 0


def test_a_prompt_of_the_cache_is_not_read_again(engine: BatchEngine) -> None:
    prompt = chat(engine, LONG)
    first = ask(engine, prompt, cache_prompt=False)
    again = ask(engine, prompt)
    assert first.begun and first.begun.n_cached == 0
    assert again.begun and again.begun.n_cached == len(prompt) - 1
    assert first.text == again.text


def test_a_beginning_that_another_slot_holds_is_copied(home: Path) -> None:
    """Users with one system prompt do not each read it."""
    engine = open_engine(home, n_slots=2)
    try:
        one = engine.submit(Request(prompt=chat(engine, LONG + "Go on."), max_tokens=200, sampling=SamplingParams()))
        updates = iter(one)
        assert isinstance(next(updates), Begun)
        other = ask(engine, chat(engine, LONG + "Why?"), max_tokens=4)
        assert other.begun and other.begun.n_cached > 200
        fresh = ask(engine, chat(engine, LONG + "Why?"), max_tokens=4, cache_prompt=False)
        assert fresh.text == other.text
        one.cancel()
        list(updates)
    finally:
        engine.close()


def test_where_no_beginning_can_be_copied_each_slot_reads_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a cache in the memory of a GPU."""
    monkeypatch.setenv("LLAMA_KV_TREE_IN_PLACE", "1")
    engine = open_engine(home, n_slots=2)
    try:
        one = engine.submit(Request(prompt=chat(engine, LONG + "Go on."), max_tokens=200, sampling=SamplingParams()))
        updates = iter(one)
        assert isinstance(next(updates), Begun)
        prompt = chat(engine, LONG + "Why?")
        other = ask(engine, prompt, max_tokens=40)
        assert other.begun and other.begun.n_cached == 0
        again = ask(engine, prompt, max_tokens=40)
        assert again.begun and again.begun.n_cached == len(prompt) - 1
        assert other.text and again.text
        one.cancel()
        assert isinstance(list(updates)[-1], Ended)
    finally:
        engine.close()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.005)


@pytest.mark.parametrize("when", ["waiting", "prompt", "writing"])
def test_a_request_that_nobody_wants_frees_its_slot(engine: BatchEngine, when: str) -> None:
    """P60. The engine goes on with others."""
    busy = [
        engine.submit(Request(prompt=chat(engine, "Tell me a long story."), max_tokens=300, ignore_eos=True))
        for _ in range(N_SLOTS if when == "waiting" else 0)
    ]
    answer = engine.submit(Request(prompt=chat(engine, LONG), max_tokens=300, ignore_eos=True, cache_prompt=False))
    if when == "writing":
        assert isinstance(next(iter(answer)), Begun)
    elif when == "prompt":
        wait_for(lambda: answer.slot is not None)
    answer.cancel()
    for other in busy:
        other.cancel()
    wait_for(lambda: not any(slot.busy for slot in engine.slots()) and engine.n_waiting() == 0)
    assert ask(engine, chat(engine, PROMPTS[5])).text


def test_the_queue_has_an_end(home: Path) -> None:
    engine = open_engine(home, n_slots=1, n_queue=1)
    try:
        request = Request(prompt=chat(engine, "Tell me a long story."), max_tokens=200, ignore_eos=True)
        answers = [engine.submit(request)]
        wait_for(lambda: engine.slots()[0].busy)
        answers.append(engine.submit(request))
        with pytest.raises(BusyError) as caught:
            engine.submit(request)
        assert caught.value.retry_after >= 1 and caught.value.http_status == 503
        answers[0].cancel()
        assert collect(list(answers[1])).end.stats.n_tokens == 200
    finally:
        engine.close()


def test_owners_take_turns(home: Path) -> None:
    """One user's pile of requests does not keep another from theirs."""
    engine = open_engine(home, n_slots=1)
    try:

        def request(owner: str) -> Request:
            return Request(prompt=chat(engine, PROMPTS[5]), max_tokens=4, owner=owner)

        answers = [engine.submit(request("many")) for _ in range(4)]
        last = engine.submit(request("one"))
        order: list[int] = []

        def read(answer: object, number: int) -> None:
            list(answer)  # type: ignore[call-overload]
            order.append(number)

        threads = [threading.Thread(target=read, args=(a, i)) for i, a in enumerate([*answers, last])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert order.index(4) <= 2
    finally:
        engine.close()


def test_what_cannot_be_served_is_refused_at_once(engine: BatchEngine) -> None:
    too_long = [1] * N_CTX
    with pytest.raises(ContextLengthError, match=rf"{N_CTX} tokens.* {N_CTX}"):
        engine.submit(Request(prompt=too_long))
    bad: list[Request] = [
        Request(prompt=[]),
        Request(prompt=[engine.facts.n_vocab]),
        Request(prompt=[-1]),
        Request(prompt=[1], max_tokens=-1),
        Request(prompt=[1], stops=("",)),
        Request(prompt=[1], method="magic"),
        Request(prompt=[1], top_logprobs=21),
        Request(prompt=[1], sampling=SamplingParams(temperature=-1.0)),
    ]
    for request in bad:
        with pytest.raises(UsageError):
            engine.submit(request)


@pytest.mark.parametrize(
    "request_",
    [
        Request(prompt=[1, 2, 3], sampling=SamplingParams(grammar="root ::= [")),
        Request(prompt=[1, 2, 3], accept="magic"),
        Request(prompt=[1, 2, 3], sampling=SamplingParams(logit_bias={10**6: 1.0})),
    ],
)
def test_what_turns_out_to_be_impossible_ends_with_an_error(engine: BatchEngine, request_: Request) -> None:
    with pytest.raises(UsageError):
        list(engine.submit(request_))
    assert ask(engine, chat(engine, PROMPTS[5])).text


def test_the_context_is_filled_to_its_end(engine: BatchEngine) -> None:
    """P23: the end of the context is a length, and said to be one."""
    prompt = (engine.tokenize("Hello there. ") * N_CTX)[: N_CTX - 40]
    answered = ask(engine, prompt, max_tokens=None, ignore_eos=True)
    assert answered.end.reason == "length" and answered.end.truncated
    assert answered.end.stats.n_tokens == 40


def test_no_tokens_reads_the_prompt_alone(engine: BatchEngine) -> None:
    answered = ask(engine, chat(engine, PROMPTS[0]), max_tokens=0)
    assert answered.text == "" and answered.end.reason == "length" and not answered.end.truncated


def test_time_runs_out(engine: BatchEngine) -> None:
    answer = engine.submit(
        Request(prompt=chat(engine, "Tell me a long story."), max_tokens=600, ignore_eos=True, timeout=0.3)
    )
    with pytest.raises(TimedOutError):
        list(answer)
    wait_for(lambda: not any(slot.busy for slot in engine.slots()))


def test_an_event_loop_reads_answers_side_by_side(engine: BatchEngine) -> None:
    async def read(request: Request) -> Answered:
        return collect([update async for update in engine.submit(request)])

    async def both() -> list[Answered]:
        return await asyncio.gather(*(read(request) for request in requests_of(engine)))

    alone = [collect(list(engine.submit(request))) for request in requests_of(engine)]
    for one, other in zip(alone, asyncio.run(both()), strict=True):
        assert same(one, other)


def test_an_answer_that_is_no_longer_read_is_no_longer_written(engine: BatchEngine) -> None:
    async def leave() -> None:
        answer = engine.submit(Request(prompt=chat(engine, "Tell me a story."), max_tokens=400, ignore_eos=True))
        updates = aiter(answer)
        await anext(updates)
        await updates.aclose()  # type: ignore[attr-defined]

    asyncio.run(leave())
    wait_for(lambda: not any(slot.busy for slot in engine.slots()))


def test_a_closed_engine_ends_what_is_under_way(home: Path) -> None:
    engine = open_engine(home, n_slots=1)
    request = Request(prompt=chat(engine, "Tell me a long story."), max_tokens=600, ignore_eos=True)
    answers = [engine.submit(request) for _ in range(2)]
    next(iter(answers[0]))
    engine.close()
    with pytest.raises(EngineError):
        list(answers[1])
    with pytest.raises(LocalspecError):
        engine.submit(request)


def test_without_patches_several_are_served_as_well(home: Path) -> None:
    engine = open_engine(home, n_slots=2, mode="stock")
    try:
        requests = requests_of(engine)[:3]
        assert all(answered.text for answered in together(engine, requests))
    finally:
        engine.close()


def test_what_people_see(engine: BatchEngine) -> None:
    answer = engine.submit(Request(prompt=chat(engine, PROMPTS[2]), max_tokens=50, ignore_eos=True))
    updates = iter(answer)
    for update in updates:
        if isinstance(update, Written):
            break
    state = next(slot for slot in engine.slots() if slot.busy)
    assert state.task == answer.id and state.id == answer.slot
    assert state.n_prompt == len(answer.request.prompt) and state.n_left is not None and state.n_left < 50
    assert b'"format": "localspec-live"' in engine.live()
    end = [*updates][-1]
    assert isinstance(end, Ended) and end.stats.n_tokens == 50
    assert not any(slot.busy for slot in engine.slots())


def test_a_program_may_end_in_the_middle_of_an_answer(home: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.serving.exit_midway", str(home)], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "True\n"
