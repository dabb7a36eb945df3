"""Figures of an evaluation: scores with intervals, the recovery ratio, speed; as JSON data and for people.

Speed is computed as in `bench`: medians over tasks, ratios to plain on the same task.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from localspec.bench.report import Row, summarise
from localspec.bench.run import Run
from localspec.evaluate.intervals import LEVEL, paired_ratio, wilson
from localspec.evaluate.results import Answer, Result
from localspec.evaluate.run import PLAIN

if TYPE_CHECKING:
    from rich.console import Console

LEGEND = (
    "In brackets: 95 % intervals (Wilson's for scores, Bonett and Price's for the ratio of paired scores). tok/s and x "
    "plain are medians over tasks, with quartiles, without prompt reading."
)


@dataclass(frozen=True, slots=True)
class Arm:
    """One method on all tasks: `right` of `n`, the score with its interval, and how fast it was.

    `copied` is the mean share of lines copied exactly, None where nothing was to be copied. `cut` counts answers that
    ended at the limit of tokens, `drafted` the drafts that were verified. Ratios are to plain.
    """

    method: str
    n: int
    right: int
    score: float
    low: float
    high: float
    copied: float | None
    cut: int
    tokens: int
    drafted: int
    forgiven: int
    lossless: bool
    tokens_per_step: float
    tokens_per_second: float
    ratio: float
    ratio_q1: float
    ratio_q3: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The method against plain, task by task: how many both, only one or none of them got right.

    `recovery` is the method's score in those of plain, with an interval; None where plain got nothing right, as `high`
    where there is no upper end. `equal` counts equal texts.
    """

    both: int
    plain_only: int
    method_only: int
    neither: int
    equal: int
    recovery: float | None
    low: float
    high: float | None


def arms(results: Sequence[Result]) -> list[Arm]:
    """A row for each method, plain first."""
    names = list(results[0].answers)
    rows = {row.method: row for row in summarise([run for result in results for run in _runs(result)])}
    return [_arm(name, [result.answers[name] for result in results], rows[name]) for name in names]


def _arm(method: str, answers: Sequence[Answer], row: Row) -> Arm:
    right = sum(answer.score.right for answer in answers)
    low, high = wilson(right, len(answers))
    shares = [answer.score.copied for answer in answers if answer.score.copied is not None]
    return Arm(
        method=method,
        n=len(answers),
        right=right,
        score=right / len(answers),
        low=low,
        high=high,
        copied=sum(shares) / len(shares) if shares else None,
        cut=sum(answer.reason == "length" for answer in answers),
        tokens=sum(answer.stats.n_tokens for answer in answers),
        drafted=sum(answer.stats.n_drafted for answer in answers),
        forgiven=sum(answer.stats.n_forgiven for answer in answers),
        lossless=row.lossless,
        tokens_per_step=row.tokens_per_step,
        tokens_per_second=row.tokens_per_second,
        ratio=row.ratio,
        ratio_q1=row.ratio_q1,
        ratio_q3=row.ratio_q3,
    )


def _runs(result: Result) -> list[Run]:
    """The answers as the bench knows them; the kinds of tasks do not matter here."""
    plain = result.answers[PLAIN].text
    return [
        Run(result.id, "", method, 0, made.reason, made.text == plain, made.stats, made.lossless)
        for method, made in result.answers.items()
    ]


def compare(results: Sequence[Result], method: str) -> Comparison:
    """`method` against plain."""
    pairs = [(result.answers[PLAIN], result.answers[method]) for result in results]
    both = sum(a.score.right and b.score.right for a, b in pairs)
    plain_only = sum(a.score.right and not b.score.right for a, b in pairs)
    method_only = sum(b.score.right and not a.score.right for a, b in pairs)
    low, high = paired_ratio(both, method_only, plain_only)
    plain = both + plain_only
    return Comparison(
        both=both,
        plain_only=plain_only,
        method_only=method_only,
        neither=len(pairs) - both - plain_only - method_only,
        equal=sum(a.text == b.text for a, b in pairs),
        recovery=(both + method_only) / plain if plain else None,
        low=low,
        high=high if math.isfinite(high) else None,
    )


