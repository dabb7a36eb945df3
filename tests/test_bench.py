"""The bench: its prompts, its arithmetic, its table and picture."""

from __future__ import annotations

import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from localspec.bench import report, step_costs
from localspec.bench.plot import check_plot, plot
from localspec.bench.prompts import TASKS, Prompt, own_prompts, read_prompts, select
from localspec.bench.run import BenchResult, Run, bench, check_methods
from localspec.calibrate.curve import CostCurve
from localspec.calibrate.measure import Measurement
from localspec.decode import Limits
from localspec.engine.params import SamplingParams
from localspec.errors import UsageError
from localspec.events import DoneEvent, Event, NoteEvent, Stats, StepEvent, StepTimings
from localspec.methods.acceptance import Acceptance
from localspec.methods.base import Method
from localspec.methods.fixed import Fixed
from localspec.methods.fly import LooseRule
from localspec.methods.governor import OFF_NOTE
from localspec.methods.plain import PlainDrafter
from localspec.methods.strict import StrictVerifier
from localspec.replay.log import LoggedAnswer
from localspec.tree import Topology
from tests.with_model import calibrated_home, localspec

HEADER: dict[str, Any] = {
    "model": "Toy",
    "file": "toy.gguf",
    "description": "toy 1M",
    "device": "CPU",
    "threads": 2,
    "flash_attention_requested": True,
    "kv_cache": "f16/f16",
    "n_ctx": 512,
    "build": "llama-cpp-python 0",
    "mode": "stock",
    "machine": {"cpu": "CPU", "system": "Linux"},
    "prompts": 2,
    "max_tokens": 8,
    "repeats": 1,
    "temperature": 0.0,
}


def a_run(prompt: str, method: str, speed: float, *, repeat: int = 0, same: bool = True, task: str = "edit") -> Run:
    stats = Stats(n_prompt=50, n_tokens=100, n_steps=50, seconds=100 / speed, native_seconds=80 / speed)
    return Run(prompt, task, method, repeat, "length", same, stats)


# --- prompts ---


def test_the_own_sets_are_complete_and_carry_their_texts() -> None:
    prompts = own_prompts()
    assert Counter(prompt.task for prompt in prompts) == dict.fromkeys(TASKS, 8)
    assert len({prompt.id for prompt in prompts}) == len({prompt.text for prompt in prompts}) == 48
    for prompt in prompts:
        if prompt.task in ("edit", "summary", "extraction"):
            assert len(prompt.text) > 500, prompt.id


