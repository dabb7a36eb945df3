"""Figures from runs: pure arithmetic, and the table that shows them.

A ratio compares a method with plain on the same prompt (medians over the repeats); the spread is over prompts.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from localspec.bench import tree_report
from localspec.bench.by_cost import LEGEND as BY_COST_LEGEND
from localspec.bench.by_cost import cost_rows, cost_table
from localspec.bench.run import PLAIN, BenchResult, Run
from localspec.bench.step_costs import ALL
from localspec.events import Stats
from localspec.methods.fly import LooseRule

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LEGEND = (
    "tok/s and x plain are medians over prompts, without prompt reading; bound: x plain of the best tree size, or with "
    "heads of the best static tree and its draft, from replay and the cost of steps, timed between the runs; nodes: "
    "verified a step; draft: share of the time spent on drafts; native: that inside llama.cpp; py ms: all other time "
    "of a step; same: prompts whose tokens are those of plain."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One method on one task. Ratios are to plain; `acceptance[d]` is the share of drafts accepted at depth d + 1.

    `ratios` has one value a prompt; the quartiles are theirs. `prompt_tokens_per_second` counts tokens that were not in
    the cache; None when all were. `nodes_per_step` counts the roots: 1 is plain decoding. `identical` of `n_prompts`
    prompts gave the tokens of plain in all repeats. `draft_share` and `native_share` are shares of the time, of making
    drafts and of being inside the native library. A method is not `lossless` when a text of it may lack the model's
    distribution.
    """

    method: str
    task: str
    n_prompts: int
    tokens_per_second: float
    prompt_tokens_per_second: float | None
    ratio: float
    ratio_q1: float
    ratio_q3: float
    ratios: tuple[float, ...]
    tokens_per_step: float
    nodes_per_step: float
    acceptance: tuple[float, ...]
    draft_share: float
    native_share: float
    python_ms_per_step: float
    identical: int
    lossless: bool = True

    @property
    def label(self) -> str:
        """The method's name for people: a lossy one says so."""
        return self.method if self.lossless else f"{self.method} (lossy)"


def acceptance(stats: Iterable[Stats]) -> list[float]:
    """By depth, the share of steps that drafted below an accepted node and had a draft accepted there."""
    reaching: list[int] = []
    accepted: list[int] = []
    for one in stats:
        for totals, counts in ((reaching, one.steps_reaching), (accepted, one.accepted_at)):
            totals += [0] * (len(counts) - len(totals))
            for depth, count in enumerate(counts):
                totals[depth] += count
    accepted += [0] * (len(reaching) - len(accepted))
    return [taken / steps if steps else 0.0 for taken, steps in zip(accepted, reaching, strict=True)]


def summarise(runs: Sequence[Run]) -> list[Row]:
    """A row for each method and task, then one for each method over all tasks (when there are several)."""
    tasks = list(dict.fromkeys(run.task for run in runs))
    methods = list(dict.fromkeys(run.method for run in runs))
    groups = [(task, [run for run in runs if run.task == task]) for task in tasks]
    if len(tasks) > 1:
        groups.append((ALL, list(runs)))
    return [_row(method, task, group) for task, group in groups for method in methods]


