"""The bench of methods on heads, on a tiny model with a calibrated bank."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from localspec.bench import head_bound, report, tree_report
from localspec.bench.head_bound import DraftCosts, best_bound, tree_bound
from localspec.bench.prompts import Prompt
from localspec.bench.run import BenchResult, Run, bench
from localspec.bench.usage import TreeUse, Usage
from localspec.calibrate.curve import CostCurve
from localspec.calibrate.store import save_curve
from localspec.engine.params import ContextParams, SamplingParams
from localspec.entmtp.bank_file import Names, bank_path, find_bank, save_bank
from localspec.entmtp.growth import grow_all
from localspec.entmtp.in_use import HeadsInUse, calibrated_bank
from localspec.entmtp.live import run_tree
from localspec.entmtp.observe import observe_answers
from localspec.entmtp.offline import Calibration, Options
from localspec.errors import UsageError
from localspec.events import Stats
from localspec.materials import Materials
from localspec.methods.head_methods import within
from localspec.replay.record import record_answer
from localspec.session import Session
from localspec.static_tree import MC_SIM_7B_63, StaticTree
from tests.entmtp.logs import random_log
from tests.entmtp.tiny_heads import write_bigram_heads
from tests.test_bench import HEADER
from tests.tiny_models import write_tiny
from tests.with_model import FLAT

PROMPTS = [Prompt(f"{task}-{i}", task, f"{task} {i}") for task in ("chat", "humaneval") for i in range(2)]
GREEDY = SamplingParams(temperature=0.0)
NAMES = Names("tiny", "heads.gguf", "")
TREE = StaticTree.from_paths([[0], [1], [0, 0]])


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A tiny model with its curve, Hydra heads, and a bank for code."""
    folder = tmp_path_factory.mktemp("bench")
    path = write_tiny(folder / "tiny.gguf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_HOME", str(folder / "home"))
        context = ContextParams(n_ctx=512, n_threads=1, hidden=True)
        with Session.open(path, context=context, method="plain") as opened:
            save_curve(opened.curve_key, FLAT, "tiny")
            texts = [record_answer(opened, prompt, GREEDY, 40, "plain").tokens for prompt in PROMPTS]
            heads = write_bigram_heads(folder / "heads.gguf", opened.model, texts)
            # drafting costs next to nothing, as with a larger model
            decode = opened.ctx.decode
            patch.setattr(opened.ctx, "decode", lambda *args: (time.sleep(0.002), decode(*args))[1])
            opened.materials = Materials(opened.model, opened.ctx, head_files={"hydra": heads})
            calibration = Calibration(opened, HeadsInUse.of(opened), "code", PROMPTS, Options(40, 2))
            save_bank(calibration.run())
            yield opened


def test_a_bank_of_another_task_does_not_serve(session: Session) -> None:
    done: list[int] = []
    with pytest.raises(UsageError, match="no bank of trees for tiny and chat"):
        bench(session, PROMPTS, ["lookup", "entmtp-tau"], sampling=GREEDY, max_tokens=8,
              progress=lambda n, total: done.append(n))  # fmt: skip
    with pytest.raises(UsageError, match="medusa drafts with Medusa heads, and there are none"):
        bench(session, PROMPTS, ["lookup", "medusa"], sampling=GREEDY, max_tokens=8)
    assert not done and session.task == "auto"


def test_a_bank_that_is_asked_for_has_to_be_there_and_of_use(session: Session) -> None:
    context = ContextParams(n_ctx=512, n_threads=1)
    heads = [session.materials.head_files["hydra"]]
    save_bank(replace(stored := find_bank(HeadsInUse.of(session).key(session, "code"), NAMES),
                      key=replace(stored.key, task="auto")))  # fmt: skip
    try:
        with Session.open(session.model.path, context=context, heads=heads, method="entmtp-tau", task="code") as opened:
            assert opened.task == "code"
        with pytest.raises(UsageError, match="no bank of trees for tiny and chat") as caught:
            Session.open(session.model.path, context=context, heads=heads, method="entmtp-tau", task="chat")
        assert "--bank auto, code" in (caught.value.hint or "") and "--task chat" in (caught.value.hint or "")
        # bench falls back on it
        bench(session, PROMPTS[:1], ["entmtp-tau"], sampling=GREEDY, max_tokens=8)
    finally:
        bank_path(replace(stored.key, task="auto")).unlink()


