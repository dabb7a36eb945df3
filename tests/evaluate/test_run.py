"""How tasks are answered side by side."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.engine.params import SamplingParams
from localspec.errors import ContextLengthError
from localspec.evaluate.results import Result
from localspec.evaluate.run import Stopped, evaluate
from localspec.evaluate.scoring import FinalNumber, Score
from localspec.methods.acceptance import Acceptance
from tests.evaluate.made import FakeSession, answer, result, task

GREEDY = SamplingParams(temperature=0)
TASKS = [task(10), task(20), task(30)]


def say(prompt: str, method: str) -> str:
    """Plain is right; the draft is wrong on 20."""
    return "so 21" if (method, prompt) == ("draft", "Say 20.") else f"so {prompt[4:]}"


def run(session: Any, **options: Any) -> list[Result]:
    return evaluate(session, TASKS, "draft", sampling=GREEDY, **options)


def test_both_answers_are_scored_and_the_order_alternates() -> None:
    session = FakeSession(say)
    kept: list[Result] = []
    results = run(session, keep=kept.append)
    assert results == kept
    assert [one.id for one in results] == ["n/10", "n/20", "n/30"]
    assert all(list(one.answers) == ["plain", "draft"] for one in results)
    assert [[made.score.right for made in one.answers.values()] for one in results] == [
        [True, True], [True, False], [True, True],
    ]  # fmt: skip
    assert results[1].answers["draft"].text == "so 21"
    warm_up, measured = session.log[:2], session.log[2:]
    assert warm_up == [("Say 10.", "plain", "16"), ("Say 10.", "draft", "16")]
    assert [entry[1] for entry in measured if len(entry) == 3] == ["plain", "draft", "draft", "plain", "plain", "draft"]
    # each task from an empty cache, each answer without what others taught
    assert [entry[0] for entry in measured if len(entry) == 1] == ["forget", "clear", "clear"] * 3
    assert {entry[2] for entry in measured if len(entry) == 3} == {"400"}


def test_the_rule_of_acceptance_is_not_for_plain() -> None:
    session = FakeSession(say)
    loose = Acceptance("typical")
    results = run(session, acceptance=loose, max_tokens=7)
    assert session.acceptances == {"plain": None, "draft": loose}
    assert [made.lossless for made in results[0].answers.values()] == [True, False]
    assert [made.stats.n_forgiven for made in results[0].answers.values()] == [0, 1]
    assert {entry[2] for entry in session.log[2:] if len(entry) == 3} == {"7"}


def test_trees_of_one_size_are_for_the_method_alone() -> None:
    session = FakeSession(say)
    run(session)
    assert session.budgets == {"plain": 8, "draft": 8}
    run(session, nodes=12)
    assert session.budgets == {"plain": 8, "draft": 12}


def test_plain_alone_is_answered_once() -> None:
    session: Any = FakeSession(say)
    results = evaluate(session, TASKS[:1], "plain", sampling=GREEDY)
    assert list(results[0].answers) == ["plain"]
    assert len([entry for entry in session.log if len(entry) == 3]) == 2


def test_what_is_known_is_not_made_again() -> None:
    session = FakeSession(say)
    known = [result(20, answer(True), answer(True))]
    kept: list[Result] = []
    results = run(session, known=known, keep=kept.append)
    assert results[1] is known[0]
    assert [one.id for one in kept] == ["n/10", "n/30"]
    assert not any(entry[0] == "Say 20." for entry in session.log)
    again = FakeSession(say)
    assert run(again, known=results) == results
    assert not again.log


def test_a_press_loses_the_task_under_way_and_no_other() -> None:
    kept: list[Result] = []
    with pytest.raises(Stopped):
        run(FakeSession(say), keep=kept.append, cancelled=lambda: len(kept) == 2)
    assert [one.id for one in kept] == ["n/10", "n/20"]


def test_a_task_that_does_not_fit_is_refused_before_anything_runs() -> None:
    session = FakeSession(say, n_ctx=300)
    with pytest.raises(ContextLengthError, match="n/10 may take 401 tokens, and the context holds 300"):
        run(session)
    assert not session.log
    assert len(run(session, max_tokens=200)) == 3


def test_progress_is_told_to_its_end() -> None:
    told: list[tuple[int, int]] = []
    run(FakeSession(say), progress=lambda *at: told.append(at))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_equal_texts_have_one_score(monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[str] = []

    def score(self: object, text: str) -> Score:
        scored.append(text)
        return Score(len(scored) % 2 == 0)

    monkeypatch.setattr(FinalNumber, "score", score)
    results = run(FakeSession(say))
    assert scored == ["so 10.", "so 20.", "so 21", "so 30."]
    assert [len({made.score for made in one.answers.values()}) for one in results] == [1, 2, 1]