def _row(method: str, task: str, runs: Sequence[Run]) -> Row:
    mine = [run for run in runs if run.method == method]
    stats = [run.stats for run in mine]
    speeds, plain = _speeds(mine), _speeds([run for run in runs if run.method == PLAIN])
    ratios = [speeds[prompt] / plain[prompt] for prompt in speeds if plain.get(prompt)]
    q1, median, q3 = np.percentile(ratios, [25, 50, 75]).tolist() if ratios else [float("nan")] * 3
    steps, seconds = sum(s.n_steps for s in stats), sum(s.seconds for s in stats)
    native = sum(s.native_seconds for s in stats)
    fresh = sum(s.n_prompt - s.n_cached for s in stats if s.n_prompt - s.n_cached > 1)
    reading = sum(s.prompt_seconds for s in stats if s.n_prompt - s.n_cached > 1)
    differing = {run.prompt_id for run in mine if not run.same}
    return Row(
        method=method,
        task=task,
        n_prompts=len(speeds),
        tokens_per_second=statistics.median(speeds.values()),
        prompt_tokens_per_second=fresh / reading if reading else None,
        ratio=median,
        ratio_q1=q1,
        ratio_q3=q3,
        ratios=tuple(ratios),
        tokens_per_step=sum(s.n_tokens for s in stats) / max(1, steps),
        nodes_per_step=1 + sum(s.n_drafted for s in stats) / max(1, steps),
        acceptance=tuple(acceptance(stats)),
        draft_share=sum(s.propose_seconds for s in stats) / seconds if seconds else 0.0,
        native_share=native / seconds if seconds else 0.0,
        python_ms_per_step=(seconds - native) / max(1, steps) * 1e3,
        identical=len(speeds) - len(differing),
        lossless=all(run.lossless for run in mine),
    )


def _speeds(runs: Iterable[Run]) -> dict[str, float]:
    """Median tokens per second of each prompt."""
    by_prompt: dict[str, list[float]] = {}
    for run in runs:
        by_prompt.setdefault(run.prompt_id, []).append(run.stats.tokens_per_second)
    return {prompt: statistics.median(values) for prompt, values in by_prompt.items()}


def to_dict(result: BenchResult) -> dict[str, Any]:
    """The whole bench as JSON data."""
    picking = tree_report.picking(result.runs)
    return {
        "format": "localspec-bench",
        "version": 1,
        "header": result.header,
        "summary": [asdict(row) for row in summarise(result.runs)],
        "trees": [asdict(row) for row in tree_report.tree_rows(result.runs)],
        "asking": [asdict(row) for row in tree_report.asking_rows(result.runs)],
        "picking": None if picking is None else asdict(picking),
        "curves": {task: curve.to_dict() for task, curve in result.curves.items()},
        "timed": {"answers": result.timed[0], "unsteady": result.timed[1]},
        "by_cost": [asdict(row) for row in cost_rows(result)],
        "bounds": [{"method": m, "task": t, **asdict(bound)} for (m, t), bound in result.bounds.items()],
        "runs": [run.to_dict() for run in result.runs],
    }


def header_lines(header: dict[str, Any]) -> list[str]:
    """What was measured on what, in two lines."""
    machine = header["machine"]
    attention = "requested" if header["flash_attention_requested"] else "off"
    nodes = f", trees of {header['nodes']} nodes" if header.get("nodes") else ""
    accept = header.get("accept", "strict")
    if accept != "strict":
        rule = ""
        if accept == "loose":
            rule = f", {LooseRule(**{field.name: header[field.name] for field in fields(LooseRule)})}"
        nodes += f", {accept} acceptance{rule} (lossy)"
    if header.get("draft_sampling"):
        nodes += ", drafts by chance (lossless, but not the text of plain)"
    draft = f", draft model {header['draft']}" if header.get("draft") else ""
    return [
        f"{header['file']} ({header['description']}){draft}, {header['device']}, threads {header['threads']}, "
        f"flash attention {attention}, K/V {header['kv_cache']}, context {header['n_ctx']}",
        f"{header['build']}, {header['mode']} mode, {machine['cpu']}, {machine['system']}; "
        f"{header['prompts']} prompts x {header['max_tokens']} tokens x {header['repeats']}, "
        f"temperature {header['temperature']:g}{nodes}",
    ]