def test_every_step_with_a_tree_is_told(session: Session) -> None:
    methods = ["hydra-static", "hydra-best", "entmtp-star", "entmtp-value", "ptd+heads"]
    result = bench(session, PROMPTS[2:], methods, sampling=GREEDY, max_tokens=40, with_bounds=True)
    assert all(run.same for run in result.runs)
    stored = calibrated_bank(session, "code")
    sizes = [tree.n_nodes for tree in stored.trees]
    star = sizes[stored.policies["star"].choose(0.0)]
    for run in result.runs:
        usage, stats = run.usage, run.stats
        if run.method in ("plain", "ptd+heads"):
            assert usage is None or (0 < usage.n_asked <= usage.n_drafted <= stats.n_steps and not usage.trees)
            continue
        assert usage is not None
        steps = sum(tree.steps for tree in usage.trees)
        accepted = sum(tree.accepted for tree in usage.trees)
        if run.method.startswith("hydra"):
            # the first step has no hidden state, the last one may have one token left
            assert stats.n_steps - 2 <= steps < stats.n_steps and accepted == stats.n_accepted
            assert usage.n_picked == 0
        else:
            assert [tree.nodes for tree in usage.trees] == (sizes if run.method == "entmtp-value" else [star])
            assert 0 < steps == usage.n_picked < stats.n_steps and accepted <= stats.n_accepted
            assert 0 < usage.longest_pick <= usage.pick_seconds
    static, best = (next(run.usage for run in result.runs if run.method == name) for name in methods[:2])
    assert static is not None and best is not None
    assert [tree.nodes for tree in static.trees] == [within(MC_SIM_7B_63, 3).n_nodes]
    assert best.trees[0].expected == pytest.approx(stored.mixed["star"])

    rows = tree_report.tree_rows(result.runs)
    assert {row.method for row in rows} == set(methods[:4]) and {row.task for row in rows} == {"humaneval"}
    (asked,) = tree_report.asking_rows(result.runs)
    assert asked.method == "ptd+heads" and 0 < asked.share <= 1
    assert set(result.bounds) == {(name, task) for name in methods[:4] for task in ("humaneval", "all")}
    assert result.bounds["hydra-static", "all"].nodes == static.trees[0].nodes
    assert result.bounds["hydra-best", "all"].nodes <= head_bound.MAX_GROWN
    assert report.to_dict(result)["picking"]["median_seconds"] > 0


@pytest.mark.parametrize("nodes", [3, 8])
def test_methods_compare_at_equal_nodes(session: Session, nodes: int) -> None:
    methods = ["ptd", "heads", "ptd+heads", "entmtp-value"]
    result = bench(session, PROMPTS[2:], methods, sampling=GREEDY, max_tokens=40, nodes=nodes)
    for run in result.runs:
        assert run.same and run.stats.n_drafted <= (nodes - 1) * run.stats.n_steps
        if run.method == "ptd+heads":
            assert run.stats.n_drafted > 0.8 * (nodes - 1) * (run.stats.n_steps - 1)


def test_a_bound_is_what_a_live_run_of_its_tree_brings(session: Session) -> None:
    heads = HeadsInUse.of(session)
    answers = [record_answer(session, prompt, GREEDY, 40, "plain") for prompt in PROMPTS[:1]]
    log = observe_answers(session.ctx, heads.reference, answers, {})
    session.forget()
    run = run_tree(session, heads.evaluator, TREE, answers[0], 40)
    bound = tree_bound(log.answers, TREE, CostCurve((1, 5), (1.0, 3.0)), DraftCosts({TREE: 0.5}))
    assert bound.tokens_per_step == run.tokens / run.steps
    # a plain step, then steps of four nodes and their drafts
    assert bound.ratio == pytest.approx(run.tokens / (1 + (run.steps - 1) * 3.0))


