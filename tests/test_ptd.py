"""ptd drafts what text and model speak for, within its budget, and keeps users apart."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.decode import Generator, Limits
from localspec.methods.base import Method, Walk
from localspec.methods.fixed import Fixed
from localspec.methods.ptd import native
from localspec.methods.ptd.core import PtdCore, PtdPool
from localspec.methods.ptd.drafter import PtdDrafter
from localspec.methods.registry import make_method
from localspec.methods.strict import StrictVerifier
from localspec.tree import Tree
from tests.test_sampling_exact import CRITICAL, N_VOCAB, statistic
from tests.toy import ToyContext, ToySampler, ToyVocab, collect


@pytest.fixture(params=["python", "native"], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs with both implementations."""
    if request.param == "python":
        monkeypatch.setattr(native, "available", lambda: False)
    elif not native.available():
        pytest.skip("this llama-cpp-python lacks the native drafter")
    return str(request.param)


NOTHING: dict[int, tuple[list[int], list[float]]] = {}


class Rows:
    """Rows whose best tokens are given by node; other nodes have none."""

    def __init__(self, tops: dict[int, tuple[list[int], list[float]]]) -> None:
        self._tops = tops

    def top_k(self, i: int, k: int) -> tuple[list[int], list[float]]:
        ids, logits = self._tops.get(i, ([], []))
        return ids[:k], logits[:k]


def started(text: list[int], **settings: object) -> PtdDrafter:
    drafter = PtdDrafter(**settings)  # type: ignore[arg-type]
    drafter.start(text)
    return drafter


def feed(drafter: PtdDrafter, tokens: list[int], tops: dict[int, tuple[list[int], list[float]]] = NOTHING) -> None:
    """The model wrote `tokens`, one a step; `tops` are the best tokens of the last root."""
    for i, token in enumerate(tokens):
        root = drafter.propose(1)
        drafter.observe(root, Rows(tops if i == len(tokens) - 1 else NOTHING), Walk((), (token,)))  # type: ignore[arg-type]


def children(tree: Tree, node: int = 0) -> list[int]:
    return [tree.tokens[child] for child in tree.topology.children[node]]


def paths(tree: Tree) -> set[tuple[int, ...]]:
    return {tuple(tree.tokens[node] for node in tree.topology.path(leaf)[1:]) for leaf in tree.topology.leaves}


def test_the_continuation_of_the_longest_match_is_the_spine() -> None:
    tree = started([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3]).propose(5)
    assert tree.tokens == (3, 4, 5, 6, 7) and tree.topology.parents == (-1, 0, 1, 2, 3)
    assert list(tree.p) == sorted(tree.p, reverse=True)


def test_a_longer_match_is_believed_more_than_a_recent_one() -> None:
    tree = started([1, 2, 3, 4, 5, 6, 9, 9, 9, 4, 5, 7, 1, 2, 3, 4, 5]).propose(3)
    assert children(tree)[0] == 6


def test_what_the_model_thought_of_becomes_branches_of_the_spine() -> None:
    drafter = started([1, 2, 3, 10])
    feed(drafter, [1], {0: ([1, 20, 21], [5.0, 4.8, 4.0])})  # after 10
    feed(drafter, [2, 3, 10])
    tree = drafter.propose(64)
    assert {1, 20, 21} <= set(children(tree))


def test_two_tokens_are_asked_before_one() -> None:
    drafter = started([1, 2])
    feed(drafter, [50], {0: ([7], [3.0])})  # after 1, 2
    feed(drafter, [2], {0: ([2], [3.0])})
    feed(drafter, [51], {0: ([8], [3.0])})  # after 50, 2
    feed(drafter, [1, 2])
    assert 7 in children(drafter.propose(16)) and 8 not in children(drafter.propose(16))


def test_candidates_of_the_row_before_come_a_token_later() -> None:
    drafter = started([1, 2, 3, 4])
    feed(drafter, [60], {0: ([60, 61], [3.0, 2.9])})
    assert children(drafter.propose(16)) == [61]


def test_rows_of_rejected_drafts_are_kept_as_well() -> None:
    drafter = started([1, 2, 3, 9, 1, 2])
    tree = drafter.propose(3)
    assert tree.tokens[1] == 3
    drafter.observe(tree, Rows({1: ([77], [3.0])}), Walk((), (4,)))  # type: ignore[arg-type]
    feed(drafter, [1, 2, 3])
    assert 77 in children(drafter.propose(16))


