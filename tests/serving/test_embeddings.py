"""Requests for embeddings between the steps of an engine. What embeds is a fake that takes a step for each text."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError, Future

import pytest

from localspec.errors import EngineError, UsageError
from localspec.serving.api import BusyError, Pooled
from localspec.serving.embeddings import Embeddings


class FakeJob:
    def __init__(self, inputs: Sequence[Sequence[int]], log: list[str]) -> None:
        self.inputs, self.log, self.left = inputs, log, len(inputs)

    def step(self) -> bool:
        self.left -= 1
        self.log.append(f"{len(self.inputs)}: {self.left}")
        return self.left <= 0

    def result(self) -> Pooled:
        return Pooled([[float(len(tokens))] for tokens in self.inputs], sum(map(len, self.inputs)))


class FakeEmbedder:
    def __init__(self) -> None:
        self.log: list[str] = []

    def begin(self, inputs: Sequence[Sequence[int]], normalize: bool) -> FakeJob:
        if not all(inputs):
            raise UsageError("an input is empty")
        return FakeJob(inputs, self.log)

    def release(self) -> None:
        self.log.append("rest")


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder()


def steps(embeddings: Embeddings) -> int:
    n = 0
    while embeddings.step():
        n += 1
    return n


def test_requests_are_taken_in_turn_a_pass_at_a_time(embedder: FakeEmbedder) -> None:
    embeddings = Embeddings(lambda: embedder, 8)
    assert not embeddings.step()
    first, second = embeddings.put([[1], [1, 2], [1]], True), embeddings.put([[5]], True)
    assert len(embeddings) == 2
    assert embeddings.step() and not first.done()
    assert steps(embeddings) == 3 and len(embeddings) == 0
    assert embedder.log == ["3: 2", "3: 1", "3: 0", "1: 0"]
    assert first.result(0) == Pooled([[1.0], [2.0], [1.0]], 4) and second.result(0).n_tokens == 1


def test_a_request_that_is_cancelled_takes_no_further_pass(embedder: FakeEmbedder) -> None:
    embeddings = Embeddings(lambda: embedder, 8)
    first, second, third = (embeddings.put([[1]] * n, True) for n in (5, 4, 1))
    embeddings.step()
    assert first.cancel() and second.cancel()
    steps(embeddings)
    assert embedder.log == ["5: 4", "1: 0"] and third.done()
    with pytest.raises(CancelledError):
        first.result(0)


def test_a_request_that_cannot_be_fails_alone(embedder: FakeEmbedder) -> None:
    embeddings = Embeddings(lambda: embedder, 8)
    bad, good = embeddings.put([[1], []], True), embeddings.put([[1]], True)
    steps(embeddings)
    with pytest.raises(UsageError, match="empty"):
        bad.result(0)
    assert good.result(0).n_tokens == 1


def test_too_many_are_told_to_come_again(embedder: FakeEmbedder) -> None:
    embeddings = Embeddings(lambda: embedder, 2)
    for _ in range(2):
        embeddings.put([[1]], True)
    with pytest.raises(BusyError):
        embeddings.put([[1]], True)
    steps(embeddings)
    embeddings.put([[1]], True)


def test_the_end_is_told_to_all(embedder: FakeEmbedder) -> None:
    embeddings = Embeddings(lambda: embedder, 8)
    asked: list[Future[Pooled]] = [embeddings.put([[1]] * 3, True) for _ in range(2)]
    embeddings.step()
    embeddings.end(EngineError("the engine was closed"))
    asked.append(embeddings.put([[1]], True))
    for future in asked:
        with pytest.raises(EngineError, match="closed"):
            future.result(0)


def test_an_engine_may_make_none_and_rests_when_it_made_some(embedder: FakeEmbedder) -> None:
    none = Embeddings(None, 8)
    refused = none.put([[1]], True)
    steps(none)
    none.rest()
    with pytest.raises(UsageError, match="no embeddings"):
        refused.result(0)
    some = Embeddings(lambda: embedder, 8)
    some.rest()
    some.put([[1]], True)
    steps(some)
    some.rest()
    assert embedder.log == ["1: 0", "rest"]