def test_a_line_needs_no_more_than_a_prompt(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    # U+2028 ends a line for str.splitlines, but not in JSON lines
    path.write_text(
        '{"prompt": "a\u2028b"}\n\n{"prompt": "c", "id": 7, "task": "poem", "more": []}\r\n', encoding="utf-8"
    )
    assert read_prompts(path) == [Prompt("mine-1", "mine", "a\u2028b"), Prompt("7", "poem", "c")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not valid JSON"),
        ('"text"', "not a JSON object"),
        ('{"text": "a"}', "lacks a `prompt`"),
        ('{"prompt": "  "}', "lacks a `prompt`"),
        ('{"prompt": 5}', "lacks a `prompt`"),
        ('{"prompt": "a", "task": ["b"]}', "`task` is not text"),
        ('{"prompt": "a", "id": "x"}', "used twice"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "fine", "id": "x"}\n\n' + line + "\n")
    with pytest.raises(UsageError, match="line 3") as error:
        read_prompts(path)
    assert reason in error.value.message


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00"])
def test_a_file_without_prompts_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        read_prompts(path)


def test_tasks_and_limits_choose_prompts() -> None:
    chosen = select(own_prompts(), ["math", "edit"], limit=2)
    assert [prompt.id for prompt in chosen] == ["edit-1", "edit-2", "math-1", "math-2"]
    with pytest.raises(UsageError, match="no task 'poem'"):
        select(own_prompts(), ["poem"])


# --- arithmetic ---


def test_ratios_compare_the_same_prompt_and_the_spread_is_over_prompts() -> None:
    runs = [a_run("slow", "plain", 10), a_run("fast", "plain", 100), a_run("other", "plain", 50)]
    runs += [a_run("slow", "lookup", 30), a_run("fast", "lookup", 100), a_run("other", "lookup", 100)]
    plain, lookup = report.summarise(runs)
    assert (plain.method, plain.ratio, plain.tokens_per_second) == ("plain", 1.0, 50)
    assert sorted(lookup.ratios) == pytest.approx([1, 2, 3])
    assert (lookup.ratio_q1, lookup.ratio, lookup.ratio_q3) == pytest.approx((1.5, 2, 2.5))
    assert lookup.tokens_per_second == 100
    assert lookup.native_share == pytest.approx(0.8)
    assert lookup.tokens_per_step == 2
    # all 50 steps of each run, 20 % of the time outside: (2 / 3 + 0.2 + 0.2) s / 150
    assert lookup.python_ms_per_step == pytest.approx((20 / 30 + 0.2 + 0.2) / 150 * 1e3)


def test_repeats_are_reduced_to_their_median_first() -> None:
    runs = [a_run("a", "plain", speed, repeat=i) for i, speed in enumerate((10, 11, 1000))]
    runs += [a_run("a", "lookup", speed, repeat=i) for i, speed in enumerate((22, 1, 23))]
    assert report.summarise(runs)[1].ratio == pytest.approx(2)


def test_one_differing_repeat_makes_a_prompt_differ() -> None:
    runs = [a_run(prompt, "plain", 10, repeat=i) for prompt in "ab" for i in range(2)]
    runs += [a_run(prompt, "lookup", 10, repeat=i, same=(prompt, i) != ("a", 1)) for prompt in "ab" for i in range(2)]
    row = report.summarise(runs)[1]
    assert (row.identical, row.n_prompts) == (1, 2)


def test_acceptance_is_counted_where_a_draft_could_be_accepted() -> None:
    a, b = Stats(steps_reaching=[10, 4], accepted_at=[4, 1]), Stats(steps_reaching=[10], accepted_at=[2])
    assert report.acceptance([a, b]) == pytest.approx([6 / 20, 1 / 4])
    assert report.acceptance([Stats()]) == []


def test_prompts_from_the_cache_do_not_count_as_read() -> None:
    fresh, cached = a_run("a", "plain", 10), a_run("a", "lookup", 10)
    fresh.stats.prompt_seconds = 0.5
    cached.stats.n_cached, cached.stats.prompt_seconds = 49, 0.001
    plain, lookup = report.summarise([fresh, cached])
    assert plain.prompt_tokens_per_second == pytest.approx(100)
    assert lookup.prompt_tokens_per_second is None


def test_several_tasks_get_a_row_for_all_of_them() -> None:
    runs = [a_run(task + "-1", method, 10, task=task) for task in ("edit", "chat") for method in ("plain", "lookup")]
    assert [row.task for row in report.summarise(runs)] == ["edit", "edit", "chat", "chat", "all", "all"]


def test_the_table_tells_every_figure_within_80_columns() -> None:
    runs = [a_run(task + "-1", method, 10, task=task) for task in TASKS for method in ("plain", "lookup")]
    out = io.StringIO()
    report.print_report(Console(file=out, width=80), BenchResult(HEADER, runs))
    table = [line for line in out.getvalue().splitlines() if line.startswith(("extraction", "all"))]
    assert len(table) == 4
    assert "1.00-1.00" in table[-1] and "6/6" in table[-1]
    assert "…" not in out.getvalue()
    assert "toy.gguf" in out.getvalue()


def test_loose_acceptance_is_told_with_its_parameters_and_what_it_forgave() -> None:
    runs = [a_run("code-1", method, 10) for method in ("plain", "lookup")]
    forgiving = replace(runs[1].stats, forgiven=[2, 9])
    runs[1] = replace(runs[1], lossless=False, stats=forgiving)
    header = {**HEADER, **Acceptance("loose", loose=LooseRule(0.5, 4, ratio=0.25)).to_dict()}
    out = io.StringIO()
    report.print_report(Console(file=out, width=200), BenchResult(header, runs))
    assert "loose acceptance, theta 0.5, window 4, top3 entropy, ratio 0.25 (lossy)" in out.getvalue()
    assert f"2 of {forgiving.n_tokens} tokens were forgiven" in out.getvalue()


def test_a_lossy_method_is_labelled_everywhere() -> None:
    runs = [a_run(task + "-1", method, 10, task=task) for task in TASKS for method in ("plain", "lookup")]
    runs = [replace(run, lossless=run.method == "plain") for run in runs]
    result = BenchResult({**HEADER, "accept": "typical"}, runs)
    out = io.StringIO()
    report.print_report(Console(file=out, width=80), result)
    table = [line for line in out.getvalue().splitlines() if line.startswith(("extraction", "all"))]
    assert [" lookup* " in line for line in table] == [False, True] * 2
    assert "6/6" in table[-1] and "…" not in out.getvalue()
    assert "typical acceptance (lossy)" in out.getvalue() and "* lossy: " in out.getvalue()
    told = report.to_dict(result)
    for row in (*told["summary"], *told["runs"]):
        assert row["lossless"] == (row["method"] == "plain")


# --- running ---


class FakeSession:
    """Answers with one token a step; `lookup` differs on the prompt "odd"."""

    class template:
        stops = ()

    #: methods that cannot be had
    lacking: tuple[str, ...] = ()
    task = "auto"

    def __init__(self) -> None:
        self.order: list[tuple[str, str]] = []
        self.tasks: list[tuple[str, str]] = []
        self.methods: dict[str, Method] = {}

    def check(self, name: str) -> None:
        if name in self.lacking:
            raise UsageError(f"{name} lacks something")

    def method(self, name: str) -> Method:
        return self.methods.setdefault(name, Method(name, PlainDrafter(), Fixed(1), StrictVerifier()))

    def clear_pool(self) -> None:
        self.order.append(("", "clear"))

    def chat_prompt(self, messages: list[dict[str, str]]) -> list[int]:
        return [ord(char) for char in messages[-1]["content"]]

    def generate(
        self, prompt: list[int], sampling: SamplingParams, limits: Limits, method: Method, **_: object
    ) -> Iterator[Event]:
        text = "".join(map(chr, prompt))
        self.order.append((text, method.name))
        self.tasks.append((text, self.task))
        tokens = (1, 2, 3) if (text, method.name) == ("odd", "lookup") else (1, 2)
        timings = StepTimings(0, 0, 0, 0, 0, 0.1)
        yield StepEvent(tokens, "", method.name, Topology.chain(1), (0,), (), timings)
        if (text, method.name) == ("odd", "lookup"):
            yield NoteEvent(OFF_NOTE)
        yield DoneEvent("length", "", Stats(n_prompt=3, n_tokens=len(tokens), n_steps=1, seconds=0.1))


def test_methods_are_interleaved_in_a_rotating_order_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.bench.run.describe", lambda session: HEADER)
    session: Any = FakeSession()
    prompts = [Prompt("1", "t", "even"), Prompt("2", "t", "odd")]
    done: list[tuple[int, int]] = []
    result = bench(
        session, prompts, ["lookup"], sampling=SamplingParams(temperature=0), max_tokens=8, repeats=2,
        progress=lambda *at: done.append(at),
    )  # fmt: skip
    warm_up, measured = session.order[:2], session.order[2:]
    assert measured[::2] == [("", "clear")] * 8, "a drafter knew what another run had taught it"
    measured = measured[1::2]
    assert {method for _, method in warm_up} == {"plain", "lookup"}
    assert measured == [
        ("even", "plain"), ("even", "lookup"), ("odd", "lookup"), ("odd", "plain"),
        ("even", "lookup"), ("even", "plain"), ("odd", "lookup"), ("odd", "plain"),
    ]  # fmt: skip
    assert {(run.prompt_id, run.method): run.same for run in result.runs} == {
        ("1", "plain"): True, ("1", "lookup"): True, ("2", "plain"): True, ("2", "lookup"): False,
    }  # fmt: skip
    assert done[-1] == (8, 8)
    assert report.off_lines(result.runs) == ["lookup did not pay and went off for a while in these answers: t 2 of 4"]
    out = io.StringIO()
    report.print_report(Console(file=out, width=80), result)
    assert report.off_lines(result.runs)[0] in out.getvalue()


def test_steps_are_timed_in_the_middle_of_every_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[int], int]] = []

    def measured(ctx: object, *, tokens: list[int], n_context: int, **_: object) -> Measurement | None:
        asked.append((tokens, n_context))
        return Measurement(CostCurve((1, 2), (1.0, 1.0 + n_context)), n_context > 5) if len(tokens) > 3 else None

    monkeypatch.setattr(step_costs, "measure", measured)
    costs = step_costs.StepCosts(CostCurve((1, 2), (1.0, 1.5)))
    ctx: Any = None
    for name, task, n in (("a", "code", 2), ("b", "code", 10), ("c", "code", 3), ("d", "chat", 1)):
        costs.time(ctx, LoggedAnswer(name, task, tuple(range(n)), (7, 8), [[7], [8]], [[1.0], [1.0]]))
    assert asked[1:] == [([*range(10), 7, 8], 11), ([0, 1, 2, 7, 8], 4), ([0, 7, 8], 2)]
    curves = costs.curves({"code": [], "chat": []})
    assert [curves[task].cost(2) for task in ("code", "chat", "all")] == [5.0, 1.5, 5.0]
    assert (costs.n_timed, costs.n_unsteady) == (3, 2)


