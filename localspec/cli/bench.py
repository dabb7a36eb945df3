"""`localspec bench`: how fast the methods are on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from localspec.cli.options import EngineOptions, LogOptions, PromptOptions, with_options
from localspec.errors import UsageError

EPILOG = """Examples:

localspec bench --task edit --limit 4

localspec bench -m qwen2.5-coder-1.5b-instruct --methods lookup,auto --json bench.json --plot bench.svg

localspec bench --prompts mine.jsonl --repeats 3
"""


def register(app: typer.Typer) -> None:
    app.command("bench", epilog=EPILOG)(bench)


@with_options
def bench(
    engine: EngineOptions,
    which: PromptOptions,
    logs: LogOptions,
    methods: Annotated[str, typer.Option("--methods", help="Methods to compare with plain, with commas.")] = "auto",
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", min=1, help="Tokens of an answer.")] = 128,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Runs of each prompt and method.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Seed for --temp above 0.")] = 1,
    temp: Annotated[float, typer.Option("--temp", help="Temperature.")] = 0.0,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write all figures to FILE; - for stdout.")
    ] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw them to FILE.png, .svg or .pdf.")
    ] = None,
) -> None:
    """Measure the methods against plain decoding, prompt by prompt in one run."""
    logs.set_up()
    prompts = which.prompts()
    if plot_file is not None:
        from localspec.bench.plot import check_plot

        check_plot(plot_file)
    if json_file is not None and json_file != "-" and not Path(json_file).absolute().parent.is_dir():
        raise UsageError(f"the folder of {json_file} does not exist")

    from localspec.bench import report
    from localspec.bench import run as runner
    from localspec.cli.answer import open_session
    from localspec.cli.console import console, progress_bar
    from localspec.engine.params import SamplingParams

    names = runner.check_methods([name.strip() for name in methods.split(",") if name.strip()])
    sampling = SamplingParams(temperature=temp, seed=seed)
    sampling.validate()
    speculating = next((name for name in names if name != runner.PLAIN), runner.PLAIN)
    with open_session(engine, speculating) as session, progress_bar() as bar:
        result = runner.bench(
            session,
            prompts,
            names,
            sampling=sampling,
            max_tokens=max_tokens,
            repeats=repeats,
            progress=lambda done, total: bar("measuring", done / total),
        )
    if json_file is not None:
        _write_json(json_file, json.dumps(report.to_dict(result), indent=2, ensure_ascii=False) + "\n")
    if json_file != "-":
        report.print_report(console(stderr=False), result)
    if plot_file is not None:
        from localspec.bench.plot import plot

        plot(result, plot_file)


def _write_json(file: str, text: str) -> None:
    from localspec.paths import atomic_write_text

    if file == "-":
        sys.stdout.write(text)
        return
    try:
        atomic_write_text(Path(file), text)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from error
