"""`localspec bench`: how fast the methods are on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli.accepting import AcceptOptions
from localspec.cli.options import EngineOptions, LogOptions, PromptOptions, simple_sampling, with_options
from localspec.errors import UsageError
from localspec.paths import atomic_write_text

if TYPE_CHECKING:
    from localspec.bench.run import BenchResult

EPILOG = """Examples:

localspec bench --task edit --limit 4

localspec bench -m qwen2.5-coder-1.5b-instruct --methods lookup,auto -o bench.json --plot bench.svg

localspec bench -m qwen2.5-coder-1.5b-instruct --draft qwen2.5-coder-0.5b-instruct --methods draft,ptd

localspec bench --methods entmtp,ptd+heads --bound

localspec bench --nodes 8 --methods ptd,heads,ptd+heads

localspec bench --prompts mine.jsonl --repeats 3

localspec bench --curve --plot curve.svg
"""


def register(app: typer.Typer) -> None:
    app.command("bench", epilog=EPILOG)(bench)


@with_options
def bench(
    context: typer.Context,
    engine: EngineOptions,
    which: PromptOptions,
    accepting: AcceptOptions,
    logs: LogOptions,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="Compared with plain, with commas: auto, ptd, ptd+heads, heads, draft, lookup; the rivals "
            "ptd-published, lookahead, ptd-chain, draft-chain; on draft heads medusa, hydra-static, hydra-best, "
            "entmtp-star, entmtp-ladder, entmtp-tau, entmtp-value, or entmtp for all "
            "seven. By default auto, or draft with --draft.",
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", min=1, help="Tokens of an answer.")] = 128,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Runs of each prompt and method.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Seed for --temp above 0.")] = 1,
    temp: Annotated[float, typer.Option("--temp", help="Temperature.")] = 0.0,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", min=2, max=63, help="Trees of so many nodes at every step, not what pays."),
    ] = None,
    bound: Annotated[
        bool, typer.Option("--bound", help="Also compute what fixed tree sizes would bring at best, by replay.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write all figures to FILE, as JSON.")
    ] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw them to FILE.png, .svg or .pdf.")
    ] = None,
    curve: Annotated[
        bool, typer.Option("--curve", help="Measure steps of 1 to 16 tokens instead, with and without our kernels.")
    ] = False,
) -> None:
    """Measure the methods against plain decoding, prompt by prompt in one run.

    With --curve: what a step costs with localspec's CPU kernels, with llama.cpp's own, and at best on this machine.
    """
    logs.set_up()
    if curve:
        from localspec.cli.bench_curve import bench_curve, refuse_others

        refuse_others(context)
        bench_curve(engine, as_json, output, plot_file)
        return
    prompts = which.prompts()
    sampling = simple_sampling(temp, seed)
    acceptance = accepting.acceptance(sampling)

    from localspec.cli.answer import check_draft_use, open_session
    from localspec.cli.console import progress_bar
    from localspec.machine import load_native

    load_native()
    check_files(output, plot_file)
    from localspec.bench import run as runner
    from localspec.methods.registry import default_method

    default = default_method(engine.draft is not None)
    names = runner.check_methods([name.strip() for name in (methods or default).split(",") if name.strip()])
    check_draft_use(engine, names)
    # nothing is measured until all methods are known to be possible
    with open_session(engine, runner.PLAIN, others=True) as session, progress_bar() as bar:
        session.on_progress(bar)
        result = runner.bench(
            session,
            prompts,
            names,
            sampling=sampling,
            max_tokens=max_tokens,
            repeats=repeats,
            nodes=nodes,
            with_bounds=bound,
            acceptance=acceptance,
            progress=lambda done, total: bar("measuring", done / total),
        )
    _tell(result, as_json, output, plot_file)


def check_files(output: Path | None, plot_file: Path | None) -> None:
    """Raise `UsageError` before a long run when its figures could not be written after it."""
    if plot_file is not None:
        from localspec.bench.plot import check_plot

        check_plot(plot_file)
    if output is not None and not output.absolute().parent.is_dir():
        raise UsageError(f"the folder of {output} does not exist")


def write_json(data: dict[str, Any], as_json: bool, output: Path | None) -> bool:
    """Write figures to the file and to stdout where they are wanted there; returns `as_json`."""
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    if output is not None:
        try:
            atomic_write_text(output, text)
        except OSError as error:
            raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    if as_json:
        sys.stdout.write(text)
    return as_json


def _tell(result: BenchResult, as_json: bool, output: Path | None, plot_file: Path | None) -> None:
    from localspec.bench import report
    from localspec.cli.console import console

    if not write_json(report.to_dict(result), as_json, output):
        report.print_report(console(stderr=False), result)
    if plot_file is not None:
        from localspec.bench.plot import plot

        plot(result, plot_file)