def test_the_corpus_tells_how_to_go_on_where_nothing_else_does() -> None:
    corpus = native.new_corpus([70, 1, 2, 3, 4, 5, 71])
    assert started([1, 2], corpus=corpus).propose(16).tokens[:3] == (2, 3, 4)
    assert started([8, 9], corpus=corpus).propose(4).tokens == (9,)
    drafter = started([1, 2, 33, 70, 2], corpus=corpus)  # the corpus knows 2 alone by now, the text as well
    feed(drafter, [1], {0: ([20], [5.0])})
    feed(drafter, [2])
    tree = drafter.propose(16)
    assert {33, 3} <= set(children(tree))
    assert tree.p[tree.child(0, 33) or 0] > tree.p[tree.child(0, 3) or 0], "the text is believed more"


def test_the_corpus_outlives_a_cleared_pool_and_is_never_added_to() -> None:
    corpus = native.new_corpus([1, 2, 3])
    first, second = native.new_pool(corpus=corpus), native.new_pool(corpus=corpus)
    drafter = started([50, 51, 52, 50], pool=first)
    feed(drafter, [51], {0: ([53], [5.0])})
    first.clear()
    assert started([1], pool=first).propose(3).tokens == (1, 2, 3)
    assert started([50], pool=second).propose(16).tokens == (50,)


def test_a_copy_goes_on_behind_a_changed_token() -> None:
    source = [11, 12, 13, 14, 15, 16, 17]
    drafter = started([*source, 99, 11, 12, 13])
    feed(drafter, [40])  # in place of 14; 40 was never seen
    assert children(drafter.propose(16)) == [15]
    assert (15, 16, 17) in {path[:3] for path in paths(drafter.propose(16))}


def test_the_shift_by_accepted_tokens_leaves_drafter_and_text_in_step() -> None:
    drafter = started([1, 2, 3, 4, 5, 1, 2])
    tree = drafter.propose(4)
    assert tree.tokens == (2, 3, 4, 5)
    drafter.observe(tree, Rows({}), Walk((1, 2), (3, 4, 30)))  # type: ignore[arg-type]
    assert drafter.propose(1).tokens == (30,)
    feed(drafter, [2, 3, 4])
    assert set(children(drafter.propose(16))) == {30, 5}


def test_a_drafter_that_is_right_is_believed_more_and_one_that_is_wrong_less() -> None:
    drafter = started([1, 2] * 3)
    first = drafter.propose(2).p[1]
    for _ in range(40):
        tree = drafter.propose(2)
        drafter.observe(tree, Rows({}), Walk((1,), (tree.tokens[1], 1 if tree.tokens[1] == 2 else 2)))  # type: ignore[arg-type]
    right = drafter.propose(2).p[1]
    rng = random.Random(1)
    other = started([1, 2] * 3)
    for _ in range(300):
        other.observe(other.propose(2), Rows({}), Walk((), (rng.choice([1, 2, 3]),)))  # type: ignore[arg-type]
    assert right > first
    assert other.propose(2).p[1] < right


def test_unlikely_nodes_are_left_out_on_request() -> None:
    drafter = started([1, 2, 5, 1, 3, 6, 1, 4, 7, 1])
    everything = drafter.propose(64)
    likely = drafter.propose(64, least_p=0.1)
    assert 1 < len(likely) < len(everything)
    assert min(likely.p) >= 0.1


def test_width_one_drafts_chains() -> None:
    text = [1, 2, 5, 1, 3, 6, 1, 4, 7, 1]
    assert max(map(len, started(text).propose(16).topology.children)) > 1
    assert max(map(len, started(text, width=1).propose(16).topology.children)) == 1


@pytest.mark.parametrize("n", [1, 5, 31, 32, 33, 100])
def test_plain_steps_are_known_when_a_draft_is_asked_for(n: int) -> None:
    rng = random.Random(n)
    written = [rng.randrange(9) for _ in range(n)]
    rows = [([rng.randrange(9, 20), rng.randrange(20, 30)], [3.0, 2.5]) for _ in range(n)]
    each, late = started([1, 2, 3]), started([1, 2, 3])
    for token, row in zip(written, rows, strict=True):
        root = each.propose(1)
        each.observe(root, Rows({0: row}), Walk((), (token,)))  # type: ignore[arg-type]
        each.propose(2)  # a draft that is not verified
        late.observe(root, Rows({0: row}), Walk((), (token,)))  # type: ignore[arg-type]
    for drafter in (each, late):
        drafter.pool.rates.reset() if isinstance(drafter.pool, PtdPool) else None
    assert set(children(each.propose(40))) == set(children(late.propose(40)))
    late.observe(late.propose(1), Rows({0: ([5], [1.0])}), Walk((), (5,)))  # type: ignore[arg-type]
    assert late.propose(1).tokens == (5,)


def test_steps_that_wait_do_not_come_back_into_a_cleared_pool() -> None:
    pool = native.new_pool()
    drafter = started([1, 2], pool=pool)
    drafter.observe(drafter.propose(1), Rows({0: ([7], [3.0])}), Walk((), (7,)))  # type: ignore[arg-type]
    pool.clear()
    drafter.start([5])
    drafter.propose(4)
    assert started([1, 2], pool=pool).propose(16).tokens == (2,)


