"""The native drafter gives the trees of the reference in `localspec.methods.ptd.core`, to the last bit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.methods.ptd import core
from localspec.methods.ptd.automaton import SuffixAutomaton
from localspec.methods.ptd.core import PtdCore, PtdPool, Top
from localspec.methods.ptd.native import BYTES_A_TOKEN, NativeCore, NativeCorpus, NativePool
from localspec.methods.ptd.recycling import TOP_K
from localspec.tree import MAX_NODES, Tree
from tests.engine.trees import NEEDS_PATCHES

pytestmark = NEEDS_PATCHES

EXTREMES = (-(2**31), 2**31 - 1, -1, 0, 1, -2, 2**30)
VOCABULARIES: tuple[Sequence[int], ...] = (range(2), range(5), range(60), range(150_000), EXTREMES)
#: differences of logits at and around the limits of the classes, and ties
STEPS = (0.0, 0.0, 0.3, 0.69999, 0.7, 0.70001, 1.0, 1.5, 2.0, 2.5, 4.0, 4.5, 5.0, 6.0, 7.0)


class Twins:
    """The two pools, some cores on each, and what both must agree on."""

    def __init__(
        self,
        widths: Sequence[int | None],
        max_entries: int,
        max_text: int = core.MAX_TEXT,
        corpus: Sequence[int] = (),
    ) -> None:
        self.pools = PtdPool(max_entries, SuffixAutomaton(corpus)), NativePool(max_entries, NativeCorpus(corpus))
        self.cores = [(PtdCore(self.pools[0], w), NativeCore(self.pools[1], w, max_text)) for w in widths]
        self.trees: list[Tree | None] = [None] * len(widths)

    def extend(self, i: int, tokens: Sequence[int]) -> None:
        for one in self.cores[i]:
            one.extend(tokens)

    def propose(self, i: int, max_nodes: int, least_p: float = 0.0) -> Tree:
        expected, found = (one.propose(max_nodes, least_p) for one in self.cores[i])
        assert found.topology.parents == expected.topology.parents
        assert found.tokens == expected.tokens
        assert found.p == expected.p
        self.trees[i] = expected
        return expected

    def learn(self, i: int, tree: Tree, tops: Sequence[Top], path: Sequence[int], written: Sequence[int]) -> None:
        reference, native = self.cores[i]
        reference.learn(tree, tops, path, written)
        if all(len(ids) == TOP_K for ids, _ in tops):
            ids = np.array([ids for ids, _ in tops], dtype=np.int32)
            logits = np.array([logits for _, logits in tops], dtype=np.float32)
            native.learn_rows(tree, ids.ctypes.data, logits.ctypes.data, path, written)
        else:
            native.learn(tree, tops, path, written)
        assert len(self.pools[1]) == len(self.pools[0].successors)
        expected, found = (one.n_text for one in self.cores[i])
        assert found == expected

    def reset(self, i: int) -> None:
        for one in self.cores[i]:
            one.reset()

    def clear(self) -> None:
        for pool in self.pools:
            pool.clear()


def random_top(rng: random.Random, vocabulary: Sequence[int], full: bool) -> Top:
    n = TOP_K if full else rng.choice((0, 1, 2, 3, TOP_K, TOP_K))
    logit = rng.uniform(-5, 20)
    logits = []
    for _ in range(n):
        logits.append(float(np.float32(logit)))
        logit -= rng.choice(STEPS)
    return [rng.choice(vocabulary) for _ in range(n)], logits


def random_walk(rng: random.Random, tree: Tree, vocabulary: Sequence[int]) -> tuple[list[int], list[int]]:
    """Nodes down the tree as far as it goes, or less, and what was written: with the bonus token or without."""
    path: list[int] = []
    node = 0
    while (children := tree.topology.children[node]) and rng.random() < 0.8:
        node = rng.choice(children)
        path.append(node)
    written = [tree.tokens[node] for node in path]
    if not path or rng.random() < 0.9:
        written.append(rng.choice(vocabulary))
    return path, written


def random_step(rng: random.Random, twins: Twins, i: int, vocabulary: Sequence[int]) -> None:
    """A step on core `i`, whose text is not empty: usually its draft is verified, at times another or only a part."""
    tree = twins.trees[i]
    if tree is None or rng.random() < 0.9:
        max_nodes = rng.choice((1, 2, 4, 8, 16, 64, MAX_NODES))
        tree = twins.propose(i, max_nodes, rng.choice((0.0, 0.0, 0.01, 0.2)))
    if rng.random() < 0.2:
        tree = tree.prune(range(rng.randint(1, len(tree))))
    full = rng.random() < 0.5
    tops = [random_top(rng, vocabulary, full) for _ in range(len(tree))]
    twins.learn(i, tree, tops, *random_walk(rng, tree, vocabulary))


def drive(seed: int, n: int, widths: Sequence[int | None], max_entries: int, max_text: int) -> None:
    """`n` random calls, which both must answer alike."""
    rng = random.Random(seed)
    vocabulary = rng.choice(VOCABULARIES)
    corpus = [rng.choice(vocabulary) for _ in range(rng.choice((0, 0, 1, 10, 300)))]
    with patch.object(core, "MAX_TEXT", max_text):
        twins = Twins(widths, max_entries, max_text, corpus)
        texts: list[list[int]] = [[] for _ in widths]
        for _ in range(n):
            i = rng.randrange(len(widths))
            what = rng.random()
            if not texts[i] or what < 0.15:
                source = rng.choice((texts[i], corpus, []))
                known = source[rng.randrange(len(source)) :] if source else []
                new = [*known[:20], *(rng.choice(vocabulary) for _ in range(rng.randrange(1, 30)))]
                twins.extend(i, new)
                texts[i] += new
            elif what < 0.17:
                twins.reset(i)
                texts[i] = []
            elif what < 0.18:
                twins.clear()
            else:
                random_step(rng, twins, i, vocabulary)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 120),
    st.lists(st.sampled_from((None, None, 1, 2)), min_size=1, max_size=2),
    st.sampled_from((1, 2, 3, 10, 64, 1000, 1 << 16)),
    st.sampled_from((1, 2, 7, 50, 301, core.MAX_TEXT)),
)
def test_random_calls(seed: int, n: int, widths: list[int | None], max_entries: int, max_text: int) -> None:
    drive(seed, n, widths, max_entries, max_text)


def test_many_calls() -> None:
    for seed in range(4):
        drive(seed, 1500, (None, 2), 200, 1000)


def markov_row(before: int, last: int) -> Top:
    """What a model may think after two tokens: always the same four, of which the first are the likelier."""
    rng = random.Random(before * 1000 + last)
    logits = sorted((rng.uniform(0, 9) for _ in range(4)), reverse=True)
    return rng.sample(range(200), 4), [float(np.float32(logit)) for logit in logits]


def markov_text(n: int) -> list[int]:
    rng = random.Random(5)
    text = [1, 2]
    while len(text) < n:
        ids, logits = markov_row(text[-2], text[-1])
        text += rng.choices(ids, [2.0**logit for logit in logits])
    return text


def follow(tree: Tree, text: Sequence[int]) -> tuple[list[int], list[int]]:
    """The path whose tokens `text` begins with; these, and one more."""
    path: list[int] = []
    node: int | None = 0
    while len(path) < len(text) - 1 and (node := tree.child(path[-1] if path else 0, text[len(path)])) is not None:
        path.append(node)
    return path, list(text[: len(path) + 1])


@pytest.mark.parametrize("width", [None, 1])
@pytest.mark.parametrize("n_corpus", [0, 1500])
def test_a_generated_text(width: int | None, n_corpus: int) -> None:
    text = markov_text(3000 + n_corpus)
    text, corpus = text[:3000], text[3000:]
    twins = Twins((width,), 500, corpus=corpus)
    at = 600
    twins.extend(0, text[:at])
    lengths = []
    while at < len(text):
        tree = twins.propose(0, 12, 0.02)
        rows = []
        for parent, token in zip(tree.topology.parents, tree.tokens, strict=True):
            rows.append(markov_row(text[at - 2] if parent < 0 else tree.tokens[parent], token))
        path, written = follow(tree, text[at:])
        twins.learn(0, tree, rows, path, written)
        at += len(written)
        lengths.append(len(written))
    assert max(lengths) > 2  # else nothing was drafted that came true


def test_a_text_longer_than_is_kept() -> None:
    rng = random.Random(3)
    twins = Twins((None,), 1000)
    twins.extend(0, rng.choices(range(3), k=core.MAX_TEXT - 50))
    for _ in range(40):
        random_step(rng, twins, 0, range(3))
    assert twins.cores[0][1].n_text < core.MAX_TEXT - 50  # it was cut
    assert twins.cores[0][1].n_bytes < BYTES_A_TOKEN * core.MAX_TEXT


def test_a_text_of_one_repeated_token() -> None:
    rng = random.Random(4)
    twins = Twins((None,), 1000)
    twins.extend(0, [7] * 5000)
    for _ in range(50):
        random_step(rng, twins, 0, (7, 7, 7, 8))


def test_a_root_with_thousands_of_followers() -> None:
    rng = random.Random(5)
    twins = Twins((None,), 1000)
    twins.extend(0, [token for other in range(5000) for token in (1, 2, 10 + other)])
    twins.extend(0, [1, 2])
    for _ in range(50):
        random_step(rng, twins, 0, (1, 2, 11, 12))


def test_enough_candidates_end_the_asking() -> None:
    """Three after each of the two longest suffixes, so that what followed the third is not asked for."""
    separators = iter(range(100, 1000))
    text: list[int] = []
    for context, followers, times in (
        ((1, 2, 3), (11, 12, 13), 1),
        ((9, 2, 3), (14, 15, 16), 2),
        ((8, 3), (17, 18), 3),
    ):
        for follower in followers * times:
            text += [*context, follower, next(separators)]
    twins = Twins((None,), 1000)
    twins.extend(0, [*text, 1, 2, 3])
    tree = twins.propose(0, MAX_NODES)
    assert {tree.tokens[child] for child in tree.topology.children[0]} == set(range(11, 17))