def test_a_slow_minute_of_the_machine_does_not_bend_the_curve() -> None:
    quiet, slow = CostCurve((1, 2, 4), (1.0, 1.5, 2.0)), CostCurve((1, 2), (3.0, 4.5))
    curve = step_costs.typical([quiet, slow, quiet])
    assert (curve.n, curve.seconds) == ((1, 2), (1.0, 1.5))


def test_methods_are_run_with_the_bank_for_their_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.bench.run.describe", lambda session: HEADER)
    session: Any = FakeSession()
    prompts = [Prompt(str(i), task, task) for i, task in enumerate(("humaneval", "math", "edit"))]
    bench(session, prompts, ["lookup"], sampling=SamplingParams(temperature=0), max_tokens=8)
    assert set(session.tasks) == {("humaneval", "code"), ("math", "math"), ("edit", "edit")}
    assert session.task == "auto"


def test_what_a_method_lacks_is_said_before_anything_runs() -> None:
    session: Any = FakeSession()
    session.lacking = ("medusa",)
    with pytest.raises(UsageError, match="medusa lacks"):
        bench(session, [Prompt("1", "t", "a")], ["lookup", "entmtp"], sampling=SamplingParams(), max_tokens=8)
    assert session.order == [] and session.task == "auto"


def test_a_short_name_stands_for_all_that_the_paper_compares() -> None:
    names = ["medusa", "hydra-static", "hydra-best", "entmtp-star", "entmtp-ladder", "entmtp-tau", "entmtp-value"]
    assert check_methods(["entmtp", "ptd", "medusa"]) == ["plain", *names, "ptd"]


