"""Drafting with heads: the tree they fill, within the budget, from the right hidden state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from localspec.heads.reference import HeadDraft
from localspec.methods.base import Walk
from localspec.methods.heads import HeadsDrafter
from localspec.static_tree import StaticTree

TREE = StaticTree.from_paths([[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]])


class FakeHeads:
    """Drafts tokens 10, 11, .. with given probabilities and remembers what it was asked."""

    def __init__(self, q: list[float]) -> None:
        self.q = q
        self.asked: list[tuple[float, int]] = []

    def draft(self, g: np.ndarray, root: int, tree: StaticTree) -> HeadDraft:
        self.asked.append((float(g[0]), root))
        tokens = np.array([root, *range(10, 9 + tree.n_nodes)], dtype=np.int32)
        return HeadDraft(tokens, np.array([1.0, *self.q], dtype=np.float32), (0.5, 0.25, 0.125))


class Rows:
    """Row i has the hidden state [i], and a best token of probability 0.25."""

    def top_k(self, i: int, k: int) -> tuple[list[int], list[float]]:
        return [0], [math.log(0.25)]

    def logsumexp(self, i: int) -> float:
        return 0.0

    def hidden(self, i: int) -> np.ndarray:
        return np.array([i], dtype=np.float32)


def started(q: list[float]) -> tuple[HeadsDrafter, FakeHeads]:
    heads = FakeHeads(q)
    drafter = HeadsDrafter(heads, TREE)
    drafter.start([5, 7])
    return drafter, heads


def step(drafter: HeadsDrafter, path: tuple[int, ...], tokens: tuple[int, ...]) -> None:
    rows: Any = Rows()
    drafter.observe(drafter.propose(16), rows, Walk(path, tokens))


def test_the_first_step_of_a_text_is_plain() -> None:
    drafter, heads = started([0.5] * 6)
    assert drafter.propose(16).tokens == (7,) and not heads.asked
    step(drafter, (), (8,))
    assert len(drafter.propose(16)) == TREE.n_nodes
    drafter.start([1])
    assert drafter.propose(16).tokens == (1,), "the hidden state was that of another text"


@pytest.mark.parametrize(("path", "tokens", "row"), [((), (8,), 0), ((1, 3), (10, 12, 9), 3), ((1, 3), (10, 12), 1)])
def test_the_heads_see_the_row_that_the_last_token_was_drawn_from(
    path: tuple[int, ...], tokens: tuple[int, ...], row: int
) -> None:
    drafter, heads = started([0.5] * 6)
    step(drafter, path, tokens)
    drafter.propose(16)
    assert heads.asked == [(row, tokens[-1])]


def test_estimates_are_products_along_the_path_and_the_best_nodes_fit_the_budget() -> None:
    drafter, _ = started([0.5, 0.25, 0.5, 0.25, 1.0, 1.0])
    step(drafter, (), (8,))
    tree = drafter.propose(16)
    assert tree.topology.parents == TREE.topology.parents
    assert tree.p == (1.0, 0.5, 0.25, 0.25, 0.125, 0.25, 0.25)
    assert drafter.propose(3).tokens == (8, 10, 11), "among equals the one that comes first"
    assert drafter.propose(16, 0.2).tokens == (8, 10, 11, 12, 14, 15)
    for n in range(1, 8):
        assert len(drafter.propose(n)) == n


def test_the_score_is_that_of_this_step() -> None:
    drafter = HeadsDrafter(FakeHeads([0.5] * 6), TREE, scored=True)
    drafter.start([5, 7])
    assert drafter.score(2) == 0.0, "nothing is known yet"
    step(drafter, (), (8,))
    drafter.propose(16)
    assert [drafter.score(depth) for depth in (0, 1, 3)] == pytest.approx([0.25, 0.125, 0.25 / 64])
