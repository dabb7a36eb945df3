"""Verification: differences are found at the right token and judged by the logits there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.bench.prompts import Prompt
from localspec.decode import Limits
from localspec.engine.params import SamplingParams
from localspec.events import DoneEvent, Event, Stats, StepEvent, StepTimings
from localspec.tree import Topology
from localspec.verify import first_difference, judge, verify
from tests.with_model import calibrated_home, localspec

LOGITS = np.array([0.0, 3.0, 1.0, 2.96, -1.0], dtype=np.float32)
#: the second best
EOG = frozenset({3})


def piece(token: int) -> bytes:
    return b"\xc3" if token == 4 else str(token).encode()


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [([1, 2], [1, 2], None), ([], [], None), ([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([1, 2, 3], [1], 1), ([1], [], 0)],
)
def test_the_first_difference_includes_the_end_of_a_text(a: list[int], b: list[int], expected: int | None) -> None:
    assert first_difference(a, b) == expected


def test_a_difference_names_both_tokens_and_the_gap_of_the_two_best() -> None:
    difference = judge(1, [9, 1, 5], [9, 3], LOGITS, piece, EOG)
    assert (difference.plain, difference.speculated) == (1, 3)
    assert difference.top == (1, 3)
    assert difference.gap == pytest.approx(0.04, abs=1e-5)


def test_half_a_character_and_the_end_of_a_text_can_be_shown() -> None:
    difference = judge(0, [4], [], LOGITS, piece, EOG)
    assert (difference.plain_text, difference.speculated, difference.speculated_text) == ("\ufffd", None, "")


class FakeSession:
    """`wrong` says what speculation makes of the plain text 5 1 7."""

    class template:
        stops = ()

    class model:
        piece = staticmethod(piece)
        eog = EOG

    def __init__(self, wrong: Sequence[int], forgiven: tuple[int, ...]) -> None:
        self.wrong, self.forgiven = wrong, forgiven
        self.asked: list[list[int]] = []

    def chat_prompt(self, messages: object) -> list[int]:
        return [1, 2]

    def next_logits(self, tokens: list[int]) -> np.ndarray:
        self.asked.append(tokens)
        return LOGITS

    def generate(
        self, prompt: list[int], sampling: SamplingParams, limits: Limits, method: str, **_: Any
    ) -> Iterator[Event]:
        tokens = tuple((5, 1, 7) if method == "plain" else self.wrong)
        timings = StepTimings(0, 0, 0, 0, 0, 0)
        forgiven = () if method == "plain" else self.forgiven
        yield StepEvent(tokens, "", method, Topology.chain(4), (0, 0, 0, 0), (), timings, forgiven=forgiven)
        yield DoneEvent("length", "", Stats())


def run(wrong: Sequence[int], forgiven: tuple[int, ...] = ()) -> tuple[FakeSession, Any]:
    session: Any = FakeSession(wrong, forgiven)
    sampling = SamplingParams(temperature=0)
    [verdict] = verify(session, [Prompt("p", "t", "x")], "lookup", sampling=sampling, max_tokens=3)
    return session, verdict


def test_identical_texts_pass() -> None:
    session, verdict = run((5, 1, 7))
    assert verdict.divergence is None and verdict.n_drafted == 3
    assert verdict.passes(0.0, greedy=True) and verdict.passes(0.0, greedy=False)
    assert session.asked == []


def test_a_wrong_token_is_judged_by_the_logits_after_the_common_text() -> None:
    session, verdict = run((5, 3, 7))
    assert verdict.divergence.index == 1
    assert session.asked == [[1, 2, 5]]
    assert verdict.passes(0.05, greedy=True)
    assert not verdict.passes(0.03, greedy=True)


@pytest.mark.parametrize("wrong", [(5, 4, 7), (5, 2), (4, 1, 7)])
def test_a_token_that_is_none_of_the_two_best_is_wrong_however_near_these_are(wrong: Sequence[int]) -> None:
    _, verdict = run(wrong)
    assert verdict.divergence.gap < 0.05
    assert not verdict.passes(0.05, greedy=True)


def test_a_text_that_had_ended_counts_as_its_end_token() -> None:
    _, verdict = run((5,))
    assert verdict.divergence.speculated is None
    assert verdict.passes(0.05, greedy=True)
    assert not judge(0, [2], [], LOGITS, piece, EOG).between_best
    assert not judge(0, [1], [], LOGITS, piece, frozenset({4})).between_best


def test_a_seeded_text_has_no_excuse() -> None:
    _, verdict = run((5, 3, 7))
    assert not verdict.passes(0.05, greedy=False)


@pytest.mark.parametrize(
    ("forgiven", "passes"), [((1,), True), ((1, 2), True), ((), False), ((0,), False), ((2,), False)]
)
def test_a_lossy_text_may_part_at_its_first_forgiven_draft_and_nowhere_else(
    forgiven: tuple[int, ...], passes: bool
) -> None:
    _, verdict = run((5, 4, 7), forgiven)
    assert verdict.forgiven == forgiven
    assert verdict.passes(0.0, greedy=False) is passes


@pytest.mark.model
@pytest.mark.parametrize("sampling", [["--temp", "0"], ["--temp", "0.8", "--seed", "3"]])
def test_lookup_is_verified_against_plain(tmp_path: Path, sampling: list[str]) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "Say: tick tock tick tock tick tock"}\n{"prompt": "Count from 1 to 5."}\n')
    with calibrated_home(tmp_path / "home") as model:
        done = localspec(
            "verify", "-m", str(model), "-t", "1", "-c", "512", "--prompts", str(prompts), "--method", "lookup",
            "-n", "12", "--eps", "0.001", "--json", *sampling,
        )  # fmt: skip
    data = json.loads(done.stdout)
    assert len(data["prompts"]) == 2
    assert sum(prompt["n_drafted"] for prompt in data["prompts"]) > 0
    # The kernels of a stock library differ a little with the batch size, so its texts may part.
    if data["header"]["mode"] == "patched":
        assert data["passed"]
    assert done.returncode == (0 if data["passed"] else 1)


@pytest.mark.model
def test_loose_texts_part_from_plain_where_a_draft_was_forgiven(tmp_path: Path) -> None:
    with calibrated_home(tmp_path / "home") as model:
        done = localspec(
            "verify", "-m", str(model), "-t", "1", "-c", "1024", "--task", "edit", "--limit", "2", "--method", "lookup",
            "-n", "48", "--eps", "0.001", "--accept", "loose", "--theta", "0", "--window", "2", "--json",
        )  # fmt: skip
    data = json.loads(done.stdout)
    assert data["accept"] == "loose" and data["lossless"] is False
    assert any(prompt["forgiven"] for prompt in data["prompts"])
    if data["header"]["mode"] == "patched":
        assert data["passed"] and done.returncode == 0


def test_verifying_what_keeps_the_distribution_alone_is_refused() -> None:
    done = localspec("verify", "--draft-sampling", "--temp", "0.8", "--method", "heads")
    assert done.returncode == 2 and "nothing to compare" in done.stderr
