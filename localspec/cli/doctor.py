"""`localspec doctor`: what this machine has and how fast it is."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec import __version__
from localspec.cli.options import LogOptions, with_options

if TYPE_CHECKING:
    from localspec.hub import LocalModel


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


@with_options
def doctor(
    logs: LogOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what localspec found: CPU, native library, devices, models and measured cost curves."""
    logs.set_up()
    report = examine()
    if as_json:
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        _show(report)
    if report["problems"]:
        raise typer.Exit(1)


def examine() -> dict[str, Any]:
    """All findings as JSON data; `problems` are sentences for people."""
    from localspec import hub, machine
    from localspec.calibrate.store import stored_curves
    from localspec.errors import LocalspecError
    from localspec.paths import data_dir
    from localspec.tui.config import Config, config_path

    problems: list[str] = []
    report: dict[str, Any] = {
        "localspec": __version__,
        "python": platform.python_version(),
        "machine": machine.machine(),
        "folders": {"data": str(data_dir()), "settings": str(config_path())},
        "cpu_features": None,
        "library": None,
        "devices": [],
        "models": [],
        "curves": [],
        "banks": [],
        "problems": problems,
    }
    features = machine.cpu_features()
    problems += Config.read(config_path())[1]
    report["cpu_features"] = None if features is None else sorted(features)
    try:
        report["library"] = _library(problems, features)
        report["devices"] = [
            {"name": d.name, "description": d.description, "memory_free": d.memory_free, "memory_total": d.memory_total}
            for d in machine.devices()
        ]
        report["curves"] = [
            {
                "model": stored.model_name,
                "created": stored.created,
                "device": stored.key.device,
                "threads": stored.key.n_threads,
                "mode": stored.key.mode,
                "setup": stored.key.setup,
                "reliable": stored.reliable,
                "curve": stored.curve.to_dict(),
            }
            for stored in stored_curves()
            if stored.key.library == machine.library_id()
        ]
        report["banks"] = _banks()
    except LocalspecError as error:
        problems.append(str(error))
    try:
        report["models"] = [_model(model) for model in hub.local_models()]
    except LocalspecError as error:
        problems.append(str(error))
    return report


def _model(model: LocalModel) -> dict[str, Any]:
    """A model, the part of its matrices that has no row kernels here, and draft heads that come with localspec for it;
    None where that cannot be told."""
    from localspec import machine
    from localspec.errors import LocalspecError
    from localspec.gguf_check import check_gguf

    uncovered, heads = None, None
    with contextlib.suppress(LocalspecError):
        machine.load_native()
        from localspec.engine import kernels
        from localspec.heads.choose import shipped_for

        info = check_gguf(model.path)
        uncovered = kernels.uncovered(info.matrices)
        heads = sorted(shipped_for(model.path, info.n_embd or 0, info.n_vocab or 0))
    return {
        "name": model.name,
        "path": str(model.path),
        "size": model.size,
        "without_row_kernels": uncovered,
        "heads": heads,
    }


def _banks() -> list[dict[str, Any]]:
    """The calibrated banks of trees for this library."""
    from localspec import machine
    from localspec.entmtp.bank_file import stored_banks

    return [
        {
            "model": stored.names.model,
            "heads": stored.names.heads,
            "task": stored.key.task,
            "created": stored.created,
            "device": stored.key.setup.device,
            "threads": stored.key.setup.n_threads,
            "trees": [tree.n_nodes for tree in stored.bank.trees],
            "best": stored.best,
        }
        for stored in stored_banks()
        if stored.key.setup.library == machine.library_id()
    ]


def _library(problems: list[str], features: frozenset[str] | None) -> dict[str, Any]:
    from localspec import machine
    from localspec.errors import LocalspecError

    library = machine.library()
    from localspec.engine import kernels  # imports the library, so it comes after

    try:
        machine.refuse_unfit_library()
    except LocalspecError as error:
        problems.append(str(error))
    return {
        "build": library.build,
        "version": library.version,
        "patched": library.abi is not None,
        "abi": library.abi,
        "path": str(library.path),
        "features": list(library.features),
        "cpu_features_unused": sorted(features - set(library.features)) if features is not None else None,
        "gpu_offload": library.gpu_offload,
        "row_kernels": {"in_use": kernels.enabled(), "types": sorted(kernels.covered_types())},
        "system_info": library.system_info,
    }


def _show(report: dict[str, Any]) -> None:
    from rich.table import Table

    from localspec.calibrate.curve import CostCurve
    from localspec.cli.calibrate import curve_table
    from localspec.cli.console import console
    from localspec.cli.models import size_text

    out = console(stderr=False)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    machine, library = report["machine"], report["library"]
    table.add_row("localspec", f"{report['localspec']}, Python {report['python']}")
    table.add_row("Machine", f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['system']} {machine['architecture']}")
    if library:
        table.add_row("Library", library["build"])
        if not library["patched"]:
            table.add_row("", "stock mode: trees work, but slower than with `pip install ./ggml_patches`")
        table.add_row("Uses", ", ".join(library["features"]) or "nothing special")
        row_kernels = library["row_kernels"]
        table.add_row("Row kernels", ", ".join(row_kernels["types"]) if row_kernels["in_use"] else "not in use")
        unused = library["cpu_features_unused"]
        if unused:
            table.add_row("Unused", f"{', '.join(unused)} (this CPU has them, the library was built without)")
    for device in report["devices"]:
        memory = f", {size_text(device['memory_total'])}" if device["memory_total"] else ""
        table.add_row("Device", f"{device['name']}: {device['description']}{memory}")
    for model in report["models"]:
        table.add_row("Model", f"{model['name']} ({size_text(model['size'])})")
        if model["without_row_kernels"]:
            missing = ", ".join(model["without_row_kernels"])
            table.add_row("", f"not accelerated and not exact here: {missing} of its matrices")
        if model["heads"]:
            table.add_row("", f"{' and '.join(model['heads'])} heads come with localspec")
    if not report["models"]:
        table.add_row("Model", "none; `localspec models` lists the known ones")
    table.add_row("Data", report["folders"]["data"])
    table.add_row("Settings", report["folders"]["settings"])
    for bank in report["banks"]:
        sizes = ", ".join(map(str, bank["trees"]))
        table.add_row(
            "Bank",
            f"{bank['task']} for {bank['model']} with {bank['heads']}: trees of {sizes} nodes, {bank['threads']}"
            f" threads, {bank['created'][:10]}; best: entmtp-{bank['best']}",
        )
    out.print(table)
    for stored in report["curves"]:
        out.print(
            f"\nCost curve of {stored['model']} ({stored['device']}, {stored['threads']} threads, {stored['mode']}; "
            f"{stored['created'][:10]}{'' if stored['reliable'] else ', while the machine was busy'})",
            markup=False,
            soft_wrap=not out.is_terminal,
        )
        out.print(curve_table(CostCurve.from_dict(stored["curve"])))
    if not report["curves"]:
        out.print("\nNo cost curve for this library yet; `localspec calibrate` measures one.", markup=False)
    for problem in report["problems"]:
        out.print(f"\nProblem: {problem}", style="bold red", markup=False, soft_wrap=not out.is_terminal)
