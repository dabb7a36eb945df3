"""FLy's rule against slow, literal readings of the official code and of the paper, on all patterns of short drafts."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.errors import UsageError
from localspec.methods.fly import (
    ENTROPY_FORMS,
    LITERALS,
    EntropyForm,
    Judgement,
    Literals,
    LooseRule,
    judge,
    judge_lazily,
    normalised_entropy,
    ratio_to_best,
    top3_entropy,
)

# what a position can be; of the unlikely and the literal ones the target is unsure as well
MATCH, SURE, UNSURE, UNLIKELY, LITERAL = range(5)
END = 9


def by_the_code(m: list[bool], gate: list[bool], W: int) -> list[bool]:
    """Which positions stand, in the order of the official code; m: matches, gate: unsure enough."""
    K = len(m)
    ok = list(m)
    for j in range(K):
        if not m[j] and j <= K - W and all(m[j + 1 : j + W]):
            ok[j] = True
    tail = max(0, K - W)
    ok[tail:] = m[tail:]
    return [ok[j] and (m[j] or gate[j]) for j in range(K)]


def by_the_paper(m: list[bool], gate: list[bool], W: int) -> list[bool]:
    """The same for the paper's equations, whose positions count from 1."""
    K = len(m)

    def stands(j: int) -> bool:
        n_mismatches = sum(not m[i - 1] for i in range(j + 1, min(j + W, K) + 1))
        return m[j - 1] or (gate[j - 1] and n_mismatches == 0 and j + W <= K)

    return [stands(j) for j in range(1, K + 1)]


REFERENCE = {"top3": by_the_code, "normalised": by_the_paper}


def expected(m: list[bool], stands: list[bool]) -> Judgement:
    accepted = stands.index(False) if False in stands else len(stands)
    return Judgement(accepted, tuple(j for j in range(accepted) if not m[j]))


def check_all(K: int, W: int, form: EntropyForm, ratio: float = 0.0, literals: Literals | None = None) -> None:
    """With a `ratio` there are unlikely ones as well, which fail the gate; with `literals` literal ones, which fail it
    where they are to be exact. A match may be of literal tokens."""
    rule = LooseRule(0.5, W, form, ratio, literals or "loose")
    draft = list(range(10, 10 + K))
    passing = (UNSURE, LITERAL) if literals == "loose" else (UNSURE,)
    every = (MATCH, SURE, UNSURE, *[UNLIKELY] * bool(ratio), *[LITERAL] * bool(literals))
    for kinds in itertools.product(every, repeat=K):
        m = [kind == MATCH for kind in kinds]
        target = [token if match else 5 for token, match in zip(draft, m, strict=True)]
        entropies = [0.5 if kind in (UNSURE, UNLIKELY, LITERAL) else 0.49 for kind in kinds]
        ratios = [ratio if kind in (UNSURE, SURE, LITERAL) else 0.9 * ratio for kind in kinds]
        literal = [kind in (LITERAL, MATCH) for kind in kinds]
        made = judge(draft, target, entropies, ratios, literal, {END}, rule)
        assert made == expected(m, REFERENCE[form](m, [kind in passing for kind in kinds], W)), kinds


@pytest.mark.parametrize("form", ENTROPY_FORMS)
@pytest.mark.parametrize("W", [1, 2, 3, 4, 6])
def test_every_short_draft_is_judged_as_published(W: int, form: EntropyForm) -> None:
    for K in range(9):
        check_all(K, W, form)


@pytest.mark.parametrize("form", ENTROPY_FORMS)
@pytest.mark.parametrize("W", [1, 2, 3, 6])
@pytest.mark.parametrize("ratio", [0.2, 1.0])
def test_with_a_ratio_no_token_that_the_target_finds_less_likely_is_forgiven(
    ratio: float, W: int, form: EntropyForm
) -> None:
    for K in range(8):
        check_all(K, W, form, ratio)


@pytest.mark.parametrize("literals", LITERALS)
@pytest.mark.parametrize("form", ENTROPY_FORMS)
@pytest.mark.parametrize("W", [1, 2, 3, 6])
def test_exact_literals_are_never_forgiven_and_loose_ones_as_words_are(
    W: int, form: EntropyForm, literals: Literals
) -> None:
    for K in range(8):
        check_all(K, W, form, literals=literals)
    for K in range(6):
        check_all(K, W, form, 0.2, literals)


@pytest.mark.parametrize("form", ENTROPY_FORMS)
def test_every_draft_with_room_for_several_mismatches_is_judged_as_published(form: EntropyForm) -> None:
    check_all(11, 3, form)


@pytest.mark.parametrize("form", ENTROPY_FORMS)
@pytest.mark.parametrize("W", [1, 2])
def test_end_tokens_are_never_forgiven_and_end_the_draft(W: int, form: EntropyForm) -> None:
    rule = LooseRule(0.0, W, form)
    for K in range(1, 6):
        for pairs in itertools.product(itertools.product((1, END), (1, 2, END)), repeat=K):
            draft, target = [a for a, _ in pairs], [b for _, b in pairs]
            length = draft.index(END) + 1 if END in draft else K
            m = [a == b for a, b in pairs[:length]]
            stands = REFERENCE[form](m, [END not in pair for pair in pairs[:length]], W)
            assert judge(draft, target, [1.0] * K, [1.0] * K, [False] * K, {END}, rule) == expected(m, stands), pairs


