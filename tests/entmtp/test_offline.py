"""The offline stage on a tiny model: replay against live runs, interruptions, and the bank that comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.prompts import Prompt
from localspec.calibrate.store import save_curve
from localspec.engine.params import ContextParams, SamplingParams
from localspec.entmtp import live, stages
from localspec.entmtp.bank_file import StoredBank, save_bank
from localspec.entmtp.in_use import HeadsInUse, calibrated_bank
from localspec.entmtp.live import draft_times, expected_accepted, mean_accepted, tree_id
from localspec.entmtp.offline import JOURNAL, Calibration, Options
from localspec.entmtp.stages import Stopped
from localspec.errors import UsageError
from localspec.journal import Journal
from localspec.materials import Materials
from localspec.methods.head_methods import HeadKit, make_head_method
from localspec.replay.record import record_answer
from localspec.session import Session
from localspec.static_tree import StaticTree
from tests.entmtp.tiny_heads import write_bigram_heads
from tests.tiny_models import write_tiny
from tests.with_model import FLAT

#: their tokens are bytes: they are long enough for how much of a prompt is read at a time to matter
BEGINNING = "A beginning that all of them share, so that one prompt could go on from what another left in the cache: "
PROMPTS = [Prompt(f"{task}-{i}", task, f"{BEGINNING}{task} {i}") for task in ("chat", "code") for i in range(3)]
GREEDY = SamplingParams(temperature=0.0)
TREES = [
    StaticTree(),
    StaticTree.greedy(1),
    StaticTree.greedy(3),
    StaticTree.from_paths([[0], [1], [2], [0, 0], [1, 0], [0, 1], [0, 0, 0], [0, 0, 1]]),
]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    path = write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf")
    context = ContextParams(n_ctx=512, n_threads=1, hidden=True)
    with Session.open(path, context=context, method="plain") as opened:
        yield opened


@pytest.fixture(scope="module")
def heads(session: Session, tmp_path_factory: pytest.TempPathFactory) -> HeadsInUse:
    texts = [record_answer(session, prompt, GREEDY, 40, "plain").tokens for prompt in PROMPTS]
    path = write_bigram_heads(tmp_path_factory.mktemp("heads") / "heads.gguf", session.model, texts)
    session.materials = Materials(session.model, session.ctx, head_files={"hydra": path})
    return HeadsInUse.of(session)


@pytest.fixture
def home(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """User files in a folder of their own, with a curve in which nodes cost nearly nothing; the session knows it."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    save_curve(session.curve_key, FLAT, "tiny")
    monkeypatch.setattr(session, "calibration", None)
    return tmp_path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock is a tick later: all steps take the same time, whenever they are."""
    ticks = iter(range(1 << 40))
    for module in ("localspec.decode", "localspec.entmtp.live"):
        monkeypatch.setattr(f"{module}.perf_counter", lambda: next(ticks) / 1024)


def calibration(session: Session, heads: HeadsInUse, watch: Callable[[str, float], bool] | None = None) -> Calibration:
    return Calibration(
        session, heads, "auto", PROMPTS, Options(max_tokens=24, n_measured=4), watch or (lambda *_: True)
    )


def facts(stored: StoredBank) -> dict[str, Any]:
    return {**stored.to_dict(), "created": None}


def quiet(share: float) -> None:
    """Nobody wants to know."""


@pytest.mark.parametrize("max_tokens", [1, 2, 9, 40])
def test_live_runs_have_accepted_what_the_replay_says(
    session: Session, heads: HeadsInUse, home: Path, max_tokens: int
) -> None:
    answers = stages.record_answers(session, PROMPTS, home, max_tokens, quiet)
    log = stages.rank_answers(session, heads.reference, answers, home / "ranks.npz", quiet)
    with Journal(home / "journal", JOURNAL) as journal:
        # in another order: what an answer is must not depend on the prompt before
        runs = stages.run_trees(session, heads.evaluator, TREES, answers[::-1], max_tokens, journal, quiet)
    assert len(runs) == len(TREES) * len(PROMPTS) and all(run.same for run in runs)
    accepted = []
    for tree in TREES:
        mine = [run for run in runs if run.tree == tree_id(tree)]
        accepted.append(mean_accepted(sum(run.tokens for run in mine), sum(run.steps for run in mine)))
        assert accepted[-1] == expected_accepted(log.answers, tree)
    assert accepted[0] == 0
    if max_tokens > 9:
        assert 0.1 < accepted[1] < accepted[2] < accepted[3]


def test_a_bank_ascends_and_its_policies_fit_it(session: Session, heads: HeadsInUse, home: Path, clock: None) -> None:
    stored = calibration(session, heads).run()
    assert [tree.measured for tree in stored.measured] == [tree.expected for tree in stored.measured]
    assert stored.measured[0].tree == StaticTree() == stored.bank.trees[0]
    assert set(stored.bank.trees) <= {tree.tree for tree in stored.measured} and len(stored.bank) > 2
    assert stored.curve == FLAT and stored.key.setup == session.curve_key
    assert set(stored.policies) == {"star", "ladder", "tau", "value"}
    # with steps that all cost the same, the tree with the most accepted is the fastest one
    star = stored.policies["star"]
    assert star.policy.index == len(stored.bank) - 1 and star.shares[-1] == 1
    assert stored.report["tasks"] == ["chat", "code"] and stored.report["answers_measured"] == 4
    assert stored.report["runs_with_another_text"] == 0

    with pytest.raises(UsageError, match="no bank of trees for tiny and auto"):
        calibrated_bank(session, "auto")
    save_bank(stored)
    bank = calibrated_bank(session, "auto")
    assert calibrated_bank(session, "code") == bank, "the bank of all tasks serves where a task has none"
    assert tuple(bank.trees) == stored.bank.trees and bank.policies["value"] == stored.policies["value"].policy
    assert make_head_method("entmtp-value", HeadKit(hydra=heads.evaluator, bank=lambda: bank), FLAT, 63)


STAGES = ["recording answers", "looking up ranks", "timing drafts", "running trees", "fitting policies"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_calibration_that_was_stopped_comes_to_the_same_bank(
    session: Session, heads: HeadsInUse, home: Path, clock: None, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(home / "whole"))
    save_curve(session.curve_key, FLAT, "tiny")
    reports: Counter[str] = Counter()

    def count(name: str, share: float) -> bool:
        assert 0 <= share <= 1
        reports[name] += 1
        return True

    whole = calibration(session, heads, count).run()
    monkeypatch.setenv("LOCALSPEC_HOME", str(home / "stopped"))
    save_curve(session.curve_key, FLAT, "tiny")
    made: Counter[str] = Counter()
    for name in ("observe_answers", "run_tree"):
        monkeypatch.setattr(stages, name, counting(getattr(stages, name), made))
    seen: Counter[str] = Counter()

    def stop(name: str, share: float) -> bool:
        seen[name] += 1
        return not (name == stage and seen[name] == (reports[name] + 1) // 2)

    with pytest.raises(Stopped):
        calibration(session, heads, stop).run()
    again = calibration(session, heads, stop)
    assert facts(again.run()) == facts(whole)
    assert made == {"observe_answers": len(PROMPTS), "run_tree": whole.report["runs"]}, "nothing was done twice"
    again.forget_measurements()
    assert not again.journal_path.exists()


def counting(function: Callable[..., Any], made: Counter[str]) -> Callable[..., Any]:
    def wrapped(*args: Any) -> Any:
        made[function.__name__] += 1
        return function(*args)

    return wrapped


def test_tasks_share_what_was_recorded(session: Session, heads: HeadsInUse, home: Path) -> None:
    seen: list[str] = []

    def note(name: str, share: float) -> bool:
        seen.append(name)
        return name == STAGES[0]

    for prompts in (PROMPTS, PROMPTS[3:]):
        with pytest.raises(Stopped):
            Calibration(session, heads, "code", prompts, watch=note).run()
    assert seen.count(STAGES[0]) == len(PROMPTS)


def test_drafts_are_timed_tree_by_tree(heads: HeadsInUse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow first call, as after a change of the tree, and one slow round do not show."""

    class Timed:
        def __init__(self) -> None:
            self.now, self.last, self.calls = 0.0, StaticTree(), 0

        def draft(self, g: Any, root: int, tree: StaticTree) -> None:
            self.calls += 1
            self.now += tree.n_nodes * (50 if tree != self.last else 1) * (9 if self.calls < 15 else 1)
            self.last = tree

    timed: Any = Timed()
    monkeypatch.setattr(live, "perf_counter", lambda: timed.now)
    done: list[int] = []
    hidden = heads.reference._embed(list(range(5)))  # any rows will do

    def step() -> None:
        timed.now += 1000  # which is not counted

    assert draft_times(timed, hidden, [1, 2, 3, 4, 5], TREES, done.append, step) == [0, 2, 4, 9]
    assert done == list(range(1, 13))


def test_what_cannot_be_calibrated_is_refused(session: Session, heads: HeadsInUse, home: Path) -> None:
    with pytest.raises(UsageError, match="no prompts"):
        Calibration(session, heads, "chat", [])
