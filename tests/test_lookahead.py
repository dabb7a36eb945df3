"""Lookahead decoding: the window, the n-gram pool, and text that drafting does not change."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.methods.base import Method, Walk
from localspec.methods.fixed import Fixed
from localspec.methods.lookahead import LookaheadDrafter, NgramPool
from localspec.methods.strict import StrictVerifier
from localspec.tree import MAX_NODES, Tree, TreeBuilder
from tests.test_ptd_published import (
    NO_END,
    PROMPT,
    RuleRows,
    check_limits,
    check_same_text,
    check_tree,
    generated,
    successor,
    take_step,
)
from tests.test_sampling_exact import CRITICAL, Biased, statistic
from tests.toy import EOG, ToySampler

#: tokens that never meet each other, so that no nodes are merged
FAR_APART = list(range(0, 10**6, 1000))


def started(prompt: list[int] = FAR_APART, eog: frozenset[int] = NO_END, **sizes: int) -> LookaheadDrafter:
    drafter = LookaheadDrafter(eog, **sizes)  # type: ignore[arg-type]
    drafter.start(prompt)
    return drafter


# --- the pool


def test_the_pool_keeps_the_most_recent_n_grams_of_a_token() -> None:
    pool = NgramPool(guesses=2)
    for gram in [(1, 1), (2, 2), (1, 1), (3, 3)]:
        pool.add(7, gram)
    assert pool.get(7) == [(1, 1), (3, 3)], "the hit made (1, 1) recent, so (2, 2) had to go"
    assert pool.get(8) == ()


def test_the_number_of_first_tokens_is_bounded() -> None:
    pool = NgramPool(guesses=2, max_keys=2)
    for first in (1, 2, 1, 3):
        pool.add(first, (9,))
    assert len(pool) == 2
    assert pool.get(1) == ()


def test_n_grams_of_the_last_token_are_merged_into_a_tree() -> None:
    pool = NgramPool(guesses=4)
    for gram in [(1, 2, 3), (1, 2, 4), (5, 6, 7)]:
        pool.add(0, gram)
    builder = TreeBuilder(0)
    pool.draft(0, builder, MAX_NODES)
    tree = builder.build()
    leaves = {tuple(tree.tokens[i] for i in tree.topology.path(leaf)[1:]) for leaf in tree.topology.leaves}
    assert leaves == {(1, 2, 3), (1, 2, 4), (5, 6, 7)}
    assert len(tree) == 1 + 3 + 1 + 3
    builder = TreeBuilder(0)
    pool.draft(0, builder, 3)
    assert builder.tokens == [0, 5, 1], "parents first, newest first"


# --- the window


def test_the_first_window_is_random_tokens_of_the_prompt() -> None:
    drafter = started(PROMPT, frozenset({7}))
    tokens = {token for column in drafter.columns for token in column}
    assert tokens == set(PROMPT) - {7}
    assert [len(column) for column in drafter.columns] == [4] * 15
    assert started(PROMPT, frozenset({7})).columns == drafter.columns
    assert started(PROMPT, frozenset({7}), seed=11).columns != drafter.columns


def test_a_prompt_of_end_tokens_alone_still_fills_the_window() -> None:
    assert started([7], frozenset({7}), window=2, ngram=3).columns == [(7, 7), (7, 7)]


def test_the_lowest_level_is_a_chain_from_the_last_token_and_columns_hang_below_it() -> None:
    drafter = started(window=3, ngram=4)
    drafter.columns = [(0, 11, 12), (20, 21, 22), (30, 31, 32)]
    tree = drafter.propose(MAX_NODES)
    x = FAR_APART[-1]
    paths = {tree.tokens[i]: tuple(tree.tokens[j] for j in tree.topology.path(i)) for i in range(len(tree))}
    assert set(paths) == {x, 11, 12, 20, 21, 22, 30, 31, 32}, "the last token stands for the foot of column 0"
    assert paths[12] == (x, 11, 12)
    assert paths[22] == (x, 20, 21, 22)
    assert paths[32] == (x, 20, 30, 31, 32)
    # level l of column i stands at position i + l
    position = dict(zip(tree.tokens, tree.topology.depths, strict=True))
    assert [position[token] for token in (11, 12, 20, 21, 22, 30, 31, 32)] == [1, 2, 1, 2, 3, 2, 3, 4]


@pytest.mark.parametrize(("window", "ngram", "guesses"), [(15, 5, 15), (7, 5, 7), (20, 7, 20), (3, 2, 1)])
def test_a_full_tree_has_the_published_size(window: int, ngram: int, guesses: int) -> None:
    """120 nodes at 15/5/15: the last token, the rest of the lowest level, the other levels, all n-grams."""
    drafter = started(window=window, ngram=ngram, guesses=guesses)
    drafter.columns = [tuple(1000 * i + level for level in range(ngram - 1)) for i in range(window)]
    assert len(drafter.propose(MAX_NODES)) == window * (ngram - 1)
    for g in range(guesses + 3):
        drafter.pool.add(FAR_APART[-1], tuple(-100 * g - level for level in range(1, ngram)))
    assert len(drafter.propose(MAX_NODES)) == (window + guesses) * (ngram - 1)


def test_a_step_moves_every_column_one_iteration_on() -> None:
    drafter = started([5, 50], window=3, ngram=4)
    drafter.columns = [(0, 11, 12), (20, 21, 22), (30, 31, 39)]
    take_step(drafter)
    assert drafter.columns == [(11, 12, 13), (21, 22, 23), (31, 39, 40)]
    assert drafter.pool.get(50) == [(11, 12, 13)], "column 0 begins with the last token"
    assert drafter.pool.get(20) == [(21, 22, 23)]
    assert drafter.pool.get(30) == [(31, 39, 40)]
    assert len(drafter.pool) == 3


def test_the_window_does_not_move_by_the_accepted_length() -> None:
    drafter = started([5, 50], window=2, ngram=3)
    drafter.columns = [(0, 1), (70, 71)]
    drafter.pool.add(50, (51, 52))
    _, walk = take_step(drafter)
    assert walk.tokens == (51, 52, 53)
    assert drafter.columns == [(1, 2), (71, 72)]


def test_n_grams_of_two_tokens_need_the_lowest_level_alone() -> None:
    drafter = started([5, 50], window=2, ngram=2)
    drafter.columns = [(0,), (20,)]
    take_step(drafter)
    assert drafter.columns == [(51,), (21,)]
    assert (drafter.pool.get(50), drafter.pool.get(20)) == ([(51,)], [(21,)])


def test_an_end_token_is_kept_as_a_guess_but_replaced_in_the_window() -> None:
    drafter = started([5, 6, 8], frozenset({13}), window=1, ngram=3)
    drafter.columns = [(0, 12)]
    take_step(drafter)
    assert drafter.pool.get(8) == [(12, 13)]
    assert drafter.columns[0][0] == 12
    assert drafter.columns[0][1] in (5, 6, 8)


def test_a_cut_window_keeps_whole_columns_and_moves_those_alone() -> None:
    drafter = started([5, 50], window=3, ngram=3)
    drafter.columns = [(0, 11), (20, 21), (30, 31)]
    assert drafter.propose(5).tokens == (50, 11, 20, 21, 30)
    take_step(drafter, max_nodes=5)
    assert drafter.columns == [(11, 12), (21, 22), (30, 31)]
    assert drafter.pool.get(30) == ()
    take_step(drafter, max_nodes=1)
    assert drafter.columns == [(11, 12), (21, 22), (30, 31)]


def test_a_pruned_column_stays_while_others_move() -> None:
    drafter = started([5, 50], window=3, ngram=3)
    drafter.columns = [(0, 11), (20, 21), (30, 31)]
    tree = drafter.propose(MAX_NODES)
    assert tree.tokens == (50, 11, 20, 21, 30, 31)
    pruned = tree.prune([0, 2, 3, 4, 5])
    drafter.observe(pruned, RuleRows(pruned, successor), Walk((), (51,)))  # type: ignore[arg-type]
    assert drafter.columns == [(0, 11), (21, 22), (31, 32)]


def test_a_step_without_a_draft_is_followed_all_the_same() -> None:
    drafter = started(window=3, ngram=3)
    before = list(drafter.columns)
    drafter.observe(Tree.root(FAR_APART[-1]), None, Walk((), (33,)))  # type: ignore[arg-type]
    assert drafter.columns == before
    assert len(drafter.pool) == 0
    assert drafter.propose(4).tokens[0] == 33


def test_a_generation_starts_with_an_empty_pool_and_the_same_window() -> None:
    drafter = started(PROMPT)
    first = drafter.propose(64)
    for _ in range(6):
        take_step(drafter)
    assert len(drafter.pool)
    drafter.start(PROMPT)
    assert len(drafter.pool) == 0
    assert drafter.propose(64) == first


def test_guesses_come_true_when_the_text_repeats() -> None:
    drafter = started(list(range(40)))
    lengths = [len(take_step(drafter, lambda path: (path[-1] + 1) % 40)[1].tokens) for _ in range(60)]
    assert lengths[:3] == [1] * 3
    assert max(lengths) == 5, "an n-gram has four tokens to accept"
    assert np.mean(lengths[30:]) > 4


@pytest.mark.parametrize("sizes", [{"window": 0}, {"ngram": 1}, {"guesses": 0}])
def test_wrong_sizes_are_refused(sizes: dict[str, int]) -> None:
    name, size = next(iter(sizes.items()))
    with pytest.raises(UsageError, match=f"{name} {size} .give {size + 1} or more"):
        LookaheadDrafter(NO_END, **sizes)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 11), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(1, 64), st.integers(0, 64)), min_size=1, max_size=40),
    st.integers(1, 6),
    st.integers(2, 5),
    st.integers(0, 9),
)
def test_any_model_and_budget_keep_all_bounds(
    prompt: list[int], steps: list[tuple[int, int]], window: int, ngram: int, noise: int
) -> None:
    drafter = started(prompt, frozenset({3}), window=window, ngram=ngram, guesses=4)
    last = prompt[-1]
    for max_nodes, keep in steps:
        check_tree(drafter.propose(max_nodes), last, max_nodes)
        _, walk = take_step(drafter, lambda path: (path[-1] * 5 + sum(path[-3:]) * noise + 1) % 12, max_nodes, keep)
        last = walk.tokens[-1]
        assert [len(column) for column in drafter.columns] == [ngram - 1] * window
        assert set(prompt) == {3} or all(3 not in column for column in drafter.columns)
        for first in range(12):
            grams = drafter.pool.get(first)
            assert len(set(grams)) == len(grams) <= 4
            assert all(len(gram) == ngram - 1 for gram in grams)


def test_remembered_n_grams_are_what_the_model_said() -> None:
    """With a stable model an n-gram ends in what the model puts after its other tokens."""
    rng = Random(2)
    after = [rng.randrange(30) for _ in range(30)]
    drafter = started(list(range(30)))
    for _ in range(8):
        take_step(drafter, lambda path: after[path[-1]])
    seen = [(first, *gram) for first in range(30) for gram in drafter.pool.get(first)]
    assert len(seen) > 30
    assert all(gram[-1] == after[gram[-2]] for gram in seen)


# --- the text


def test_text_is_that_of_plain_decoding() -> None:
    check_same_text(lambda: LookaheadDrafter(frozenset({EOG}), window=7, guesses=7))


def test_an_end_token_ends_the_text_as_in_plain_decoding() -> None:
    plain, _ = generated(None, ToySampler(1.0, 4), eog_bias=1.0)
    drafted, done = generated(LookaheadDrafter(frozenset({EOG})), ToySampler(1.0, 4), n_nodes=128, eog_bias=1.0)
    assert drafted == plain
    assert plain[-1] == EOG
    assert done.reason == "stop"


def test_limits_are_kept() -> None:
    check_limits(lambda: LookaheadDrafter(frozenset({EOG}), window=5, guesses=5))


@pytest.mark.parametrize("seed", [1, 2])
def test_sampled_tokens_have_the_target_distribution(seed: int) -> None:
    drafter = LookaheadDrafter(NO_END, window=3, ngram=4, guesses=3)
    chi_square, accepted = statistic(Method("lookahead", drafter, Fixed(19), StrictVerifier()), seed, n=6000)
    assert accepted > 0.02
    assert chi_square < CRITICAL


def test_the_statistic_would_find_a_bias_towards_these_drafts() -> None:
    drafter = LookaheadDrafter(NO_END, window=2, ngram=3, guesses=1)
    chi_square, _ = statistic(Method("lookahead", drafter, Fixed(7), Biased()), 1, n=6000)
    assert chi_square > 2 * CRITICAL
