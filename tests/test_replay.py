"""Recorded answers: the file survives anything, and replay tells what the model would have told."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localspec.decode import Generator, Limits
from localspec.errors import UsageError
from localspec.events import DoneEvent
from localspec.methods.base import Drafter, Method
from localspec.methods.fixed import Fixed
from localspec.methods.lookup import LookupDrafter
from localspec.methods.plain import PlainDrafter
from localspec.methods.ptd.drafter import PtdDrafter
from localspec.methods.ptd.published import PublishedDrafter
from localspec.methods.registry import make_drafter
from localspec.methods.strict import StrictVerifier
from localspec.replay.log import AnswerLog, LoggedAnswer, LogWriter
from localspec.replay.record import RecordingDrafter
from localspec.replay.replay import replay, replay_answer
from tests.toy import ToyContext, ToySampler, ToyVocab, collect
from tests.with_model import calibrated_home, localspec

HEADER = {"model": "toy", "k": 2}


def an_answer(name: str = "a", n: int = 3) -> LoggedAnswer:
    tokens = tuple(range(5, 5 + n))
    return LoggedAnswer(name, "task", (1, 2), tokens, [[t, 9] for t in tokens], [[2.5, 1.125]] * n)


def toy_run(drafter: Drafter, n: int = 200, size: int = 8) -> tuple[list[int], DoneEvent]:
    method = Method("toy", drafter, Fixed(size), StrictVerifier())
    ctx = ToyContext(n + 64, memory=2)
    tokens, _, done = collect(Generator(ToyVocab(), ctx).generate([3, 4, 5], ToySampler(), method, Limits(n)))
    return tokens, done


def recorded(n: int = 200) -> LoggedAnswer:
    recorder = RecordingDrafter(PlainDrafter(), k=4)
    tokens, _ = toy_run(recorder, n)
    ids, logits = zip(*recorder.rows, strict=True)
    return LoggedAnswer("toy", "toy", (3, 4, 5), tuple(tokens), list(ids), list(logits))


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "answers.log"
    with LogWriter(path, HEADER) as writer:
        writer.append(an_answer("a"))
        writer.append(an_answer("b", 1))
    log = AnswerLog.read(path)
    assert log.answers == [an_answer("a"), an_answer("b", 1)]
    assert log.header["model"] == "toy"


@pytest.mark.parametrize("left", [1, 40, 0])
def test_a_killed_recording_goes_on_behind_the_last_whole_answer(tmp_path: Path, left: int) -> None:
    path = tmp_path / "answers.log"
    with LogWriter(path, HEADER) as writer:
        writer.append(an_answer("a"))
        writer.append(an_answer("b"))
    text = path.read_bytes()
    start_of_b = text[:-1].rindex(b"\n") + 1
    path.write_bytes(text[: start_of_b + left])
    assert AnswerLog.read(path).answers == [an_answer("a")]
    with LogWriter(path, HEADER) as writer:
        assert writer.done == {"a"}
        writer.append(an_answer("c"))
    assert AnswerLog.read(path).answers == [an_answer("a"), an_answer("c")]


def test_a_whole_last_line_that_lacks_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "answers.log"
    with LogWriter(path, HEADER) as writer:
        writer.append(an_answer("a"))
    path.write_bytes(path.read_bytes()[:-1])
    with LogWriter(path, HEADER) as writer:
        writer.append(an_answer("b"))
    assert [answer.id for answer in AnswerLog.read(path).answers] == ["a", "b"]


def test_a_recording_does_not_go_on_in_the_log_of_another_model(tmp_path: Path) -> None:
    path = tmp_path / "answers.log"
    with LogWriter(path, HEADER):
        pass
    with pytest.raises(UsageError, match="another model"):
        LogWriter(path, {**HEADER, "model": "other"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a log"),
        ("hello\n", "not a log"),
        ('{"format": "localspec-log", "version": 9}\n', "version 9"),
        ('{"format": "localspec-log", "version": 1}\nrubbish\n{"a": 1}\n', "line 2"),
    ],
)
def test_other_files_are_refused_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "answers.log"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        AnswerLog.read(path)
    with pytest.raises(UsageError, match="cannot be read"):
        AnswerLog.read(tmp_path / "missing")


@pytest.mark.parametrize("change", [{"tokens": []}, {"top_ids": [[1]]}, {"top_logits": [[1.0]] * 3}, {"prompt": "x"}])
def test_a_line_whose_parts_do_not_fit_is_no_answer(change: dict[str, Any]) -> None:
    line = json.dumps({**json.loads(an_answer().to_line()), **change})
    with pytest.raises((ValueError, LookupError, TypeError)):
        LoggedAnswer.from_line(line)


@pytest.mark.parametrize("make", [LookupDrafter, partial(make_drafter, "ptd-chain")])
@pytest.mark.parametrize("size", [2, 5])
def test_replay_counts_the_steps_that_the_model_takes(make: Any, size: int) -> None:
    """For these the rows of rejected drafts do not matter: chains have at most one, and lookup reads none."""
    answer = recorded()
    drafter = make() if make is LookupDrafter else PathOnly(make())
    tokens, done = toy_run(drafter, len(answer.tokens), size)
    assert tuple(tokens) == answer.tokens
    count = replay_answer(answer, make(), size)
    assert (count.tokens, count.steps) == (done.stats.n_tokens, done.stats.n_steps)
    assert count.tokens_per_step > 1.2


class PathOnly:
    """Hides the rows of rejected drafts from a drafter, as a log does."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.start, self.propose = drafter.start, drafter.propose

    def observe(self, tree: Any, rows: Any, walk: Any) -> None:
        known = {0, *walk.path[: len(walk.tokens) - 1]}

        class Rows:
            def top_k(self, i: int, k: int) -> tuple[list[int], list[float]]:
                return rows.top_k(i, k) if i in known else ([], [])

        self._drafter.observe(tree, Rows(), walk)  # type: ignore[arg-type]


