"""Typical acceptance: the published rule, and that it says that it is lossy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from localspec.engine.base import Law
from localspec.methods.typical import TypicalVerifier, threshold
from localspec.tree import Tree


class Laws:
    """A sampler whose law depends on the row alone."""

    native_seconds = 0.0

    def __init__(self, laws: Mapping[int, Mapping[int, float]]) -> None:
        self._laws = laws
        self.history: list[int] = []

    def law(self, rows: Any, i: int) -> Law:
        law = self._laws.get(i, {9: 1.0})
        return Law(np.array(list(law), dtype=np.int32), np.array(list(law.values())))

    def accept(self, token: int) -> None:
        self.history.append(token)


#: 0 -> 1 (token 11) -> 3 (31); 0 -> 2 (12) -> 4 (41), 5 (42) -> 6 (61, below 5)
TREE = Tree.of((-1, 0, 0, 1, 2, 2, 5), (5, 11, 12, 31, 41, 42, 61), (1.0,) * 7)


def walk(laws: Mapping[int, Mapping[int, float]], stop: frozenset[int] = frozenset(), limit: int = 9) -> Any:
    sampler = Laws(laws)
    made = TypicalVerifier().walk(TREE, None, sampler, stop, limit)  # type: ignore[arg-type]
    assert sampler.history == list(made.tokens)
    return made


def test_the_threshold_is_the_smaller_of_the_two() -> None:
    sure, even = np.array([1.0]), np.full(100, 0.01)
    assert threshold(sure) == 0.09
    assert threshold(even) == pytest.approx(0.3 / 100)  # exp(-H) of an even law is its probability
    assert threshold(sure, 0.5, 0.2) == pytest.approx(0.2)


def test_a_token_is_accepted_above_the_threshold_and_not_at_it() -> None:
    for p, accepted in ((0.089, ()), (0.091, (1,))):
        law = {11: p, 9: 1.0 - p}
        assert threshold(np.array(list(law.values()))) == 0.09, "that is what decides here"
        assert walk({0: law}).path == accepted


def test_where_the_target_is_unsure_unlikely_tokens_are_accepted() -> None:
    even = dict.fromkeys(range(100), 0.01)
    assert walk({0: even}).path == (1,)


def test_the_longest_accepted_path_is_taken_and_the_best_token_follows() -> None:
    laws = {
        0: {11: 0.7, 12: 0.2, 9: 0.1},
        2: {41: 0.2, 42: 0.15, 9: 0.65},
        5: {61: 0.5, 9: 0.5},
        6: {8: 0.4, 7: 0.6},
    }
    made = walk(laws)
    assert made.path == (2, 5, 6)
    assert made.tokens == (12, 42, 61, 7)
    assert made.forgiven == (0, 1), "the two that were not the target's best"


def test_among_equally_long_paths_the_likeliest_is_taken() -> None:
    laws = {0: {11: 0.5, 12: 0.5}, 1: {31: 0.4, 9: 0.6}, 2: {41: 0.5, 42: 0.3, 9: 0.2}}
    assert walk(laws).path == (2, 4)
    laws[1] = {31: 0.9, 9: 0.1}
    assert walk(laws).path == (1, 3)


def test_a_node_below_a_rejected_one_is_not_reached() -> None:
    made = walk({0: {9: 1.0}, 1: {31: 1.0}, 2: {41: 1.0}})
    assert (made.path, made.tokens) == ((), (9,))


def test_a_walk_ends_at_its_limit_and_with_the_first_end_token() -> None:
    sure = {0: {12: 1.0}, 2: {42: 1.0}, 5: {61: 1.0}, 6: {7: 1.0}}
    for limit in (1, 2, 3, 4):
        made = walk(sure, limit=limit)
        assert (made.tokens, made.path) == ((12, 42, 61, 7)[:limit], (2, 5, 6)[:limit])
    made = walk(sure, stop=frozenset({42}))
    assert (made.tokens, made.path) == ((12, 42), (2, 5))
    assert walk(sure, stop=frozenset({7})).tokens == (12, 42, 61, 7)


def test_it_is_not_lossless() -> None:
    assert TypicalVerifier.lossless is False


def test_the_entropy_is_in_nats() -> None:
    p = np.array([0.25] * 4)
    assert threshold(p, epsilon=1.0, delta=1.0) == pytest.approx(math.exp(-math.log(4)))