def test_a_turn_that_continues_the_text_keeps_what_is_known() -> None:
    drafter = started([1, 2, 3])
    feed(drafter, [4, 5], {0: ([5, 44], [3.0, 2.9])})
    drafter.start([1, 2, 3, 4, 5, 6, 3, 4])
    assert {5, 44} <= set(children(drafter.propose(16)))


def test_another_text_starts_from_the_pool_or_from_nothing() -> None:
    def next_text(keep: bool) -> list[int]:
        drafter = started([1, 2, 3], keep=keep)
        feed(drafter, [4, 5], {0: ([5, 44], [3.0, 2.9])})
        drafter.start([9, 3, 4])
        return children(drafter.propose(16))

    assert set(next_text(True)) == {5, 44}
    assert next_text(False) == []


def test_pools_are_shared_on_request_and_otherwise_private() -> None:
    shared = native.new_pool()
    one, other, stranger = started([1, 2], pool=shared), started([9, 1, 2], pool=shared), started([9, 1, 2])
    feed(one, [50], {0: ([70, 71], [3.0, 2.0])})
    one.propose(2)  # plain steps wait until then
    assert set(children(other.propose(16))) == {70, 71}
    assert children(stranger.propose(16)) == []
    shared.clear()
    assert children(other.propose(16)) == []


def test_methods_without_a_pool_forget_every_text() -> None:
    method = make_method("ptd", curve=None, max_nodes=16)
    drafter = method.drafter
    assert isinstance(drafter, PtdDrafter)
    drafter.start([1, 2])
    feed(drafter, [50], {0: ([70], [3.0])})
    drafter.start([9, 1, 2])
    assert children(drafter.propose(16)) == []


def test_the_implementation_is_the_native_one_where_there_is_one(kind: str) -> None:
    assert isinstance(PtdDrafter().core, PtdCore if kind == "python" else native.NativeCore)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40),
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=5), max_size=10),
    st.integers(1, 40),
    st.sampled_from([None, 1, 2]),
)
def test_any_text_gives_a_proper_tree_within_the_budget(
    prompt: list[int], runs: list[list[int]], max_nodes: int, width: int | None
) -> None:
    drafter = started(prompt, width=width)
    for run in runs:
        tree = drafter.propose(max_nodes)
        assert 1 <= len(tree) <= max_nodes
        for node, parent in enumerate(tree.topology.parents[1:], start=1):
            assert tree.p[node] <= tree.p[parent]
        for siblings in tree.topology.children:
            tokens = [tree.tokens[child] for child in siblings]
            assert len(set(tokens)) == len(tokens) and len(tokens) <= (width or 99)
        tops = {node: (run[:4], [3.0, 2.0, 1.0, 0.0][: len(run[:4])]) for node in range(0, len(tree), 2)}
        drafter.observe(tree, Rows(tops), Walk((), (run[0],)))  # type: ignore[arg-type]
        assert drafter.propose(1).tokens == (run[0],)


def test_a_long_text_keeps_its_latest_part(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("core", "drafter"):
        monkeypatch.setattr(f"localspec.methods.ptd.{module}.MAX_TEXT", 200)
    drafter = PtdDrafter()
    if isinstance(drafter.pool, native.NativePool):
        drafter.core = native.NativeCore(drafter.pool, max_text=200)
    drafter.start(list(range(100, 130)) * 8)
    for round_ in range(9):
        feed(drafter, [200 + round_, 201 + round_, *range(100, 130)])
    feed(drafter, [100, 101, 102])
    assert children(drafter.propose(8)) == [103]
    assert drafter.core.n_text <= 200


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_text_is_that_of_plain_decoding(temperature: float) -> None:
    def text(method: Method) -> tuple[list[int], float]:
        sampler = ToySampler(temperature, seed=3, penalty=0.5)
        tokens, _, done = collect(Generator(ToyVocab(), ToyContext(400)).generate([5, 6], sampler, method, Limits(300)))
        return tokens, done.stats.tokens_per_step

    plain, _ = text(make_method("plain", curve=None, max_nodes=16))
    drafted, tokens_per_step = text(Method("ptd", PtdDrafter(), Fixed(12), StrictVerifier()))
    assert drafted == plain
    assert tokens_per_step > 1.1


def test_sampled_text_has_the_target_distribution() -> None:
    method = Method("ptd", PtdDrafter(), Fixed(N_VOCAB + 2), StrictVerifier())
    chi_square, accepted = statistic(method, 5)
    assert accepted > 0.05
    assert chi_square < CRITICAL