def test_larger_trees_never_take_more_steps_on_repetitive_text() -> None:
    totals = replay([recorded()], PtdDrafter, [1, 2, 4, 8])
    steps = [count.steps for count in totals["toy"]]
    assert steps == sorted(steps, reverse=True)
    assert totals["toy"][0].tokens_per_step == 1.0
    assert steps[-1] < 0.7 * steps[0]


def test_a_warm_drafter_remembers_other_answers() -> None:
    answers = [recorded(40)] * 3
    cold, warm = (replay(answers, PtdDrafter, [6], warm=warm)["toy"][0] for warm in (False, True))
    assert warm.steps < cold.steps


def test_drafters_that_need_rows_of_drafts_cannot_be_replayed() -> None:
    with pytest.raises(UsageError, match="lacks"):
        replay([recorded()], lambda: PublishedDrafter(frozenset()), [32])


def test_the_command_prints_a_row_for_each_drafter_and_task(tmp_path: Path) -> None:
    path = tmp_path / "answers.log"
    with LogWriter(path, {"model": "toy"}) as writer:
        writer.append(recorded(60))
    done = localspec("replay", str(path), "--sizes", "2,4")
    table = done.stdout
    assert "without the corpus" in done.stderr, "whose tokens are not known"
    assert "toy" in table and "ptd-chain" in table and "lookup" in table
    data = json.loads(localspec("replay", str(path), "--sizes", "2,4", "--drafters", "ptd", "--json").stdout)
    assert [(row["drafter"], row["nodes"]) for row in data["rows"]] == [("ptd", 2), ("ptd", 4)]
    assert all(1 <= row["tokens_per_step"] <= row["nodes"] for row in data["rows"])


@pytest.mark.parametrize(("option", "value"), [("--sizes", "x"), ("--sizes", "0"), ("--drafters", "medusa")])
def test_the_command_refuses_nonsense(tmp_path: Path, option: str, value: str) -> None:
    path = tmp_path / "answers.log"
    with LogWriter(path, {"model": "toy"}) as writer:
        writer.append(an_answer())
    result = localspec("replay", str(path), option, value)
    assert result.returncode == 2 and value in result.stderr


def test_answers_of_a_model_are_recorded_and_replayed(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "one", "task": "echo", "prompt": "Say: one two three one two three"}\n')
    path = tmp_path / "answers.log"
    with calibrated_home(tmp_path / "home") as model:
        args = ("record", str(path), "-m", str(model), "-t", "1", "-c", "512", "--prompts", str(prompts), "-n", "16")
        for made in (1, 0):  # what is there already is not made again
            done = localspec(*args)
            assert done.returncode == 0, done.stderr
            assert f"{made} answers recorded" in done.stderr
    [answer] = AnswerLog.read(path).answers
    assert (answer.id, answer.task) == ("one", "echo")
    assert [ids[0] for ids in answer.top_ids] == list(answer.tokens), "greedy text is that of the best tokens"
    done = localspec("replay", str(path), "--sizes", "4", "-m", str(model))
    assert "echo" in done.stdout and "corpus" not in done.stderr
    other = tmp_path / "other.log"
    other.write_text(path.read_text().replace(AnswerLog.read(path).header["fingerprint"], "0" * 16))
    done = localspec("replay", str(other), "-m", str(model))
    assert done.returncode == 2 and "another model" in done.stderr