def to_dict(results: Sequence[Result], header: Mapping[str, Any]) -> dict[str, Any]:
    """The summary as JSON data. `header` tells what was run, with which `method`."""
    method = header["method"]
    return {
        "format": "localspec-eval-summary",
        "version": 1,
        "header": dict(header),
        "confidence": LEVEL,
        "arms": [asdict(arm) for arm in arms(results)],
        "comparison": None if method == PLAIN else asdict(compare(results, method)),
    }


def print_report(console: Console, results: Sequence[Result], header: Mapping[str, Any]) -> None:
    """The summary for people; see `to_dict`."""
    method = header["method"]
    say = functools.partial(console.print, markup=False, soft_wrap=not console.is_terminal)
    for line in _header_lines(header, len(results)):
        say(line, style="dim")
    console.print()
    made = arms(results)
    _print_table(console, made)
    if method != PLAIN:
        say("")
        for line in _comparison_lines(compare(results, method), made[1], header["temperature"] == 0):
            say(line)
        if not made[1].drafted:
            reason = f" ({header['tree_limit']})" if header["tree_limit"] else ""
            say(f"nothing was drafted{reason}, so this shows little")
    if any(answer.score.own is False for result in results for answer in result.answers.values()):
        say("* the code ran without namespaces of its own: only Python itself kept it from the network")
    say(LEGEND, style="dim")


def _header_lines(header: Mapping[str, Any], n: int) -> list[str]:
    return [
        f"{header['file']} ({header['description']}), {header['device']}, threads {header['threads']}, "
        f"context {header['n_ctx']}, {header['build']}, {header['mode']} mode",
        f"{header['suite']}, split {header['split']}: {n} of {header['tasks']} tasks, "
        f"at most {header['max_tokens']} tokens an answer, temperature {header['temperature']:g}, "
        f"accept {_rule(header['acceptance'])}",
    ]


def _rule(acceptance: Mapping[str, Any]) -> str:
    """The rule of acceptance, with its parameters where it has any."""
    name = acceptance["accept"]
    parameters = acceptance.get(name) or {}
    return ", ".join([name, *(f"{key} {value}" for key, value in parameters.items())])


def _print_table(console: Console, rows: Sequence[Arm]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("Method", no_wrap=True)
    copying = any(row.copied is not None for row in rows)
    lines = ("lines",) if copying else ()
    for name in ("right", "score", *lines, "tok/s", "x plain", "quartiles", "tok/step", "forgiven", "cut"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        plain = row.method == PLAIN
        table.add_row(
            row.method if row.lossless else f"{row.method} (lossy)",
            f"{row.right}/{row.n}",
            f"{row.score:.1%} ({row.low:.1%} to {row.high:.1%})",
            *(("" if row.copied is None else f"{row.copied:.1%}",) if copying else ()),
            f"{row.tokens_per_second:.1f}",
            "1.00" if plain else f"{row.ratio:.2f}",
            "" if plain else f"{row.ratio_q1:.2f}-{row.ratio_q3:.2f}",
            f"{row.tokens_per_step:.2f}",
            "" if row.lossless else str(row.forgiven),
            str(row.cut),
        )
    table.width = console.measure(table, options=console.options.update(width=1000)).maximum
    console.print(table, crop=False, no_wrap=True, overflow="ignore")


def _comparison_lines(made: Comparison, arm: Arm, greedy: bool) -> list[str]:
    name, n = arm.method, arm.n
    if made.recovery is None:
        lines = ["recovery: plain got nothing right, so there is nothing to compare with"]
    else:
        high = "any" if made.high is None else f"{made.high:.1%}"
        lines = [f"recovery: {made.recovery:.1%} of the score of plain ({made.low:.1%} to {high})"]
    lines.append(
        f"right with both {made.both}, with plain alone {made.plain_only}, with {name} alone {made.method_only}, "
        f"with neither {made.neither}"
    )
    lines.append(f"{made.equal} of {n} texts equal those of plain" + ("" if greedy else " (drawn with the same seed)"))
    if arm.lossless and greedy and made.equal < n:
        lines.append("a lossless method differs only where two tokens are almost equally likely: `localspec verify`")
    return lines
