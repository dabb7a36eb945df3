"""`localspec models` and `localspec pull`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from localspec.cli.options import LogOptions, with_options


def register(app: typer.Typer) -> None:
    app.command("models")(models)
    app.command("pull", epilog=PULL_EPILOG)(pull)


PULL_EPILOG = """Examples:

localspec pull qwen2.5-coder-1.5b-instruct

localspec pull qwen2.5-coder-1.5b-instruct --from-file ~/Downloads/model.gguf
"""


@with_options
def models(
    logs: LogOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the models that are known by name, and those on this machine."""
    from localspec import hub

    logs.set_up()
    local = {model.name: model for model in hub.local_models()}
    rows: list[dict[str, Any]] = []
    for entry in hub.registry():
        found = local.pop(entry.name, None)
        rows.append(
            {
                "name": entry.name,
                "role": entry.role,
                "quant": entry.quant,
                "licence": entry.licence,
                "source": entry.source,
                "pairs": list(entry.pairs),
                "path": None if found is None else str(found.path),
                "size": None if found is None else found.size,
            }
        )
    for name, model in local.items():
        rows.append({"name": name, "path": str(model.path), "size": model.size})
    if as_json:
        sys.stdout.write(json.dumps({"folder": str(hub.models_dir()), "models": rows}, indent=2) + "\n")
    else:
        _show(rows, hub.models_dir())


def _show(rows: list[dict[str, Any]], folder: Path) -> None:
    from rich.table import Table

    from localspec.cli.console import console

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Name", "Role", "Quant", "Licence"):
        table.add_column(column, no_wrap=column != "Licence")
    table.add_column("On this machine", justify="right", no_wrap=True)
    for row in rows:
        here = "-" if row["path"] is None else size_text(row["size"])
        table.add_row(row["name"], row.get("role", ""), row.get("quant", ""), row.get("licence", ""), here)
    out = console(stderr=False)
    out.print(table)
    out.print(
        f"\nModels folder: {folder}\nlocalspec pull NAME downloads one.", markup=False, soft_wrap=not out.is_terminal
    )


@with_options
def pull(
    logs: LogOptions,
    name: Annotated[str, typer.Argument(help="A name of `localspec models`, or OWNER/REPO/FILE.gguf.")],
    from_file: Annotated[
        Path | None, typer.Option("--from-file", metavar="FILE", help="Take this file instead of downloading.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Download again what is here already.")] = False,
) -> None:
    """Download a model, or take one from a file."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from localspec import hub
    from localspec.cli.console import console

    logs.set_up()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    out = console()
    with Progress(*columns, TimeRemainingColumn(), console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(name, total=None)

        def report(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        if from_file is None:
            path = hub.pull(name, progress=report, force=force)
        else:
            path = hub.pull_from_file(name, from_file, progress=report)
    sys.stdout.write(f"{path}\n")


def size_text(size: int) -> str:
    """A size in bytes for people."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