def print_report(console: Console, result: BenchResult) -> None:
    """The tables for people."""
    say = functools.partial(console.print, markup=False, soft_wrap=not console.is_terminal)
    for line in header_lines(result.header):
        say(line, style="dim")
    rows = summarise(result.runs)
    console.print()
    _print_whole(console, _table(rows, result))
    lossy = [run.stats for run in result.runs if not run.lossless]
    if lossy:
        forgiven, tokens = sum(stats.n_forgiven for stats in lossy), sum(stats.n_tokens for stats in lossy)
        say(f"* lossy: these texts do not have the model's distribution; {forgiven} of {tokens} tokens were forgiven")
    for row in rows:
        if row.acceptance and row.task in (ALL, rows[-1].task):
            rates = " ".join(f"{rate:.0%}" for rate in row.acceptance[:16])
            say(f"\n{row.label}: accepted by depth {rates}")
    trees = tree_report.tree_rows(result.runs)
    if trees:
        console.print()
        _print_whole(console, tree_report.tree_table(trees))
    by_cost = cost_rows(result)
    if by_cost:
        console.print()
        _print_whole(console, cost_table(by_cost))
        timed, unsteady = result.timed
        if 2 * unsteady > timed:
            busy = f"the machine was busy in {unsteady} of {timed} timings of steps"
            say(f"{busy}: bounds and ratios by cost are uncertain")
    for line in tree_report.footnotes(result.runs):
        say(f"\n{line}")
    for line in off_lines(result.runs):
        say(f"\n{line}")
    speeds = [row.prompt_tokens_per_second for row in rows if row.prompt_tokens_per_second]
    if speeds:
        say(f"\nPrompts were read at {statistics.median(speeds):.0f} tok/s.")
    legends = [LEGEND, *([tree_report.LEGEND] if trees else []), *([BY_COST_LEGEND] if by_cost else [])]
    say(" ".join(legends), style="dim")


def off_lines(runs: Sequence[Run]) -> list[str]:
    """A line for each method whose governor turned speculation off: in how many answers, task by task."""
    lines = []
    for method in dict.fromkeys(run.method for run in runs if run.went_off):
        parts = []
        for task in dict.fromkeys(run.task for run in runs):
            mine = [run.went_off > 0 for run in runs if (run.method, run.task) == (method, task)]
            if any(mine):
                parts.append(f"{task} {sum(mine)} of {len(mine)}")
        lines.append(f"{method} did not pay and went off for a while in these answers: {', '.join(parts)}")
    return lines


def _table(rows: Sequence[Row], result: BenchResult) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")  # twelve columns in 80
    table.add_column("Task", no_wrap=True)
    table.add_column("Method", no_wrap=True)
    bound_too = ("bound",) if result.bounds else ()
    for name in ("tok/s", "x plain", "quartiles", *bound_too, "tok/step", "nodes", "draft", "native", "py ms", "same"):
        table.add_column(name, justify="right", no_wrap=True)
    last = rows[0].task
    for row in rows:
        if row.task != last:
            table.add_section()
            last = row.task
        cells = _cells(row)
        if result.bounds:
            bound = result.bounds.get((row.method, row.task))
            cells.insert(3, f"{bound.ratio:.2f}" if bound else "")
        # short, as the table has to fit
        name = row.method if row.lossless else f"{row.method}*"
        table.add_row(row.task, name, *cells, style="bold" if row.task == ALL else None)
    return table


def _print_whole(console: Console, table: Table) -> None:
    """Long names may make a table wider than the terminal: that is better than figures cut off."""
    table.width = console.measure(table, options=console.options.update(width=1000)).maximum
    console.print(table, crop=False, no_wrap=True, overflow="ignore")


def _cells(row: Row) -> list[str]:
    plain = row.method == PLAIN
    return [
        f"{row.tokens_per_second:.1f}",
        "1.00" if plain else f"{row.ratio:.2f}",
        "" if plain else f"{row.ratio_q1:.2f}-{row.ratio_q3:.2f}",
        f"{row.tokens_per_step:.2f}",
        f"{row.nodes_per_step:.2f}",
        "" if plain else f"{row.draft_share:.0%}",
        f"{row.native_share:.0%}",
        f"{row.python_ms_per_step:.2f}",
        "" if plain else f"{row.identical}/{row.n_prompts}",
    ]
