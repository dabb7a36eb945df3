"""Sequoia's rule must keep the target's law, whatever the heads propose: by enumeration, and by chi-square tests.

Critical values are 99.9 % points; what passes passes always, as the draws are seeded.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from localspec.engine.base import Law
from localspec.errors import EngineError
from localspec.heads.draws import SampledDraft, draw
from localspec.methods.sampled import DraftSampling
from localspec.methods.sequoia import SequoiaVerifier, pick, try_children
from localspec.tree import Tree

N = 8_000
#: by degrees of freedom
CRITICAL = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52, 19: 43.82}

P = np.array([0.30, 0.25, 0.20, 0.15, 0.07, 0.03])
#: the head knows four of the six tokens, in an order of its own: token of each row, row of each token
TOKENS = np.array([4, 0, 2, 1])
PLACE = np.array([1, 3, 2, -1, 0, -1])
LAWS = {
    "close": np.array([0.1, 0.4, 0.2, 0.3]),
    "wrong": np.array([0.9, 0.02, 0.05, 0.03]),
    "equal": np.array([0.07, 0.30, 0.20, 0.25]) / 0.82,
    "two possible": np.array([0.0, 0.7, 0.3, 0.0]),
    "one possible": np.array([1.0, 0.0, 0.0, 0.0]),
}
Rule = Callable[[np.ndarray, np.ndarray, np.random.Generator], int]


def chi_square(counts: np.ndarray, p: np.ndarray) -> float:
    expected = counts.sum() * p
    assert expected[p > 0].min() > 5
    assert counts[p == 0].sum() == 0
    return float(((counts - expected)[p > 0] ** 2 / expected[p > 0]).sum())


def emit(n: int, skip: tuple[int, ...] = (), q_of: Callable[[np.ndarray], np.ndarray] = lambda q: q) -> Rule:
    """The rule with `n` draws, those of index `skip` left out; `q_of` is what the verifier takes for the law."""

    def rule(p: np.ndarray, q: np.ndarray, rng: np.random.Generator) -> int:
        draws = draw(q, n, rng).tolist()
        kept = [row for i, row in enumerate(draws) if i not in skip]
        row, rest = try_children(p, q_of(q), PLACE, draws, kept, rng.random)
        return int(TOKENS[row]) if row is not None else pick(rest, rng.random())

    return rule


def statistic(rule: Rule, q: np.ndarray, p: np.ndarray = P, seed: int = 2) -> float:
    rng = np.random.default_rng(seed)
    counts = np.bincount([rule(p, q, rng) for _ in range(N)], minlength=len(p))
    return chi_square(counts, p)


def chance(order: tuple[int, ...], q: np.ndarray) -> float:
    """That of these draws, by definition: each from what is left, renormalised; uniform when nothing is left."""
    left, p = q.copy(), 1.0
    for i, row in enumerate(order):
        if left.sum() == 0.0:
            left = np.array([float(other not in order[:i]) for other in range(len(q))])
        p *= left[row] / left.sum()
        left[row] = 0.0
    return p


def emitted(order: tuple[int, ...], q: np.ndarray) -> np.ndarray:
    """The exact law of the token when these are the draws: from the largest random number that accepts each of them."""
    surely_not = 1.0 - 1e-16
    law, reached = np.zeros(len(P)), 1.0

    def outcome(*numbers: float) -> tuple[int | None, np.ndarray]:
        return try_children(P, q, PLACE, order, order, iter((*numbers, *[surely_not] * len(order))).__next__)

    for i, row in enumerate(order):
        before = [surely_not] * i
        least, most = 0.0, 1.0
        for _ in range(60):
            middle = (least + most) / 2
            least, most = (middle, most) if outcome(*before, middle)[0] == row else (least, middle)
        law[TOKENS[row]] += reached * least
        reached *= 1.0 - least
        if outcome(*before, surely_not)[0] == row:
            return law
    return law + reached * outcome()[1]


@pytest.mark.parametrize("q", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_law_of_a_token_is_exactly_that_of_the_target(q: np.ndarray, n: int) -> None:
    law = sum(chance(order, q) * emitted(order, q) for order in permutations(range(len(q)), n))
    np.testing.assert_allclose(law, P, rtol=1e-12)


@pytest.mark.parametrize("q", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_tokens_have_the_law_of_the_target(q: np.ndarray, n: int) -> None:
    assert statistic(emit(n), q) < CRITICAL[5]


@pytest.mark.parametrize("skip", [(0,), (1,), (0, 2), (2, 3)], ids=str)
def test_draws_may_be_left_out_by_their_place(skip: tuple[int, ...]) -> None:
    assert statistic(emit(4, skip), LAWS["close"]) < CRITICAL[5]
    assert statistic(emit(4, skip), LAWS["wrong"]) < CRITICAL[5]


def test_tokens_that_the_target_cannot_say_are_never_said() -> None:
    p = np.array([0.0, 0.6, 0.0, 0.4, 0.0, 0.0])
    assert statistic(emit(3), LAWS["close"], p) < CRITICAL[1]


def test_the_statistic_finds_a_verifier_with_another_law_than_that_of_the_draws() -> None:
    sharper = emit(2, q_of=lambda q: q**2 / (q**2).sum())
    assert statistic(sharper, LAWS["close"]) > 2 * CRITICAL[5]


def test_the_statistic_finds_an_argmax_in_place_of_a_draw_from_the_rest() -> None:
    def rule(p: np.ndarray, q: np.ndarray, rng: np.random.Generator) -> int:
        draws = draw(q, 2, rng).tolist()
        row, rest = try_children(p, q, PLACE, draws, draws, rng.random)
        return int(TOKENS[row]) if row is not None else int(rest.argmax())

    assert statistic(rule, LAWS["close"]) > 2 * CRITICAL[5]


def test_the_statistic_finds_a_choice_among_draws_by_their_probability() -> None:
    """What a scheduler would do that keeps the likelier of two draws."""

    def rule(p: np.ndarray, q: np.ndarray, rng: np.random.Generator) -> int:
        draws = draw(q, 2, rng).tolist()
        row, rest = try_children(p, q, PLACE, draws, [max(draws, key=q.__getitem__)], rng.random)
        return int(TOKENS[row]) if row is not None else pick(rest, rng.random())

    assert statistic(rule, LAWS["close"]) > 2 * CRITICAL[5]


@pytest.mark.parametrize("q", [LAWS["close"], LAWS["two possible"]], ids=["possible", "used up"])
def test_draws_are_sequential_draws_without_replacement(q: np.ndarray) -> None:
    rng = np.random.default_rng(3)
    n = 20_000
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(n):
        order = tuple(draw(q, 3, rng).tolist())
        counts[order] = counts.get(order, 0) + 1

    assert all(len(set(order)) == 3 for order in counts)
    orders = list(permutations(range(4), 3))
    p = np.array([chance(order, q) for order in orders])
    assert p.sum() == pytest.approx(1.0)
    assert chi_square(np.array([counts.get(order, 0) for order in orders]), p) < 49.73  # at most 23 degrees of freedom


class Laws:
    """A sampler with a law for every history: `law` is asked with the tokens so far."""

    native_seconds = 0.0

    def __init__(self, law: Callable[[tuple[int, ...]], np.ndarray], rng: np.random.Generator) -> None:
        self._law, self._rng = law, rng
        self.history: tuple[int, ...] = ()

    def law(self, rows: Any, i: int) -> Law:
        p = self._law(self.history)
        return Law(np.flatnonzero(p).astype(np.int32), p[p > 0])

    def sample(self, rows: Any, i: int) -> int:
        law = self.law(rows, i)
        return int(self._rng.choice(law.ids, p=law.p))

    def uniform(self) -> float:
        return float(self._rng.random())

    def accept(self, token: int) -> None:
        self.history += (token,)


def target(history: tuple[int, ...]) -> np.ndarray:
    return np.roll(P, sum(history) + len(history))


PARENTS = (-1, 0, 0, 0, 1, 1, 2, 4)
CHILDREN = ((1, 2, 3), (4, 5), (6,), (), (7,), (), (), ())


def drafted(rng: np.random.Generator) -> SampledDraft:
    """A tree below token 5 whose laws depend on the path, as those of grounded heads do."""
    tokens = np.full(len(PARENTS), 5, dtype=np.int32)
    laws = {}
    for node, children in enumerate(CHILDREN):
        if children:
            laws[node] = np.roll(LAWS["close"], int(tokens[node]) + node)
            tokens[list(children)] = TOKENS[draw(laws[node], len(children), rng)]
    return SampledDraft(tokens, CHILDREN, laws, PLACE)


@pytest.mark.parametrize("keep", [range(8), (0, 1, 2, 4, 6, 7), (0, 2, 3, 6), (0,)], ids=str)
def test_walks_through_drawn_trees_have_the_law_of_the_target(keep: Any) -> None:
    rng = np.random.default_rng(7)
    pairs = np.zeros((6, 6))
    n_accepted = 0
    for _ in range(N):
        sampling = DraftSampling(1.0, rng, drafted(rng))
        whole = Tree.of(PARENTS, sampling.drawn.tokens.tolist(), [1.0] * len(PARENTS))
        sampler = Laws(target, rng)
        walk = SequoiaVerifier(sampling).walk(whole.prune(list(keep)), None, sampler, frozenset(), 8)
        assert sampler.history == walk.tokens
        n_accepted += len(walk.path)
        while len(sampler.history) < 2:  # the text goes on plainly
            sampler.accept(sampler.sample(None, 0))
        pairs[sampler.history[:2]] += 1
    p = np.array([[P0 * P1 for P1 in target((first,))] for first, P0 in enumerate(target(()))])
    assert (n_accepted > 0) == (len(keep) > 1)
    assert chi_square(pairs.ravel(), p.ravel()) < 66.62  # 35 degrees of freedom


def test_a_walk_ends_at_its_limit_and_at_the_first_end_token() -> None:
    sure = {node: np.eye(4)[i] for i, node in enumerate((0, 1, 2))}
    drawn = SampledDraft(np.array([5, 4, 0, 2], np.int32), ((1,), (2,), (3,), ()), sure, PLACE)
    tree = Tree.of((-1, 0, 1, 2), (5, 4, 0, 2), (1.0,) * 4)

    def law(history: tuple[int, ...]) -> np.ndarray:
        return np.eye(6)[(4, 0, 2, 3)[len(history)]]

    verifier = SequoiaVerifier(DraftSampling(1.0, np.random.default_rng(1), drawn))
    for limit in (1, 2, 3, 4):
        walk = verifier.walk(tree, None, Laws(law, np.random.default_rng(2)), frozenset(), limit)
        assert (walk.tokens, walk.path) == ((4, 0, 2, 3)[:limit], (1, 2, 3)[:limit])
    walk = verifier.walk(tree, None, Laws(law, np.random.default_rng(2)), frozenset({0}), 9)
    assert (walk.tokens, walk.path) == ((4, 0), (1, 2))


@pytest.mark.parametrize("drawn", [None, SimpleNamespace(tokens=[5, 1, 2], children=((1, 2), (), ()))])
def test_a_tree_that_was_not_drawn_is_refused(drawn: Any) -> None:
    tree = Tree.of((-1, 0), (5, 3), (1.0, 1.0))
    sampler = Laws(target, np.random.default_rng(1))
    with pytest.raises(EngineError, match="not the one that was drawn"):
        SequoiaVerifier(DraftSampling(1.0, np.random.default_rng(1), drawn)).walk(tree, None, sampler, frozenset(), 9)


def test_pick_gives_every_entry_its_share() -> None:
    law = np.array([0.0, 0.25, 0.0, 0.75, 0.0])
    assert [pick(law, number) for number in (0.0, 0.2, 0.26, 0.99, np.nextafter(1.0, 0.0))] == [1, 1, 3, 3, 3]
