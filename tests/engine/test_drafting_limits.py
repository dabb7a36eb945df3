"""The native drafter: the memory that it holds, and what it refuses."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable

import pytest

from localspec.errors import EngineError, UsageError
from localspec.methods.ptd import native as drafting
from localspec.methods.ptd.core import Top
from localspec.methods.ptd.native import BYTES_A_TOKEN, BYTES_AN_ENTRY, NativeCore, NativeCorpus, NativePool
from localspec.tree import MAX_NODES, Tree
from tests.engine.trees import NEEDS_PATCHES

pytestmark = NEEDS_PATCHES


def text_without_pattern(n: int) -> list[int]:
    return random.Random(6).choices(range(5000), k=n)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: [7] * n,
        lambda n: [7] * (n // 2) + [8] * (n // 2),
        lambda n: [7] * (n - 1) + [8],
        lambda n: [n % 3 for n in range(n)],
        lambda n: random.Random(6).choices(range(2), k=n),
        lambda n: list(range(n)),
        text_without_pattern,
    ],
)
def test_memory_of_a_text(make: Callable[[int], list[int]]) -> None:
    empty = NativeCore(NativePool())
    for n in (5_000, 20_000, 50_000):
        one = NativeCore(NativePool())
        one.extend(make(n))
        assert one.n_bytes - empty.n_bytes <= BYTES_A_TOKEN * n
        one.reset()
        assert one.n_bytes < empty.n_bytes + 50_000


def test_a_corpus_is_held_once_for_all_pools() -> None:
    tokens = text_without_pattern(20_000)
    corpus = NativeCorpus(tokens)
    assert 4 * len(tokens) < corpus.n_bytes <= BYTES_A_TOKEN * len(tokens)
    assert NativePool(corpus=corpus).n_bytes == NativePool().n_bytes
    one = NativeCore(NativePool(corpus=corpus))
    del corpus
    gc.collect()
    one.extend(tokens[:9])
    assert one.propose(3).tokens[1] == tokens[9]


def test_memory_of_a_pool() -> None:
    for n in (1000, 5000, 30_000):
        pool = NativePool(n)
        empty = pool.n_bytes
        one = NativeCore(pool)
        tree = Tree.root(3)
        for token in range(2 * n):
            one.learn(tree, [([1, 2, 3, 4], [4.0, 3.0, 2.0, 1.0])], [], [token])
            tree = Tree.root(token)
        assert n // 2 <= len(pool) <= n
        assert pool.n_bytes - empty <= BYTES_AN_ENTRY * n
        pool.clear()
        assert len(pool) == 0
        assert pool.n_bytes == empty


def test_a_core_keeps_its_pool() -> None:
    one = NativeCore(NativePool(10))
    gc.collect()
    one.learn(Tree.root(1), [([5], [1.0])], [], [1])
    assert one.propose(4).tokens[0] == 1


def test_what_is_no_step_is_refused_and_changes_nothing() -> None:
    one = NativeCore(NativePool(10))
    with pytest.raises(UsageError, match="without a text"):
        one.propose(4)
    one.extend([1, 2, 1])
    before = one.propose(4)
    row: Top = ([5], [1.0])
    chain = Tree.of([-1, 0], [1, 2], [1.0, 0.5])
    steps: list[tuple[Tree, list[Top], list[int], list[int]]] = [
        (chain, [row], [1], [2, 3]),
        (chain, [row, ([1, 2], [1.0])], [1], [2, 3]),
        (chain, [row, ([1, 2, 3, 4, 5], [1.0] * 5)], [1], [2, 3]),
        (chain, [row, row], [2], [2, 3]),
        (chain, [row, row], [-1], [2, 3]),
        (chain, [row, row], [1], [2, 3, 4]),
        (chain, [row, row], [1], []),
        (chain, [row, row], [1, 1], [2, 3]),
        (Tree.of(range(-1, MAX_NODES), [1] * (MAX_NODES + 1), [1.0]), [row] * (MAX_NODES + 1), [], [3]),
        (Tree.of([-1, 7], [1, 2], [1.0, 0.5]), [row, row], [], [3]),
    ]
    for step in steps:
        with pytest.raises(UsageError):
            one.learn(*step)
    assert one.propose(4) == before
    for n in (0, MAX_NODES + 1):
        with pytest.raises(UsageError):
            one.propose(n)
    for width in (0, -1):
        with pytest.raises(UsageError):
            NativeCore(one.pool, width)


def test_other_kinds_of_evidence_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafting, "N_TEXT", drafting.N_TEXT - 1)
    with pytest.raises(EngineError, match="other kinds"):
        NativePool()
