"""`localspec drafts`: which models can draft for a model."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli.options import LogOptions, with_options

if TYPE_CHECKING:
    from pathlib import Path

    from localspec.pairs.candidates import Candidate

EPILOG = """Examples:

localspec drafts qwen2.5-coder-1.5b-instruct

localspec drafts mine.gguf --json
"""


def register(app: typer.Typer) -> None:
    app.command("drafts", epilog=EPILOG)(drafts)


@with_options
def drafts(
    logs: LogOptions,
    name: Annotated[str, typer.Argument(metavar="MODEL", help="Name or path of the model to draft for.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the models that can draft for MODEL, and why others cannot. Loads no weights."""
    logs.set_up()
    from localspec import hub
    from localspec.cli.console import progress_bar
    from localspec.machine import load_native

    target = hub.find_model(name)
    load_native()
    from localspec.pairs.candidates import candidates

    with progress_bar() as progress:
        found = candidates(target, lambda share: progress("comparing vocabularies", share))
    if as_json:
        report = {"name": hub.name_of(target), "path": str(target), "size": target.stat().st_size}
        sys.stdout.write(json.dumps({"target": report, "drafts": list(map(_row, found))}, indent=2) + "\n")
    else:
        _show(hub.name_of(target), target, found)


def _row(candidate: Candidate) -> dict[str, Any]:
    return {
        "name": candidate.name,
        "path": None if candidate.path is None else str(candidate.path),
        "size": candidate.size,
        "share_of_step": None if candidate.share is None else round(candidate.share, 4),
        "verdict": candidate.verdict,
        "works": candidate.works,
        "reason": candidate.reason or None,
    }


def _show(name: str, target: Path, found: list[Candidate]) -> None:
    from rich.table import Table
    from rich.text import Text

    from localspec.cli.console import console
    from localspec.cli.models import size_text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Draft model", overflow="fold")
    for column in ("Size", "Step"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("Verdict")
    for candidate in found:
        size = "-" if candidate.size is None else size_text(candidate.size)
        share = "-" if candidate.share is None else f"{candidate.share:.0%}"
        table.add_row(Text(candidate.name), size, share, Text(_verdict(candidate)))
    out = console(stderr=False)
    out.print(table)
    lines = [f"\nTarget: {name}, {size_text(target.stat().st_size)}."]
    if any(candidate.works for candidate in found):
        lines.append("Step: what a step of the draft model reads of weights, against a step of the target.")
    else:
        lines.append("None of the models on this machine can draft for it.")
    for line in lines:
        out.print(line, markup=False, soft_wrap=not out.is_terminal)


def _verdict(candidate: Candidate) -> str:
    if candidate.verdict == "works, but":
        return f"works, but {candidate.reason}"
    separator = ": " if candidate.reason else ""
    what = "not on this machine" if candidate.verdict == "not here" else candidate.verdict
    return f"{what}{separator}{candidate.reason}"
