"""What ptd is made of: the suffix automaton, the pool of successors, the rates of evidence."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.methods.ptd import automaton, evidence, recycling
from localspec.methods.ptd.automaton import SuffixAutomaton
from localspec.methods.ptd.evidence import Rates
from localspec.methods.ptd.recycling import SuccessorPool

TEXTS = st.lists(st.integers(0, 3), max_size=60)


def longest_suffix_before(text: list[int]) -> int:
    """Length of the longest suffix of `text` that also occurs earlier."""
    for n in range(len(text) - 1, 0, -1):
        if any(text[i : i + n] == text[-n:] for i in range(len(text) - n)):
            return n
    return 0


def followers(text: list[int], suffix: list[int]) -> set[int]:
    n = len(suffix)
    return {text[i + n] for i in range(len(text) - n) if text[i : i + n] == suffix}


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_the_match_is_the_longest_suffix_that_occurred_before(text: list[int]) -> None:
    state, length = SuffixAutomaton(text).match()
    assert length == longest_suffix_before(text)
    if length:
        assert set(state.following) == followers(text, text[-length:])
        end = state.end
        assert end < len(text) and text[end - length : end] == text[-length:]


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_advancing_finds_the_longest_suffix_of_text_and_draft_that_occurred(text: list[int], draft: list[int]) -> None:
    known = SuffixAutomaton(text)
    state, length = known.match()
    for n, token in enumerate(draft, start=1):
        state, length = known.advance(state, length, token)
        whole = text + draft[:n]
        # what ends with the text itself has not been seen to go on, so it does not count as an occurrence before
        longest = max((k for k in range(len(whole) + 1) if k == 0 or occurs(text, whole[-k:])), default=0)
        assert length == longest


def occurs(text: list[int], part: list[int]) -> bool:
    return any(text[i : i + len(part)] == part for i in range(len(text) - len(part) + 1))


def test_guesses_are_ranked_by_hits_and_then_by_recency() -> None:
    def guesses(text: list[int]) -> list[int]:
        return [token for token, _ in SuffixAutomaton(text).match()[0].guesses]

    assert guesses([1, 2, 1, 3, 1]) == [3, 2]
    assert guesses([1, 2, 1, 3, 1, 3, 1, 2, 1, 2, 1]) == [2, 3]
    assert guesses([1, 2, 1, 2, 1, 3, 1]) == [2, 3]


def test_the_kind_of_a_guess_tells_how_sure_the_text_is() -> None:
    def kinds(text: list[int]) -> list[int]:
        return [kind for _, kind in SuffixAutomaton(text).match()[0].guesses]

    assert kinds([1, 2, 1]) == [automaton.ONLY_ONCE]
    assert kinds([1, 2, 5, 1, 2, 6, 1]) == [automaton.ONLY_AGAIN]
    assert kinds([1, 2, 5, 1, 2, 6, 1, 3, 7, 1]) == [automaton.MOSTLY, automaton.SECOND]
    assert kinds([1, 2, 5, 1, 3, 6, 1, 4, 7, 1]) == [automaton.FIRST, automaton.SECOND, automaton.LATER]


def test_a_repeated_token_costs_no_more_than_other_text() -> None:
    text = SuffixAutomaton([7] * 3000)
    state, length = text.match()
    assert length == 2999 and [token for token, _ in state.guesses] == [7]


def test_stated_sizes_hold() -> None:
    rng = random.Random(1)
    tracemalloc.start()
    try:
        text = SuffixAutomaton(rng.choices(range(300), k=20_000))
        used, _ = tracemalloc.get_traced_memory()
        assert used <= text.n_bytes
        del text
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        pool = SuccessorPool(20_000)
        for _ in range(30_000):
            pool.put(rng.randrange(150_000), rng.randrange(150_000), rng.choices(range(300, 150_000), k=4), [4.0] * 4)
        used, _ = tracemalloc.get_traced_memory()
        assert used - before <= pool.max_bytes
    finally:
        tracemalloc.stop()


def test_successors_are_found_by_two_tokens_and_by_one() -> None:
    pool = SuccessorPool()
    pool.put(1, 2, [5, 6], [3.0, 1.0])
    pool.put(9, 2, [7, 8], [3.0, 1.0])
    assert pool.of_pair(1, 2)[0] == (5, 6) and pool.of_pair(9, 2)[0] == (7, 8)  # type: ignore[index]
    assert pool.of_token(2)[0] == (7, 8)  # type: ignore[index]
    assert pool.of_pair(3, 2) is None and pool.of_token(1) is None


def test_a_pair_is_not_taken_for_a_token() -> None:
    pool = SuccessorPool()
    pool.put(-1, 2, [5], [1.0])
    pool.put(0, 2, [6], [1.0])
    assert pool.of_pair(-1, 2)[0] == (5,)  # type: ignore[index]
    assert pool.of_pair(0, 2)[0] == pool.of_token(2)[0] == (6,)  # type: ignore[index]


def test_classes_tell_how_far_candidates_are_apart() -> None:
    assert recycling.classes([9.0, 1.0, 0.9, 0.0], True) == (0, 7, 11, 11)
    assert recycling.classes([9.0, 8.9, 8.5, 7.0], True) == (3, 4, 8, 9)
    assert recycling.classes([9.0], True) == (0,)
    for logits in ([5.0], [5.0, 4.0], [5.0, 1.0, -2.0, -9.0, -20.0]):
        reached, missed = recycling.classes(logits, True), recycling.classes(logits, False)
        assert not set(reached) & set(missed)
        assert all(0 <= kind < recycling.N_CLASSES for kind in reached + missed)


def test_the_pool_forgets_what_was_not_renewed_and_stays_within_its_bound() -> None:
    pool = SuccessorPool(20)
    for i in range(200):
        pool.put(1000, 7, [1], [1.0])  # renewed all the time
        pool.put(i, i + 300, [2], [1.0])
        assert len(pool) <= 20
    assert pool.of_pair(1000, 7) is not None
    assert pool.of_pair(199, 499) is not None
    assert pool.of_pair(0, 300) is None
    pool.clear()
    assert len(pool) == 0 and pool.of_token(7) is None


def test_every_length_and_distance_has_a_class_within_range() -> None:
    parts = [evidence.text_part(n) for n in range(1, 40)]
    assert parts == sorted(parts)
    assert len(set(parts)) == len(evidence.LENGTHS)
    assert parts[0] == 1 and parts[-1] + automaton.N_KINDS == evidence.RESUMED
    assert [evidence.previous_part(x) for x in (0.0, 0.5, 99.0)] == [
        evidence.PREVIOUS, evidence.PREVIOUS + 1, evidence.CORPUS - 1,
    ]  # fmt: skip


def test_lengths_in_the_corpus_have_classes_of_their_own() -> None:
    parts = [evidence.corpus_part(n) for n in range(1, 40)]
    assert parts == sorted(parts) and len(set(parts)) == len(evidence.CORPUS_LENGTHS)
    assert parts[0] == evidence.CORPUS and parts[1] == evidence.CORPUS_PAIR
    assert parts[-1] + automaton.N_KINDS == evidence.N_ROW


def test_a_candidate_is_believed_by_its_rivals() -> None:
    alone = evidence.chances([0.3])
    beside_weak = evidence.chances([0.3, 0.03])
    beside_strong = evidence.chances([0.3, 0.6])
    assert alone[0] > beside_weak[0] > 0.3 > beside_strong[0], "what stands out is right more often than its rate"
    assert beside_strong[1] > beside_strong[0]
    assert evidence.chances([]) == [] and evidence.chances([0.0, 0.0]) == [0.0, 0.0]


@given(st.lists(st.floats(0, 0.999), max_size=20))
def test_chances_stay_chances(rates: list[float]) -> None:
    assert all(0 <= p < 1 for p in evidence.chances(rates))


def test_fitted_rates_are_chances_and_grow_with_the_match() -> None:
    rates = Rates()
    assert len(rates.p) == evidence.N_CODES and all(0 <= p < 1 for p in rates.p)
    assert rates.p[0] == 0.0
    once = [evidence.fitted_rate(evidence.text_part(n) + automaton.ONLY_ONCE, evidence.NO_ROW) for n in (1, 2, 4, 32)]
    assert once == sorted(once) and once[-1] > 0.9
    first = recycling.N_CLASSES // 2  # a row that no token was drawn from, whose best token leads clearly
    sure, doubtful = (evidence.fitted_rate(0, evidence.PAIR + first + kind) for kind in (0, 9))
    assert sure > 4 * doubtful


def test_rates_follow_what_came_true_and_can_be_reset() -> None:
    rates = Rates()
    code = evidence.code_of(evidence.text_part(2) + automaton.SECOND, evidence.NO_ROW)
    fitted = rates.p[code]
    for _ in range(2000):
        rates.count(code, True)
    assert rates.p[code] > 0.97
    for _ in range(2000):
        rates.count(code, False)
    assert rates.p[code] < 0.03
    rates.reset()
    assert rates.p[code] == pytest.approx(fitted)
