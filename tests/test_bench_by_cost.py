"""Ratios by the cost of steps: free of the pace of the machine."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from localspec.bench import report
from localspec.bench.bound import Bound
from localspec.bench.by_cost import cost_rows, ratio_by_cost
from localspec.bench.run import BenchResult, Run
from localspec.calibrate.curve import CostCurve
from localspec.events import Stats
from tests.test_bench import HEADER

CURVE = CostCurve((1, 2, 4), (0.01, 0.012, 0.02))


def a_run(method: str, n_tokens: int, nodes: dict[int, int], *, seconds: float = 1.0, **more: Any) -> Run:
    stats = Stats(n_tokens=n_tokens, n_steps=sum(nodes.values()), seconds=seconds, propose_seconds=0.1 * seconds)
    return Run(more.pop("prompt", "p"), more.pop("task", "code"), method, 0, "length", True, stats, nodes=nodes, **more)


def test_the_pace_of_the_machine_does_not_matter() -> None:
    ratios = [ratio_by_cost(a_run("ptd", 20, {1: 4, 4: 3}, seconds=seconds), CURVE) for seconds in (0.1, 1.0, 7.0)]
    # ten plain steps, and the drafts took a tenth of the time
    assert ratios == [pytest.approx(20 * 0.9 / 10)] * 3


def test_rows_tell_what_was_slower_and_the_share_of_the_bound() -> None:
    runs = [a_run("plain", 20, {1: 20}), a_run("ptd", 20, {1: 4, 4: 3})]
    runs += [a_run("plain", 4, {1: 4}, task="math"), a_run("ptd", 4, {4: 3}, task="math")]
    curves = {"code": CURVE, "math": CURVE, "all": CURVE}
    result = BenchResult(HEADER, runs, bounds={("ptd", "code"): Bound(4, 3.0, 2.0)}, curves=curves)
    code, math, everything = cost_rows(result)
    assert (code.task, code.ratio, code.slower, code.n_runs, code.bound) == ("code", pytest.approx(1.8), 0, 1, 2.0)
    assert (math.ratio, math.least, math.slower, math.bound) == (pytest.approx(0.6), pytest.approx(0.6), 1, None)
    assert (everything.task, everything.least, everything.n_runs) == ("all", pytest.approx(0.6), 2)
    out = io.StringIO()
    report.print_report(Console(file=out, width=80), result)
    (line,) = [line.split() for line in out.getvalue().splitlines() if line.startswith("code ") and "90%" in line]
    assert line == ["code", "ptd", "1.80", "2.00", "90%", "1.80", "0/1"]
    assert report.to_dict(result)["by_cost"][0]["bound"] == 2.0


def test_without_timed_steps_there_are_none() -> None:
    result = BenchResult(HEADER, [a_run("plain", 20, {1: 20}), a_run("ptd", 20, {1: 4, 4: 3})])
    assert cost_rows(result) == []
    out = io.StringIO()
    report.print_report(Console(file=out, width=80), result)
    assert "By cost" not in out.getvalue()


@pytest.mark.parametrize(("timed", "told"), [((8, 3), False), ((8, 5), True)])
def test_a_machine_too_busy_for_timing_steps_is_told(timed: tuple[int, int], told: bool) -> None:
    runs = [a_run("plain", 20, {1: 20}), a_run("ptd", 20, {1: 4, 4: 3})]
    result = BenchResult(HEADER, runs, curves={"code": CURVE, "all": CURVE}, timed=timed)
    out = io.StringIO()
    report.print_report(Console(file=out, width=200), result)
    assert ("busy in 5 of 8 timings" in out.getvalue()) == told
    assert report.to_dict(result)["timed"] == {"answers": timed[0], "unsteady": timed[1]}
