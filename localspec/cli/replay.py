"""`localspec record` and `localspec replay`: answers written down once, and drafters run over them."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli.options import EngineOptions, LogOptions, PromptOptions, simple_sampling, with_options
from localspec.errors import ModelNotFoundError, UsageError

if TYPE_CHECKING:
    from localspec.methods.ptd.native import Corpus
    from localspec.replay.replay import Count

RECORD_EPILOG = """Examples:

localspec record answers.log --prompts mine.jsonl

A recording that was interrupted goes on where it ended.
"""

REPLAY_EPILOG = """Examples:

localspec replay answers.log

localspec replay answers.log -m ~/models/mine.gguf

localspec replay answers.log --drafters ptd,ptd-chain --sizes 2,4,8,16 --json
"""

DEFAULT_SIZES = "2,3,4,6,8,12,16"


def register(app: typer.Typer) -> None:
    app.command("record", epilog=RECORD_EPILOG)(record)
    app.command("replay", epilog=REPLAY_EPILOG)(replay)


@with_options
def record(
    engine: EngineOptions,
    which: PromptOptions,
    logs: LogOptions,
    log: Annotated[Path, typer.Argument(help="The file to write, or to go on with.", metavar="LOG")],
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", min=1, help="Tokens of an answer.")] = 160,
    seed: Annotated[int, typer.Option("--seed", help="Seed for --temp above 0.")] = 1,
    temp: Annotated[float, typer.Option("--temp", help="Temperature.")] = 0.0,
) -> None:
    """Answer prompts and write down what the model thought of at each token, for `localspec replay`."""
    logs.set_up()
    engine.refuse_draft()
    prompts = which.prompts()
    sampling = simple_sampling(temp, seed)
    from localspec.cli.answer import open_session
    from localspec.cli.console import note, progress_bar
    from localspec.machine import load_native

    load_native()
    from localspec.replay import record as recorder

    with open_session(engine, "auto") as session, progress_bar() as bar:
        made = recorder.record(
            session,
            prompts,
            log,
            sampling=sampling,
            max_tokens=max_tokens,
            progress=lambda done, total: bar("recording", done / total),
        )
    note(f"{made} answers recorded, {len(prompts)} in {log}")


@with_options
def replay(
    logs: LogOptions,
    log: Annotated[Path, typer.Argument(help="A file that `localspec record` wrote.", metavar="LOG")],
    drafters: Annotated[str, typer.Option("--drafters", help="Methods whose drafts to try.")] = "ptd,ptd-chain,lookup",
    sizes: Annotated[str, typer.Option("--sizes", help="Nodes of a tree, the last token included.")] = DEFAULT_SIZES,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="The model of the log, for its tokens; not needed if it goes by its name here."
        ),
    ] = None,
    warm: Annotated[bool, typer.Option("--warm", help="Let a drafter keep what earlier answers taught it.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:
    """Run drafters over recorded answers: tokens per step for each size of tree, without running the model."""
    logs.set_up()
    from localspec.machine import load_native

    load_native()
    from localspec.methods.ptd.native import new_pool
    from localspec.methods.registry import make_drafter
    from localspec.replay.log import AnswerLog
    from localspec.replay.replay import replay as run

    names = [name.strip() for name in drafters.split(",") if name.strip()]
    nodes = _sizes(sizes)
    for name in names:
        make_drafter(name)
    answers = AnswerLog.read(log)
    if not answers.answers:
        raise UsageError(f"the log {log} holds no answers yet", "localspec record goes on with it")
    corpus = _corpus(answers.header, model)
    totals = {}
    for name in names:
        make = partial(make_drafter, name, pool=new_pool(corpus=corpus) if warm else None, corpus=corpus)
        totals[name] = run(answers.answers, make, nodes, warm=warm)
    if as_json:
        sys.stdout.write(json.dumps(to_dict(answers.header, nodes, totals), indent=2) + "\n")
    else:
        _print(answers.header, nodes, totals)


def _corpus(header: dict[str, Any], name: str | None) -> Corpus | None:
    """The corpus in the tokens of the log's model; None, with a note, when that is not here.

    Raises `UsageError` when `name` is another model.
    """
    from localspec.cli.console import note
    from localspec.engine.model import Model
    from localspec.hub import find_model
    from localspec.methods.ptd.corpus import corpus_text
    from localspec.methods.ptd.native import new_corpus

    try:
        path = find_model(name or str(header["model"]))
    except ModelNotFoundError:
        if name is not None:
            raise
        note("without the corpus: -m tells where the model is")
        return None
    with Model.load(path) as model:
        if model.fingerprint == header.get("fingerprint"):
            return new_corpus(model.tokenize(corpus_text()))
    if name is not None:
        raise UsageError(f"the log was recorded with another model: {header['model']}, not {path.name}")
    note(f"without the corpus: {path.name} is not the model of the log; -m tells where that is")
    return None


def _sizes(text: str) -> list[int]:
    """Numbers of nodes. Raises `UsageError`."""
    from localspec.tree import MAX_NODES

    try:
        sizes = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"--sizes {text} are not numbers with commas between", f"such as {DEFAULT_SIZES}") from None
    if not sizes or not all(1 <= size <= MAX_NODES for size in sizes):
        raise UsageError(f"--sizes takes numbers of nodes from 1 to {MAX_NODES}, not {text!r}")
    return sizes


def to_dict(header: dict[str, Any], sizes: list[int], totals: dict[str, dict[str, list[Count]]]) -> dict[str, Any]:
    """The figures as JSON data."""
    rows = [
        {
            "drafter": name,
            "task": task,
            "nodes": size,
            "tokens_per_step": count.tokens_per_step,
            "expected_tokens_per_step": count.expected / count.steps,
            "nodes_per_step": count.nodes / count.steps,
            "steps": count.steps,
        }
        for name, by_task in totals.items()
        for task, counts in by_task.items()
        for size, count in zip(sizes, counts, strict=True)
    ]
    return {"format": "localspec-replay", "version": 1, "log": header, "rows": rows}


def _print(header: dict[str, Any], sizes: list[int], totals: dict[str, dict[str, list[Count]]]) -> None:
    from rich.table import Table

    from localspec.cli.console import console

    out = console(stderr=False)
    out.print(f"{header['model']}, tokens per step by nodes of a tree (the last token included)", style="dim")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("Task", no_wrap=True)
    table.add_column("Drafts of", no_wrap=True)
    for size in sizes:
        table.add_column(str(size), justify="right", no_wrap=True)
    tasks = list(dict.fromkeys(task for by_task in totals.values() for task in by_task))
    for task in tasks:
        for name, by_task in totals.items():
            table.add_row(task, name, *[f"{count.tokens_per_step:.2f}" for count in by_task[task]])
        table.add_section()
    out.print(table)
