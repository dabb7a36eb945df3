"""`localspec bench --curve`: what a step costs, against llama.cpp's own kernels and the roofline."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from localspec.cli.options import EngineOptions, LogOptions
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.bench.curve import CurveResult

#: parameters of `bench` that go with --curve
_USED = {"curve", "as_json", "output", "plot_file"} | {
    field.name for group in (EngineOptions, LogOptions) for field in dataclasses.fields(group)
}


def refuse_others(context: typer.Context) -> None:
    """Raise `UsageError` for options of `bench` on the command line that --curve would not look at."""
    others = [
        param.opts[0]
        for param in context.command.params
        if param.name not in _USED and _is_given(context, str(param.name))
    ]
    if others:
        raise UsageError(
            f"--curve measures single steps and writes no text: {', '.join(others)} would do nothing",
            f"leave out {', '.join(others)}, or --curve",
        )


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def bench_curve(engine: EngineOptions, as_json: bool, output: Path | None, plot_file: Path | None) -> None:
    """Measure, print, and write the files that are asked for."""
    from localspec.machine import load_native

    engine.refuse_draft()
    params = engine.context()
    load_native()
    from localspec import hub, machine
    from localspec.bench.curve import measure_curves
    from localspec.cli.bench import check_files, write_json
    from localspec.cli.console import progress_bar

    check_files(output, plot_file)
    machine.refuse_unfit_library()
    path = hub.find_model(engine.model)
    header = {
        "model": hub.name_of(path),
        "file": path.name,
        "build": machine.library().build,
        "features": list(machine.library().features),
        "machine": machine.machine(),
    }
    with progress_bar() as bar:
        result = measure_curves(path, params, header=header, progress=lambda share: bar("measuring", share))
    if not write_json(result.to_dict(), as_json, output):
        _show(result)
    if plot_file is not None:
        from localspec.bench.curve_plot import plot_curves

        plot_curves(result, plot_file)


def _show(result: CurveResult) -> None:
    from localspec.bench.curve import curve_table, header_lines
    from localspec.cli.console import console

    out = console(stderr=False)

    def say(text: str, **style: Any) -> None:
        out.print(text, markup=False, soft_wrap=not out.is_terminal, **style)

    for line in header_lines(result.header):
        say(line, style="dim")
    for costs in result.costs:
        say(f"\n{costs.context} tokens in the cache")
        out.print(curve_table(costs))
    say(
        "\nAll x are in single steps of llama.cpp's own kernels; roofline: what the weights need at best, without "
        "attention.",
        style="dim",
    )
