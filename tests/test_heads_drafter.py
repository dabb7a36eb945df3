"""Drafting with heads: the tree they fill, within the budget, from the right hidden state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from localspec.heads.draws import SampledDraft
from localspec.heads.reference import HeadDraft
from localspec.methods.base import Walk
from localspec.methods.heads import DEEPER, HeadsDrafter
from localspec.methods.sampled import DraftSampling
from localspec.static_tree import StaticTree

TREE = StaticTree.from_paths([[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]])


class FakeHeads:
    """Drafts tokens 10, 11, .. with given probabilities and remembers what it was asked."""

    depth = 3

    def __init__(self, q: list[float]) -> None:
        self.q = q
        self.n_levels = 3
        self.least: list[float] = []
        self.asked: list[tuple[float, int]] = []
        self.trees: list[StaticTree] = []

    def draft(self, g: np.ndarray, root: int, tree: StaticTree, least_p: float = 0.0) -> HeadDraft:
        self.asked.append((float(g[0]), root))
        self.trees.append(tree)
        self.least.append(least_p)
        n_levels = min(self.n_levels, tree.depth)
        tokens = np.array([root, *range(10, 9 + tree.n_nodes)], dtype=np.int32)
        q = np.array([1.0, *self.q][: tree.n_nodes], dtype=np.float32)
        tokens[tree.ends[n_levels] :], q[tree.ends[n_levels] :] = -1, 0
        return HeadDraft(tokens, q, (0.5, 0.25, 0.125), n_levels)


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


def test_levels_that_were_not_drafted_are_no_part_of_the_tree() -> None:
    drafter, heads = started([0.5, 0.25, 0.5, 0.25, 1.0, 1.0])
    step(drafter, (), (8,))
    for n_levels, n_nodes in ((1, 3), (2, 6), (3, 7)):
        heads.n_levels = n_levels
        tree = drafter.propose(16)
        assert len(tree) == n_nodes and tree.topology.depth == n_levels and -1 not in tree.tokens


def test_a_level_is_drafted_for_nodes_that_are_worth_verifying_unless_a_score_needs_all() -> None:
    for scored in (False, True):
        heads = FakeHeads([0.5] * 6)
        drafter = HeadsDrafter(heads, TREE, scored=scored)
        drafter.start([5, 7])
        step(drafter, (), (8,))
        drafter.propose(16)
        drafter.propose(16, 0.05)
        assert heads.least == ([0.0, 0.0] if scored else [0.0, DEEPER * 0.05])


def test_the_score_is_that_of_this_step() -> None:
    drafter = HeadsDrafter(FakeHeads([0.5] * 6), TREE, scored=True)
    drafter.start([5, 7])
    assert drafter.score(2) == 0.0, "nothing is known yet"
    step(drafter, (), (8,))
    drafter.propose(16)
    assert [drafter.score(depth) for depth in (0, 1, 3)] == pytest.approx([0.25, 0.125, 0.25 / 64])


class DrawingHeads(FakeHeads):
    """Heads whose draws are sure of something else each time."""

    def draft_sampled(
        self, g: np.ndarray, root: int, tree: StaticTree, temperature: float, rng: np.random.Generator
    ) -> SampledDraft:
        tokens = np.array([root, *rng.integers(10, 99, tree.n_drafts)], dtype=np.int32)
        laws = {node: rng.dirichlet([temperature] * 5) for node, c in enumerate(tree.topology.children) if c}
        return SampledDraft(tokens, tree.topology.children, laws, np.arange(99))


def drawing(seed: int, scored: bool = False) -> tuple[HeadsDrafter, DraftSampling]:
    drafter = HeadsDrafter(DrawingHeads([0.5] * 6), TREE, scored=scored)
    sampling = DraftSampling(0.8, np.random.default_rng(seed))
    drafter.sample_drafts(sampling)
    drafter.start([5, 7])
    step(drafter, (), (8,))
    return drafter, sampling


def test_what_is_kept_of_a_drawn_tree_does_not_depend_on_the_draws() -> None:
    """Neither estimates nor shape nor score, however different the draws: else the text would lose its law."""
    shapes, tokens = set(), set()
    for seed in range(20):
        drafter, sampling = drawing(seed, scored=True)
        for n in (16, 4):
            tree = drafter.propose(n, 0.05)
            shapes.add((n, tree.topology, tree.p, drafter.score(3)))
            assert sampling.drawn is not None
            tokens.add(tree.tokens)
    assert len(shapes) == 2 and len(tokens) == 40


def test_the_draws_are_those_of_the_tree_proposed_last() -> None:
    drafter, sampling = drawing(1)
    for _ in range(3):
        tree = drafter.propose(16)
        assert sampling.drawn is not None and tree.tokens == tuple(sampling.drawn.tokens.tolist())


def test_estimates_of_drawn_nodes_follow_what_was_accepted() -> None:
    drafter, _ = drawing(1)
    before = drafter.propose(16).p
    for _ in range(200):  # the first draw is always rejected, the second always accepted
        tree = drafter.propose(16)
        step_rows: Any = Rows()
        drafter.observe(tree, step_rows, Walk((2,), (tree.tokens[2], 9)))
    after = drafter.propose(16).p
    assert after[1] < 0.1 < before[1] and after[2] > 0.85 > before[2]
    children = TREE.topology.children
    assert all(sum(after[c] for c in children[node]) <= after[node] for node in range(TREE.n_nodes))


def test_the_most_likely_tokens_are_drafted_again_without_sampling() -> None:
    drafter, _ = drawing(1)
    drafter.sample_drafts(None)
    assert drafter.propose(16).tokens == (8, 10, 11, 12, 13, 14, 15)


def test_the_smallest_tree_that_has_enough_nodes_is_drafted() -> None:
    small = StaticTree.from_paths([[0], [0, 0]])
    heads = FakeHeads([0.5] * 6)
    drafter = HeadsDrafter(heads, TREE, small)
    drafter.start([5, 7])
    step(drafter, (), (8,))
    sizes = [len(drafter.propose(n)) for n in (2, 3, 4, 7, 60)]
    assert sizes == [2, 3, 4, 7, 7]
    assert [tree.n_nodes for tree in heads.trees] == [3, 3, 7, 7, 7]
