"""Figures from results."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from localspec.evaluate import report
from localspec.evaluate.results import Result
from localspec.evaluate.scoring import Score
from tests.evaluate.made import answer, result

HEADER: dict[str, Any] = {
    "file": "toy.gguf",
    "description": "toy 1M",
    "device": "CPU",
    "threads": 2,
    "n_ctx": 512,
    "build": "llama-cpp-python 0",
    "mode": "stock",
    "tree_limit": None,
    "suite": "gsm8k",
    "split": "test",
    "tasks": 9,
    "max_tokens": 400,
    "temperature": 0.0,
    "method": "draft",
    "acceptance": {"accept": "strict", "loose": {"theta": 0.3}},
}


def some(both: int, plain: int, method: int, neither: int, **more: Any) -> list[Result]:
    pairs = [(True, True)] * both + [(True, False)] * plain + [(False, True)] * method + [(False, False)] * neither
    return [
        result(i, answer(a, "same" if a == b else "a"), answer(b, "same" if a == b else "b", speed=15, **more))
        for i, (a, b) in enumerate(pairs)
    ]


def printed(results: list[Result], **header: Any) -> str:
    out = io.StringIO()
    report.print_report(Console(file=out, width=160), results, {**HEADER, **header})
    return out.getvalue()


def test_scores_recovery_and_discordant_pairs() -> None:
    results = some(5, 2, 1, 1, n_steps=10, forgiven=2)
    plain, draft = report.arms(results)
    assert (plain.right, plain.n, plain.score) == (7, 9, pytest.approx(7 / 9))
    assert 0 < draft.low < draft.score < draft.high < 1
    assert (draft.tokens_per_step, draft.tokens_per_second, draft.ratio) == (2.0, 15.0, pytest.approx(1.5))
    assert (plain.forgiven, draft.forgiven, draft.tokens) == (0, 18, 180)
    made = report.compare(results, "draft")
    assert (made.both, made.plain_only, made.method_only, made.neither, made.equal) == (5, 2, 1, 1, 6)
    assert made.recovery == pytest.approx(6 / 7)
    assert made.high is not None and made.low < 6 / 7 < made.high
    text = printed(results)
    assert "recovery: 85.7% of the score of plain" in text
    assert "right with both 5, with plain alone 2, with draft alone 1, with neither 1" in text
    assert "6 of 9 texts equal those of plain" in text


def test_a_lossless_method_whose_texts_differ_is_pointed_at() -> None:
    assert "localspec verify" in printed(some(2, 1, 0, 0))
    assert "localspec verify" not in printed(some(3, 0, 0, 0))
    assert "localspec verify" not in printed(some(2, 1, 0, 0), temperature=0.8)
    lossy = printed(some(2, 1, 0, 0, lossless=False))
    assert "draft (lossy)" in lossy and "localspec verify" not in lossy


def test_nothing_right_has_no_ratio() -> None:
    results = some(0, 0, 1, 2)
    made = report.compare(results, "draft")
    assert (made.recovery, made.high) == (None, None)
    assert "plain got nothing right" in printed(results)
    json.dumps(report.to_dict(results, HEADER), allow_nan=False)


def test_plain_alone_is_not_compared() -> None:
    results = [Result("n/1", "numbers", {"plain": answer(True)})]
    data = report.to_dict(results, {**HEADER, "method": "plain"})
    assert data["comparison"] is None and len(data["arms"]) == 1
    assert "recovery" not in printed(results, method="plain")


def test_copied_lines_are_averaged_and_cut_answers_counted() -> None:
    scores = [Score(False, "", 0.5), Score(True, "", 1.0)]
    results = [result(i, answer(True, score=score), answer(True, score=score, reason="length"))
               for i, score in enumerate(scores)]  # fmt: skip
    plain, draft = report.arms(results)
    assert (plain.copied, plain.cut, draft.cut) == (0.75, 0, 2)
    assert "75.0%" in printed(results)
    assert report.arms(some(1, 1, 1, 1))[0].copied is None


def test_the_rule_is_told_with_its_parameters() -> None:
    assert "accept strict\n" in printed(some(1, 0, 0, 0))
    rule = {"accept": "loose", "loose": {"theta": 0.3, "window": 6}}
    assert "accept loose, theta 0.3, window 6\n" in printed(some(1, 0, 0, 0), acceptance=rule)


def test_a_method_that_drafted_nothing_shows_little() -> None:
    assert "nothing was drafted" not in printed(some(1, 0, 0, 0))
    assert "nothing was drafted, so" in printed(some(1, 0, 0, 0, drafted=0))
    assert "nothing was drafted (no trees), so" in printed(some(1, 0, 0, 0, drafted=0), tree_limit="no trees")


def test_weaker_isolation_is_told() -> None:
    own, shared = Score(True, own=True), Score(True, own=False)
    assert "without namespaces" not in printed([result(1, answer(True, score=own), answer(True, score=own))])
    assert "without namespaces" in printed([result(1, answer(True, score=own), answer(True, score=shared))])
