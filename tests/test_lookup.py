"""Prompt lookup drafts what followed before, within its budget, with estimates that come true."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.methods.base import Walk
from localspec.methods.lookup import MAX_CONTINUATIONS, LookupDrafter
from localspec.tree import Tree


def paths(tree: Tree) -> set[tuple[int, ...]]:
    """Token paths of the leaves, without the root."""
    return {tuple(int(tree.tokens[node]) for node in tree.topology.path(leaf)[1:]) for leaf in tree.topology.leaves}


def draft(text: list[int], max_nodes: int = 64, **sizes: int) -> Tree:
    drafter = LookupDrafter(**sizes)
    drafter.start(text)
    return drafter.propose(max_nodes)


def feed(drafter: LookupDrafter, tree: Tree, tokens: list[int]) -> None:
    drafter.observe(tree, None, Walk((), tuple(tokens)))  # type: ignore[arg-type]


def test_the_continuation_of_the_last_occurrence_is_drafted() -> None:
    tree = draft([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3], max_nodes=5)
    assert paths(tree) == {(4, 5, 6, 7)}
    assert tree.tokens[0] == 3


def test_different_continuations_share_their_common_prefix() -> None:
    tree = draft([1, 2, 3, 4, 0, 1, 2, 3, 5, 0, 1, 2], max_nodes=64)
    children = [int(tree.tokens[child]) for child in tree.topology.children[0]]
    assert children == [3]
    assert sorted(int(tree.tokens[child]) for child in tree.topology.children[1]) == [4, 5]


def test_the_longer_match_is_believed_more() -> None:
    tree = draft([1, 2, 3, 7, 9, 2, 3, 8, 6, 6, 1, 2, 3], max_nodes=64)
    estimate = {int(tree.tokens[child]): float(tree.p[child]) for child in tree.topology.children[0]}
    assert set(estimate) == {7, 8}
    assert estimate[7] > estimate[8]


def test_an_older_but_longer_match_comes_first() -> None:
    old, recent = [1, 2, 3, 4, 5, 6, 7], [9, 9, 9, 3, 4, 5, 6, 8]
    tree = draft([*old, *recent, 1, 2, 3, 4, 5, 6], max_nodes=2)
    assert tree.tokens == (6, 7)


def test_a_second_guess_is_believed_less_than_the_first() -> None:
    tree = draft([1, 2, 7, 0, 1, 2, 8, 0, 1, 2])
    estimate = {int(tree.tokens[child]): float(tree.p[child]) for child in tree.topology.children[0]}
    assert estimate[7] < 0.5 * estimate[8]


def test_a_step_without_a_draft_is_not_judged_by_an_old_one() -> None:
    drafter = LookupDrafter()
    drafter.start([1, 2, 3] * 5)
    feed(drafter, drafter.propose(8), [1])
    before = list(drafter._rates.p)
    feed(drafter, Tree.root(1), [50])
    assert drafter._rates.p == before


def test_a_running_repetition_is_drafted_beyond_the_end_of_the_text() -> None:
    assert (1, 2, 1, 2, 1, 2, 1) in paths(draft([9, 1, 2, 1, 2, 1, 2], max_nodes=8))
    assert (5,) * 7 in paths(draft([5] * 6, max_nodes=8))


def test_new_text_drafts_nothing() -> None:
    assert len(draft(list(range(50)))) == 1
    assert len(draft([1])) == 1
    assert len(draft([1, 2, 1], n_max=4, n_min=2)) == 1
    assert len(draft([1, 2, 1], n_max=4, n_min=1)) > 1


def test_output_is_searched_like_the_prompt() -> None:
    drafter = LookupDrafter()
    drafter.start([1, 2])
    for token in [3, 4, 5, 1, 2]:
        feed(drafter, drafter.propose(8), [token])
    assert (3, 4, 5) in {path[:3] for path in paths(drafter.propose(8))}


def test_a_new_prompt_forgets_the_old_text_but_not_a_common_beginning() -> None:
    drafter = LookupDrafter()
    drafter.start([1, 2, 3, 4, 5])
    feed(drafter, drafter.propose(8), [6, 7])
    drafter.start([1, 2, 3, 4, 5, 6, 7, 1, 2])
    assert (3, 4, 5, 6) in {path[:4] for path in paths(drafter.propose(8))}
    drafter.start([9, 9, 1, 2])
    assert len(drafter.propose(8)) == 1


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="n-grams"):
        LookupDrafter(n_max=2, n_min=3)
    with pytest.raises(UsageError, match="n-grams"):
        LookupDrafter(n_min=0)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=60),
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), max_size=12),
    st.integers(1, 40),
)
def test_any_text_gives_a_tree_of_what_was_seen_within_the_budget(
    prompt: list[int], runs: list[list[int]], max_nodes: int
) -> None:
    drafter = LookupDrafter(n_min=1)
    drafter.start(prompt)
    text = list(prompt)
    for run in [*runs, [0]]:
        tree = drafter.propose(max_nodes)
        assert 1 <= len(tree) <= max_nodes
        assert tree.tokens[0] == text[-1]
        assert all(tree.p[node] <= tree.p[parent] for node, parent in enumerate(tree.topology.parents) if node)
        assert len(tree.topology.leaves) <= MAX_CONTINUATIONS
        pairs = set(pairwise(text))
        for child in tree.topology.children[0]:
            assert (text[-1], int(tree.tokens[child])) in pairs
        for node, parent in enumerate(tree.topology.parents):
            siblings = [int(tree.tokens[child]) for child in tree.topology.children[node]]
            assert len(set(siblings)) == len(siblings), f"children of {node} (parent {parent})"
        feed(drafter, tree, run)
        text += run


@pytest.mark.parametrize("noise", [0.02, 0.25, 0.6])
def test_estimates_come_true_on_average(noise: float) -> None:
    """Text that repeats a passage with random slips: expected and accepted nodes agree."""
    rng = random.Random(3)
    passage = [rng.randrange(100) for _ in range(60)]
    text = [token if rng.random() > noise else rng.randrange(100) for _ in range(60) for token in passage]
    drafter = LookupDrafter()
    drafter.start(text[:60])
    position, expected, accepted = 60, 0.0, 0
    while position < len(text) - 20:
        tree = drafter.propose(12)
        node, tokens = 0, []
        while True:
            tokens.append(text[position + len(tokens)])
            child = tree.child(node, tokens[-1])
            if child is None:
                break
            node = child
        if position > 1500:
            expected += sum(tree.p[1:])
            accepted += len(tokens) - 1
        feed(drafter, tree, tokens)
        position += len(tokens)
    assert accepted > 0
    assert expected == pytest.approx(accepted, rel=0.25)


def test_pruned_drafts_are_learned_from_as_well() -> None:
    """A governor that verifies nothing must not freeze the estimates."""
    drafter = LookupDrafter()
    drafter.start([1, 2, 3] * 5)
    before = float(drafter.propose(2).p[1])
    for token in [1, 2, 3] * 30:
        feed(drafter, drafter.propose(8), [token])
    assert float(drafter.propose(2).p[1]) > before
    for token in np.random.default_rng(0).integers(0, 3, 300).tolist():
        feed(drafter, drafter.propose(8), [token])
    assert float(drafter.propose(2).p[1]) < 0.8