def test_an_unknown_method_is_refused_before_anything_runs() -> None:
    session: Any = FakeSession()
    with pytest.raises(UsageError, match="no method 'psychic'"):
        bench(session, [Prompt("1", "t", "a")], ["psychic"], sampling=SamplingParams(), max_tokens=8)
    assert session.order == []


# --- the picture ---


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_the_picture_is_written(tmp_path: Path, suffix: str, magic: bytes) -> None:
    pytest.importorskip("matplotlib")
    runs = [a_run(f"{task}-{i}", method, 10 + i, task=task)
            for task in ("edit", "chat") for method in ("plain", "lookup", "auto") for i in range(3)]  # fmt: skip
    path = tmp_path / f"bench{suffix}"
    plot(BenchResult(HEADER, runs), path)
    assert path.read_bytes().startswith(magic)


def test_a_picture_that_cannot_be_made_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"not as bench\.gif"):
        check_plot(tmp_path / "bench.gif")
    with pytest.raises(UsageError, match="does not exist"):
        check_plot(tmp_path / "nowhere" / "bench.png")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(UsageError, match="needs matplotlib") as error:
        check_plot(tmp_path / "bench.png")
    assert error.value.hint is not None and error.value.hint == "pip install matplotlib"


# --- the whole program ---


@pytest.mark.model
@pytest.mark.parametrize("option", ["--json", "-o"])
def test_bench_tells_all_figures_as_json_or_beside_the_table(tmp_path: Path, option: str) -> None:
    how = ["--json"] if option == "--json" else ["-o", str(tmp_path / "out.json")]
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "Repeat: one two three one two three one two three", "task": "echo"}\n')
    with calibrated_home(tmp_path / "home") as model:
        done = localspec(
            "bench", "-m", str(model), "-t", "1", "-c", "512", "--prompts", str(prompts), "--methods", "lookup",
            "-n", "8", *how,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    if "--json" in how:
        data = json.loads(done.stdout)
    else:
        assert re.search(r"^echo +lookup ", done.stdout, re.MULTILINE)
        data = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert data["header"]["threads"] == 1 and data["header"]["methods"] == ["plain", "lookup"]
    assert [(row["task"], row["method"], row["n_prompts"]) for row in data["summary"]] == [
        ("echo", "plain", 1),
        ("echo", "lookup", 1),
    ]
    for run in data["runs"]:
        assert 1 <= run["stats"]["n_tokens"] <= 8
        assert 0 < run["stats"]["native_seconds"] <= run["stats"]["seconds"]
        assert math.isfinite(run["tokens_per_second"])