def test_at_the_published_setting_a_mismatch_is_forgiven_up_to_the_ninth_token_of_fifteen() -> None:
    def forgiven(j: int) -> bool:
        target = [2 if i == j else 1 for i in range(15)]
        return judge([1] * 15, target, [0.3] * 15, [0.0] * 15, [True] * 15, set(), LooseRule()).forgiven == (j,)

    assert [j for j in range(15) if forgiven(j)] == list(range(9))


@pytest.mark.parametrize("form", ENTROPY_FORMS)
def test_forgiven_tokens_are_a_window_apart(form: EntropyForm) -> None:
    rng = np.random.default_rng(1)
    most = 0
    for _ in range(2000):
        W = int(rng.integers(1, 5))
        target = [1 if match else 2 for match in rng.random(30) < 0.8]
        made = judge([1] * 30, target, [1.0] * 30, [0.0] * 30, [False] * 30, set(), LooseRule(0.3, W, form))
        assert all(b - a >= W for a, b in itertools.pairwise(made.forgiven))
        most = max(most, len(made.forgiven))
    assert most >= 3


def test_infinite_theta_and_unknown_entropies_forgive_nothing() -> None:
    def judged(entropy: float, ratio: float, rule: LooseRule) -> Judgement:
        return judge([1] * 12, [1, 2] + [1] * 10, [entropy] * 12, [ratio] * 12, [False] * 12, set(), rule)

    for theta, entropy in ((math.inf, 1e9), (0.0, math.nan)):
        assert judged(entropy, 1.0, LooseRule(theta)) == Judgement(1)
    assert judged(0.0, 0.0, LooseRule(0.0)) == Judgement(12, (1,))
    assert judged(1.0, math.nan, LooseRule(ratio=0.1)) == Judgement(1)


def test_no_entropy_is_asked_for_where_it_decides_nothing() -> None:
    draft = [1] * 12
    target = [1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1]
    asked: list[int] = []

    def unsure(i: int) -> bool:
        asked.append(i)
        return True

    made = judge_lazily(draft, target.__getitem__, unsure, set(), LooseRule(window=4))
    assert made == Judgement(8, (1,)) and asked == [1], "the second mismatch is in the strict tail"


def test_the_entropy_of_the_three_likeliest_is_not_scaled_up() -> None:
    p = [0.4, 0.2, 0.1]  # of a softmax whose other tokens have 0.3
    shift = 3.0
    logits = [math.log(value) + shift for value in p]
    assert top3_entropy(logits, shift) == pytest.approx(-sum(value * math.log(value) for value in p))
    assert top3_entropy([shift, -math.inf, -math.inf], shift) == 0.0
    assert top3_entropy([math.log(1 / 3)] * 3, 0.0) == pytest.approx(math.log(3))


def test_the_published_theta_lets_a_split_between_two_tokens_pass_below_91_percent() -> None:
    def unsure(best: float) -> bool:
        return LooseRule().unsure(top3_entropy([math.log(best), math.log(1 - best)], 0.0))

    assert unsure(0.910) and not unsure(0.912)


def test_a_ratio_compares_probabilities() -> None:
    p = np.array([0.5, 0.3, 0.2])
    assert ratio_to_best(math.log(0.3) + 7.0, math.log(0.5) + 7.0) == pytest.approx(p[1] / p[0])
    assert ratio_to_best(-math.inf, 0.0) == 0.0


def test_the_normalised_entropy_is_a_share_of_the_largest() -> None:
    assert normalised_entropy(math.log(1000), 1000) == pytest.approx(1.0)
    assert normalised_entropy(3.53, 128_256) == pytest.approx(0.3, abs=1e-3)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((-0.1, 6, "top3"), "--theta -0.1"),
        ((math.nan, 6, "top3"), "--theta nan"),
        ((0.3, 0, "top3"), "--window 0"),
        ((0.3, 6, "top4"), "--entropy 'top4'"),
        ((0.3, 6, "top3", -0.1), "--ratio -0.1"),
        ((0.3, 6, "top3", 1.1), "--ratio 1.1"),
        ((0.3, 6, "top3", math.nan), "--ratio nan"),
        ((0.3, 6, "top3", 0.0, "strict"), "--literals 'strict'"),
    ],
)
def test_parameters_without_a_meaning_are_refused(values: tuple[Any, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        LooseRule(*values)
    assert error.value.hint


def test_the_simulation_leaves_a_file_alone_that_is_no_store_of_it(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "benchmarks" / "fly_simulation.py"
    (other := tmp_path / "mine.jsonl").write_text('{"prompt": "mine"}\n')
    done = subprocess.run(
        [sys.executable, script, "target", "draft", other], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode and "mine.jsonl is another file" in done.stderr
    assert other.read_text() == '{"prompt": "mine"}\n'
