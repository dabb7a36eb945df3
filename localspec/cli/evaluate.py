"""`localspec eval`: do answers stay as good with a method as they are without?"""

from __future__ import annotations

import dataclasses
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli.accepting import AcceptOptions
from localspec.cli.options import EngineOptions, LogOptions, MethodOptions, simple_sampling, with_options
from localspec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from localspec.engine.params import SamplingParams
    from localspec.evaluate.results import Result
    from localspec.evaluate.suites import Task
    from localspec.methods.acceptance import Acceptance
    from localspec.session import Session

STOPPED = 130

EPILOG = """Examples:

localspec eval --suite copy --method ptd

localspec eval --suite gsm8k --limit 20 -o gsm8k.jsonl

localspec eval --suite humaneval --run-code --method heads --accept typical

localspec eval --suite mine.jsonl --split all --json

A line of a file has `prompt`, and `test` with `entry_point` (as HumanEval has them), or `answer` (a number), or
`expected` (a text to copy); `id`, `task` and `split` if you like. With --output an evaluation that was stopped, by
ctrl-c or by a crash, goes on when it is called again with the same options; --split and --limit may change.
"""


def register(app: typer.Typer) -> None:
    app.command("eval", epilog=EPILOG)(evaluate)


@with_options
def evaluate(
    engine: EngineOptions,
    how: MethodOptions,
    accepting: AcceptOptions,
    logs: LogOptions,
    suite: Annotated[str, typer.Option("--suite", help="humaneval, gsm8k, copy, or a file of JSON lines.")],
    split: Annotated[str, typer.Option("--split", help="Part of the suite: test, calibrate, or all.")] = "test",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many tasks.")] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", "-n", min=1, help="Tokens of an answer; by default 400 for numbers, else 512."),
    ] = None,
    run_code: Annotated[
        bool,
        typer.Option(
            "--run-code",
            help="Run the code that the model writes, to test it: in a process of its own, with limits of time and "
            "memory, without network as far as the system permits.",
        ),
    ] = False,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", min=2, max=63, help="Trees of so many nodes at every step, not what pays."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed for --temp above 0.")] = 1,
    temp: Annotated[float, typer.Option("--temp", help="Temperature.")] = 0.0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Keep answers and scores in FILE (JSON lines), and go on with those that it holds.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Score a method's answers against those of plain decoding, task by task."""
    logs.set_up()
    if nodes is not None and how.method == "plain":
        raise UsageError("--method plain has no trees, so --nodes would do nothing", "leave out one of the two")
    sampling = simple_sampling(temp, seed)
    acceptance = accepting.acceptance(sampling, how.method)

    from localspec.cli.answer import open_session
    from localspec.cli.bench import check_files
    from localspec.evaluate.suites import choose, digest, read_suite
    from localspec.machine import load_native

    every = read_suite(suite)
    tasks = choose(every, split, limit)
    _check_code(tasks, run_code)
    check_files(output, None)
    load_native()
    from localspec.describe import describe

    with open_session(engine, how.method, bank=how.bank) as session:
        method = session.method_name
        asked = {"--method": method, "--bank": session.task, "--temp": temp, "--seed": seed,
                 "--max-tokens": max_tokens, "--nodes": nodes}  # fmt: skip
        rule = dataclasses.asdict(acceptance)
        options = {**_engine(engine), **asked, "the rule of acceptance": rule, "the tasks of --suite": digest(every)}
        results, stopped = _run(session, tasks, method, sampling, acceptance, max_tokens, nodes, output, options)
        header = {
            **describe(session), "suite": suite, "split": split, "tasks": len(tasks), "method": method,
            "bank": session.task, "max_tokens": max_tokens or max(task.max_tokens for task in tasks), "nodes": nodes,
            "temperature": temp, "seed": seed, "acceptance": rule,
        }  # fmt: skip
    if results:
        _tell(results, header, as_json)
    if stopped:
        _tell_stopped(len(results), len(tasks), output)
        raise typer.Exit(STOPPED)


def _check_code(tasks: Sequence[Task], run_code: bool) -> None:
    """Raise `UsageError` for tasks that need code to be run when that was not allowed, or cannot be."""
    from localspec.evaluate.sandbox import MEMORY, SECONDS, check_sandbox
    from localspec.evaluate.scoring import CodeTests

    if not any(isinstance(task.check, CodeTests) for task in tasks):
        return
    if not run_code:
        raise UsageError(
            "these tasks are scored by running code that the model wrote, which may do anything",
            f"--run-code allows it: each program in a process of its own, {SECONDS} seconds, {MEMORY >> 20} MiB, "
            "an empty folder, and without network as far as the system permits",
        )
    check_sandbox()


def _engine(engine: EngineOptions) -> dict[str, Any]:
    """The options of the engine as JSON data, but for those that name files: see `_content`."""
    values = dataclasses.asdict(engine)
    for name in ("model", "draft", "heads"):
        del values[name]
    return {f"--{name.replace('_', '-')}": json.loads(json.dumps(value, default=str)) for name, value in values.items()}


def _content(session: Session) -> dict[str, Any]:
    """What answers come from: models, heads and the library, by their content, as files change in place."""
    from localspec import machine
    from localspec.fingerprint import file_fingerprint

    draft = None if session.draft is None else session.draft.model.fingerprint
    heads = {kind: file_fingerprint(path) for kind, path in session.materials.head_files.items()}
    build = machine.library().build
    return {"the model": session.model.fingerprint, "the build": build, "the draft model": draft, "the heads": heads}


def _run(
    session: Session,
    tasks: Sequence[Task],
    method: str,
    sampling: SamplingParams,
    acceptance: Acceptance,
    max_tokens: int | None,
    nodes: int | None,
    output: Path | None,
    options: dict[str, Any],
) -> tuple[list[Result], bool]:
    """The results that there are at the end, and whether it came early."""
    from localspec.cli.console import interrupt_flag, progress_bar
    from localspec.evaluate.results import open_results
    from localspec.evaluate.run import Stopped
    from localspec.evaluate.run import evaluate as run

    made: list[Result] = []
    with ExitStack() as stack:
        keep = made.append
        if output is not None:
            journal, known = open_results(output, {**_content(session), **options})
            stack.enter_context(journal)
            wanted = {task.prompt.id for task in tasks}
            made += [result for result in known if result.id in wanted]

            def keep(result: Result) -> None:
                journal.append(result.to_dict())
                made.append(result)

        bar = stack.enter_context(progress_bar())
        pressed = stack.enter_context(interrupt_flag())
        try:
            results = run(
                session,
                tasks,
                method,
                sampling=sampling,
                acceptance=acceptance,
                max_tokens=max_tokens,
                nodes=nodes,
                known=tuple(made),
                keep=keep,
                cancelled=pressed,
                progress=lambda done, total: bar("evaluating", done / total),
            )
        except Stopped:
            return made, True
        return results, False


def _tell(results: Sequence[Result], header: dict[str, Any], as_json: bool) -> None:
    from localspec.cli.console import console
    from localspec.evaluate import report

    if as_json:
        content = report.to_dict(results, header)
        sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    else:
        report.print_report(console(stderr=False), results, header)


def _tell_stopped(done: int, total: int, output: Path | None) -> None:
    from localspec.cli.console import note

    way_out = (
        "nothing was kept: --output FILE keeps the answers, and goes on with them"
        if output is None
        else "the same command goes on"
    )
    note(f"stopped after {done} of {total} tasks; {way_out}")
