"""Speculation must not bend the distribution of the text: chi-square tests on a toy Markov chain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from localspec.decode import Generator, Limits
from localspec.methods.base import Method, Sampler, Walk
from localspec.methods.fixed import Fixed
from localspec.methods.strict import StrictVerifier
from localspec.tree import Tree, TreeBuilder
from tests.toy import Scripted, ToyContext, ToyRows, ToySampler, ToyVocab, collect, random_drafter

N_VOCAB = 6
TEMPERATURE = 4.0
#: 99.9 % point of chi-square with 6 * 5 = 30 degrees of freedom (each row of the transition table has 5)
CRITICAL = 59.70


def target() -> np.ndarray:
    """Row a: distribution of the token after a, as the toy gives it one token at a time."""
    rows = []
    for token in range(N_VOCAB):
        ctx = ToyContext(8, N_VOCAB, memory=1, eog_bias=0.0)
        logits = ctx.decode([token], [-1]).logits(0).astype(np.float64) / TEMPERATURE
        rows.append(np.exp(logits) / np.exp(logits).sum())
    return np.array(rows)


def statistic(method: Method, seed: int, n: int = 20_000) -> tuple[float, float]:
    """(chi-square over all transitions of `n` sampled tokens, share of drafts accepted)."""
    ctx = ToyContext(n + 8, N_VOCAB, memory=1, eog_bias=0.0)
    vocab = ToyVocab(eog=(), pieces=[b"x"] * N_VOCAB)
    sampler = ToySampler(TEMPERATURE, seed)
    tokens, _, done = collect(Generator(vocab, ctx).generate([0], sampler, method, Limits(n)))
    counts = np.zeros((N_VOCAB, N_VOCAB))
    np.add.at(counts, ([0, *tokens[:-1]], tokens), 1)
    expected = counts.sum(axis=1, keepdims=True) * target()
    assert expected.min() > 5
    return float(((counts - expected) ** 2 / expected).sum()), done.stats.n_accepted / max(1, done.stats.n_drafted)


def drafted(verifier: object, seed: int) -> Method:
    return Method("random", random_drafter(seed, n_vocab=N_VOCAB), Fixed(12), verifier)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_tokens_sampled_through_random_trees_have_the_target_distribution(seed: int) -> None:
    chi_square, accepted = statistic(drafted(StrictVerifier(), seed), seed)
    assert accepted > 0.05
    assert chi_square < CRITICAL


class Biased(StrictVerifier):
    """What a wrong verifier does: a second draw when the first one meets no child."""

    def walk(self, tree: Tree, rows: ToyRows, sampler: Sampler, stop: frozenset[int], limit: int) -> Walk:  # type: ignore[override]
        return super().walk(tree, rows, TwoDraws(tree, sampler), stop, limit)


class TwoDraws:
    def __init__(self, tree: Tree, sampler: Sampler) -> None:
        self._tree, self._sampler = tree, sampler
        self.accept: Callable[[int], None] = sampler.accept

    def sample(self, rows: ToyRows, i: int) -> int:
        token = self._sampler.sample(rows, i)
        return token if self._tree.child(i, token) is not None else self._sampler.sample(rows, i)


def test_the_statistic_finds_a_verifier_that_favours_drafts() -> None:
    # Drafting always the same tokens makes the bias plain: those tokens become too frequent.
    def grow(text: list[int], builder: TreeBuilder, max_nodes: int) -> None:
        builder.add_path(0, [1, 2, 3], [0.9] * 3)

    drafter = Scripted(grow)
    chi_square, _ = statistic(Method("biased", drafter, Fixed(4), Biased()), 1)
    assert chi_square > 2 * CRITICAL
    chi_square, _ = statistic(Method("strict", drafter, Fixed(4), StrictVerifier()), 1)
    assert chi_square < CRITICAL


class Sure(ToySampler):
    """Draws 1, 2, 3, ..."""

    def sample(self, rows: ToyRows, i: int) -> int:
        self.n_draws += 1
        return self.n_draws


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_a_walk_ends_at_its_limit_and_draws_no_further(limit: int) -> None:
    builder = TreeBuilder(0)
    builder.add_path(0, [1, 2, 3], [0.9] * 3)
    sampler = Sure()
    walk = StrictVerifier().walk(builder.build(), None, sampler, frozenset(), limit)  # type: ignore[arg-type]
    assert walk.tokens == (1, 2, 3, 4)[:limit]
    assert walk.path == (1, 2, 3)[:limit]
    assert sampler.history == list(walk.tokens)


def test_a_walk_ends_with_the_first_end_token() -> None:
    builder = TreeBuilder(0)
    builder.add_path(0, [1, 2, 3], [0.9] * 3)
    walk = StrictVerifier().walk(builder.build(), None, Sure(), frozenset({2}), 9)  # type: ignore[arg-type]
    assert (walk.tokens, walk.path) == ((1, 2), (1, 2))