def test_the_best_tree_depends_on_what_nodes_and_drafts_cost() -> None:
    log = random_log(3, lengths=(60, 50, 40))
    trees = [replayed.tree for replayed in grow_all(log, 16)]
    free = DraftCosts(dict.fromkeys(trees, 0.0))
    flat, steep = CostCurve((1, 64), (1.0, 1.0)), CostCurve((1, 64), (1.0, 64.0))
    assert best_bound(log.answers, trees, flat, free).nodes > 12
    dear = best_bound(log.answers, trees, steep, free)
    assert (dear.nodes, dear.ratio) == (1, 1.0)
    assert best_bound(log.answers, trees, flat, DraftCosts(dict.fromkeys(trees, 9.0))).nodes == 1


def test_drafts_of_other_sizes_cost_what_lies_between() -> None:
    chain, wide = StaticTree.greedy(2), StaticTree.from_paths([[0], [1], [2], [0, 0], [0, 1], [1, 0]])
    costs = DraftCosts({chain: 1.0, wide: 3.0, StaticTree.greedy(1): 0.5})
    assert costs(StaticTree()) == 0
    assert costs(wide) == 3.0
    assert costs(StaticTree.from_paths([[0], [1], [2], [0, 0]])) == 2.0
    assert costs(StaticTree.greedy(3)) == pytest.approx(np.interp(4, [3, 7], [1, 3]))


# --- the report ---


def used(task: str, method: str, usage: Usage) -> Run:
    stats = Stats(n_prompt=5, n_tokens=40, n_steps=20, seconds=1.0, native_seconds=0.9)
    return Run(f"{task}-1", task, method, 0, "length", True, stats, usage=usage)


RUNS = [
    used("extraction", "plain", Usage()),
    used("extraction", "entmtp-ladder", Usage((TreeUse(3, 5, 4, 0.7), TreeUse(28, 10, 20, 1.8)), 1.4, 15, 15e-6, 9e-6)),
    used("extraction", "entmtp-ladder", Usage((TreeUse(3, 5, 2, 0.7), TreeUse(28, 0, 0, 1.8)), 1.4, 5, 25e-6, 7e-6)),
    used("extraction", "ptd+heads", Usage(n_drafted=20, n_asked=5)),
]


def test_runs_of_a_task_are_added_up() -> None:
    small, big, both = tree_report.tree_rows(RUNS[1:3])
    assert (small.nodes, small.share, small.expected, small.measured) == (3, 10 / 40, 0.7, 6 / 10)
    assert (big.nodes, big.share, big.expected, big.measured) == (28, 10 / 40, 1.8, 2.0)
    assert (both.nodes, both.share, both.expected, both.measured) == (None, 20 / 40, 1.4, 26 / 20)
    picked = tree_report.picking(RUNS)
    assert picked is not None and picked.median_seconds == pytest.approx(3e-6) and picked.largest_seconds == 9e-6


def test_the_report_tells_trees_whole_in_a_narrow_terminal() -> None:
    out = io.StringIO()
    report.print_report(Console(file=out, width=60), BenchResult(HEADER, RUNS))
    text = out.getvalue()
    assert "…" not in text
    lines = [line.split() for line in text.splitlines() if "entmtp-ladder" in line]
    assert ["extraction", "entmtp-ladder", "28", "25.0%", "1.80", "2.00"] in lines
    assert ["extraction", "entmtp-ladder", "all", "50.0%", "1.40", "1.30"] in lines
    assert "choosing and swapping a tree: 3.0 us (largest 9 us)" in text
    assert "ptd+heads asked the heads at these shares of the steps with a draft: extraction 25%" in text.replace(
        "\n", " "
    )
