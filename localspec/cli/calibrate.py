"""`localspec calibrate`: the cost of a step on this machine, and with --task a bank of trees for draft heads."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli.options import EngineOptions, LogOptions, with_options
from localspec.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from localspec.calibrate.curve import CostCurve

EPILOG = """Examples:

localspec calibrate

localspec calibrate smollm2-135m-instruct --task code --plot bank.svg

localspec calibrate mine.gguf --task mail --heads heads.gguf --prompts mail.jsonl

A calibration that was stopped goes on when it is called again with the same options.
"""
BANK = "Bank of trees (with --task)"
ANSWER_TOKENS = 160


def register(app: typer.Typer) -> None:
    app.command("calibrate", epilog=EPILOG)(calibrate)


@with_options
def calibrate(
    engine: EngineOptions,
    logs: LogOptions,
    name: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="The model; the same as --model.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Measure again what is stored.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            help="Make the bank of trees for chat, code, math or auto (all of them), or for a task of --prompts.",
            rich_help_panel=BANK,
        ),
    ] = None,
    prompts_file: Annotated[
        Path | None,
        typer.Option(
            "--prompts", metavar="FILE", help="JSON lines of prompts, instead of the own ones.", rich_help_panel=BANK
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="At most so many prompts a task.", rich_help_panel=BANK)
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens", "-n", min=8, help=f"Tokens of an answer; by default {ANSWER_TOKENS}.", rich_help_panel=BANK
        ),
    ] = None,
    plot_file: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the bank to FILE.png, .svg or .pdf.", rich_help_panel=BANK),
    ] = None,
) -> None:
    """Measure what a step costs on this machine, for trees of 1 to 64 nodes (at most 10 s).

    With --task: make the bank of trees that EntMTP chooses from with the model's draft heads, for one kind of text
    (minutes).
    """
    logs.set_up()
    engine.refuse_draft()
    if name is not None:
        if engine.model is not None:
            raise UsageError("the model is named twice", "give it as an argument or with --model")
        engine.model = name
    if task is None:
        of_bank = {"--prompts": prompts_file, "--limit": limit, "--max-tokens": max_tokens, "--plot": plot_file}
        for option, value in of_bank.items():
            if value is not None:
                raise UsageError(f"{option} goes with --task", "for example --task code")
        _curve(engine, force, as_json)
        return
    from localspec.cli.calibrate_bank import calibrate_bank

    calibrate_bank(engine, task, prompts_file, limit, max_tokens or ANSWER_TOKENS, force, as_json, plot_file)


def _curve(engine: EngineOptions, force: bool, as_json: bool) -> None:
    from localspec.calibrate.store import curve_path
    from localspec.cli.answer import open_session
    from localspec.cli.console import console, note, progress_bar

    with open_session(engine, "plain") as session, progress_bar() as progress:
        session.on_progress(progress)
        outcome = session.calibrate(force)
        curve = outcome.curve
        if as_json:
            about = {
                "model": session.name,
                "gguf_name": session.model.gguf_name,
                "file": str(curve_path(session.curve_key)),
                "status": outcome.status,
                "detail": outcome.detail,
                "curve": None if curve is None else curve.to_dict(),
            }
            sys.stdout.write(json.dumps(about) + "\n")
            return
        if curve is not None:
            console(stderr=False).print(curve_table(curve))
        note(outcome.detail)


def curve_table(curve: CostCurve) -> Table:
    """A cost curve for people."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Nodes", "Step", "Plain steps", "Per node"):
        table.add_column(column, justify="right")
    for n in curve.n:
        table.add_row(
            str(n), f"{curve.cost(n) * 1e3:.2f} ms", f"{curve.ratio(n):.2f}", f"{curve.cost(n) / n * 1e3:.2f} ms"
        )
    return table
