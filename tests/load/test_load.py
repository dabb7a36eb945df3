"""Many users at once, for long, and users who go away.

LOCALSPEC_TEST_REQUESTS is how many requests each user makes: 50 is a real load, the default is quick. The server can be
any (see `tests.with_server`).
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.with_server import Target

pytestmark = [pytest.mark.model, pytest.mark.patched, pytest.mark.slow]

N_USERS = 8
REQUESTS = int(os.environ.get("LOCALSPEC_TEST_REQUESTS", "3"))
TOPICS = ["a fox", "the sea", "two numbers", "ten animals", "France", "a list in Python", "bread", "the night"]
TASKS = ["Tell me about {}.", "Write a poem about {}.", "Repeat: {}.", "Why {}?", "Say it in three words: {}."]
#: of requests until memory has to stay as it is: four to six is usual
MOST_ROUNDS = 15
#: beyond what it takes, and far below the rest of an answer that goes on
SOON = 5.0


def request(user: int, i: int) -> dict[str, Any]:
    """A request like no other: of any length, greedy or sampled, with speculation or without."""
    text = TASKS[i % len(TASKS)].format(TOPICS[(user + i // len(TASKS)) % len(TOPICS)]) + f" ({user}, {i})"
    method = ("auto", "off", "ptd", "lookup")[(user + i) % 4]
    return {
        "messages": [{"role": "user", "content": "Be quick. " * (i % 7) + text}],
        "max_tokens": 4 + (5 * user + 3 * i) % 13,
        "temperature": 0.0 if i % 2 else 0.8,
        "seed": 100 * user + i,
        "logprobs": i % 3 == 0,
        "user": str(user),
        "speculation": {"method": method},
    }


def told(answer: dict[str, Any]) -> Any:
    """What a user sees of an answer."""
    (choice,) = answer["choices"]
    return choice["message"]["content"], choice["finish_reason"], choice["logprobs"], answer["usage"]["total_tokens"]


def test_what_users_get_at_once_is_what_they_get_alone(target: Target) -> None:
    """P17, P63: text and log-probabilities; twice as many users as slots."""
    alone = [[told(target.ask(request(user, i))) for i in range(REQUESTS)] for user in range(N_USERS)]

    def one(user: int) -> list[Any]:
        return [told(target.ask(request(user, i))) for i in range(REQUESTS)]

    with ThreadPoolExecutor(N_USERS) as pool:
        together = list(pool.map(one, range(N_USERS)))
    for user in range(N_USERS):
        for i in range(REQUESTS):
            assert together[user][i] == alone[user][i], request(user, i)
    assert not any(slot["is_processing"] for slot in target.slots())


def test_memory_does_not_grow(target: Target) -> None:
    """Whole answers, streams that are read and streams that are left.

    Pages of caches and of allocators come with their first use, and which request uses the last of them is chance: so
    memory has to level off. Whatever every request leaves behind is there in every round.
    """
    batch = 20 * REQUESTS

    def one(i: int) -> None:
        body = {**request(i % N_USERS, i), "max_tokens": 4}
        if i % 4:
            target.ask(body)
            return
        with target.connect({**body, "stream": True}) as connection:
            connection.recv(100)

    def run() -> int:
        with ThreadPoolExecutor(N_USERS) as pool:
            list(pool.map(one, range(batch)))
        return target.resident()

    slots = target.slots()
    full = {"messages": [{"role": "user", "content": "word " * (slots[0]["n_ctx"] - 200)}], "max_tokens": 4}
    with ThreadPoolExecutor(N_USERS) as pool:
        list(pool.map(target.ask, [full] * 2 * len(slots)))
    sizes = [run()]
    while len(sizes) < MOST_ROUNDS and (len(sizes) < 2 or sizes[-1] >= 1.005 * sizes[-2]):
        sizes.append(run())
    told = ", ".join(f"{size / 2**20:.1f}" for size in sizes)
    print(f"\n{told} MiB after each {batch} requests")
    assert sizes[-1] < 1.005 * sizes[-2], told


def soon(condition: Callable[[], bool]) -> float:
    """Seconds until a condition holds."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() < begin + SOON, "it does not come to hold"
        time.sleep(0.005)
    return time.monotonic() - begin


def endless(text: str = "Tell me a long story.") -> dict[str, Any]:
    """A request for an answer that takes far longer than a test."""
    return {"messages": [{"role": "user", "content": text}], "ignore_eos": True, "stream": True, "temperature": 0.0}


def kill(connection: socket.socket) -> None:
    """Close it as the end of a process does that has not read all: without a word."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def idle(target: Target) -> bool:
    return not any(slot["is_processing"] for slot in target.slots())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("when", ["at once", "in the prompt", "mid-stream"])
def test_a_user_who_goes_frees_the_slot(target: Target, when: str, stream: bool) -> None:
    """P60."""
    soon(lambda: idle(target))
    text = "Read this. " * 500 if when == "in the prompt" else "Go on."
    connection = target.connect({**endless(text), "stream": stream})
    if when == "in the prompt":
        soon(lambda: any(slot["is_processing"] for slot in target.slots()))
    if when == "mid-stream":
        soon(lambda: any(slot["next_token"][0]["n_decoded"] > 8 and slot["is_processing"] for slot in target.slots()))
    kill(connection)
    took = soon(lambda: idle(target))
    print(f"\nthe slot was free after {took:.3f} s")
    assert told(target.ask(request(0, 1)))


def test_a_user_who_goes_while_waiting_leaves_the_queue(target: Target) -> None:
    soon(lambda: idle(target))
    n_slots = len(target.slots())
    busy = [target.connect(endless()) for _ in range(n_slots)]
    soon(lambda: all(slot["is_processing"] for slot in target.slots()))
    waiting = target.connect(endless())
    soon(lambda: target.waiting() == 1)
    kill(waiting)
    soon(lambda: target.waiting() == 0)
    for connection in busy:
        kill(connection)
    soon(lambda: idle(target))


def test_the_server_tells_of_itself_while_it_is_busy(target: Target) -> None:
    """P27: who asks how it does need not wait for it."""
    busy = [target.connect(endless()) for _ in range(N_USERS)]
    soon(lambda: all(slot["is_processing"] for slot in target.slots()))
    for path in ("/health", "/slots", "/props", "/v1/models", "/metrics"):
        begin = time.monotonic()
        assert httpx.get(target.url + path, timeout=SOON).status_code == 200
        print(f"\n{path} took {time.monotonic() - begin:.3f} s")
    for connection in busy:
        kill(connection)
    soon(lambda: idle(target))
