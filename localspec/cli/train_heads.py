"""`localspec train-heads`: Hydra heads for a model, trained on text that the model writes itself."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli.options import LogOptions, with_options
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.engine.model import Model
    from localspec.train.accuracy import Accuracy
    from localspec.train.run import Data, Trained, Training
    from localspec.train.trainer import Report

EPILOG = """Examples:

localspec train-heads smollm2-135m-instruct -o heads.gguf

localspec train-heads mine.gguf -o heads.gguf --tokens 300000 --epochs 6 --work training/

localspec train-heads mine.gguf -o better.gguf --init heads.gguf --seed 2 --rounded --type q4_0 --lr 7e-4

A training that was stopped, by ctrl-c or by a crash, goes on when it is called again with the same options.
"""
#: seconds between lines about progress where no bar can be shown
LINE_SECONDS = 60.0
DATA, HEADS = "Training data", "Heads"
STOPPED = 130


def register(app: typer.Typer) -> None:
    app.command("train-heads", epilog=EPILOG)(train_heads)


@with_options
def train_heads(
    logs: LogOptions,
    model: Annotated[str, typer.Argument(help="Name or path of the model to train heads for.", metavar="MODEL")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The GGUF to write.")],
    work: Annotated[
        Path | None,
        typer.Option("--work", metavar="DIR", help="Where data and checkpoints go; by default beside FILE."),
    ] = None,
    tokens: Annotated[
        int, typer.Option("--tokens", min=1, help="Tokens that the model writes.", rich_help_panel=DATA)
    ] = 1_000_000,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", min=8, help="Most tokens of an answer.", rich_help_panel=DATA)
    ] = 256,
    temp: Annotated[float, typer.Option("--temp", min=0, help="Temperature.", rich_help_panel=DATA)] = 0.8,
    prompts: Annotated[
        list[Path] | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            help='JSON lines with {"prompt": ...}, beside the own prompts; can be repeated.',
            rich_help_panel=DATA,
        ),
    ] = None,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, max=256, help="Answers made at a time.", rich_help_panel=DATA)
    ] = 32,
    arch: Annotated[
        str, typer.Option("--arch", help="hydra, or medusa: heads that do not see each other.", rich_help_panel=HEADS)
    ] = "hydra",
    heads: Annotated[int, typer.Option("--heads", min=1, max=16, help="Heads.", rich_help_panel=HEADS)] = 4,
    blocks: Annotated[int, typer.Option("--blocks", min=1, max=8, help="Blocks a head.", rich_help_panel=HEADS)] = 2,
    vocab: Annotated[
        int, typer.Option("--vocab", min=1, help="Tokens that can be drafted.", rich_help_panel=HEADS)
    ] = 8192,
    later_vocab: Annotated[
        int,
        typer.Option(
            "--later-vocab",
            min=0,
            help="How many of these, the most frequent, heads after the first can draft, which saves time; 0 for all.",
            rich_help_panel=HEADS,
        ),
    ] = 4096,
    epochs: Annotated[int, typer.Option("--epochs", min=0, help="Passes over the data.", rich_help_panel=HEADS)] = 3,
    batch: Annotated[int, typer.Option("--batch", min=32, help="Positions a step.", rich_help_panel=HEADS)] = 1024,
    lr: Annotated[float, typer.Option("--lr", min=0, help="Highest learning rate.", rich_help_panel=HEADS)] = 2e-3,
    init: Annotated[
        Path | None,
        typer.Option("--init", metavar="FILE", help="Heads to train further, on new data.", rich_help_panel=HEADS),
    ] = None,
    weight_type: Annotated[
        str,
        typer.Option(
            "--type",
            help="Type of matrices: f32, f16, q8_0, q4_0, or q4_q8 (q4_0 in first blocks).",
            rich_help_panel=HEADS,
        ),
    ] = "q8_0",
    rounded: Annotated[
        bool,
        typer.Option(
            "--rounded",
            help="Train the weights as --type will round them; after a training without.",
            rich_help_panel=HEADS,
        ),
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Same seed, same data and heads.")] = 1,
    device: Annotated[str, typer.Option("--device", help="Where to train: auto, cpu or cuda.")] = "auto",
    threads: Annotated[int | None, typer.Option("--threads", "-t", min=1, help="CPU threads.")] = None,
    gpu_layers: Annotated[int, typer.Option("--gpu-layers", help="Layers of the model on the GPU; -1 for all.")] = -1,
) -> None:
    """Train draft heads for a model, on text that it writes itself."""
    logs.set_up()
    if importlib.util.find_spec("torch") is None:
        raise UsageError("training needs torch, which is not installed", "pip install 'localspec[train]'")
    from localspec.cli.console import interrupt_flag
    from localspec.engine.model import Model as Loaded
    from localspec.heads.file import check_weight_type
    from localspec.hub import find_model
    from localspec.machine import load_native
    from localspec.train.prompts import training_prompts
    from localspec.train.run import Training
    from localspec.train.start import Start
    from localspec.train.work import DataOptions, HeadOptions

    check_weight_type(weight_type)
    _check_output(output)
    texts = training_prompts(prompts or ())
    start = Start(init) if init else None
    load_native()
    data_options = DataOptions("", "", tokens, max_tokens, temp, seed, parallel)
    rounding = weight_type if rounded else ""
    head_options = HeadOptions(
        heads, blocks, vocab, later_vocab, epochs, batch, lr, seed=seed, arch=arch, rounding=rounding
    )
    folder = work or output.with_name(f"{output.stem}-training")
    with Loaded.load(find_model(model), n_gpu_layers=gpu_layers) as loaded, interrupt_flag() as interrupted:
        training = Training(
            loaded, texts, folder, data_options, head_options, device=device, n_threads=threads, start=start
        )
        data = _make_data(training, loaded, tokens, interrupted)
        trained = _train(training, data, interrupted)
    if not trained.done:
        raise _stopped(f"after step {trained.trainer.step} of {trained.trainer.n_steps}")
    accuracy = trained.accuracy()
    training.export(trained, accuracy, data, output, weight_type)
    _print(accuracy)
    sys.stdout.write(f"{output}\n")


def _check_output(output: Path) -> None:
    """Refuse at once what could not be written hours later. Raises `UsageError`."""
    if output.is_dir():
        raise UsageError(f"{output} is a directory", "name the file to write in it")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}", "choose another place") from error


def _make_data(training: Training, model: Model, tokens: int, interrupted: Callable[[], bool]) -> Data:
    from localspec.cli.console import note
    from localspec.cli.models import size_text
    from localspec.train.answers import Stopped

    plan = training.plan()
    note(
        f"{training.facts.name}: {tokens:,} tokens as answers to {plan.n_prompts} prompts, in {training.folder.path};"
        f" they take up to {size_text(plan.disk_bytes)} of disk, {size_text(plan.disk_used)} are there"
    )
    began, first = monotonic(), -1
    with _progress() as report:

        def progress(done: int, total: int) -> bool:
            nonlocal began, first
            if first < 0:
                began, first = monotonic(), done
            done = min(done, total)  # the last shard is written to its end
            rate = (done - first) / max(monotonic() - began, 1e-9)
            left = f", {_time((total - done) / rate)} left" if rate else ""
            report(f"writing text, {done:,} of {total:,} tokens, {rate:.0f} tok/s{left}", done / total)
            return not interrupted()

        try:
            return training.make_data(model, progress)
        except Stopped:
            raise _stopped("while it made data") from None


def _train(training: Training, data: Data, interrupted: Callable[[], bool]) -> Trained:
    from localspec.cli.console import note

    note(f"training on {data.n_tokens:,} tokens, on {training.device.type}")
    with _progress() as show:

        def progress(report: Report) -> bool:
            losses = " ".join(f"{loss:.3f}" for loss in report.losses)
            show(
                f"step {report.step} of {report.n_steps}, loss {losses}, {report.rate:.0f} positions/s,"
                f" {_time(report.seconds_left)} left",
                report.step / report.n_steps,
            )
            return not interrupted()

        trained = training.train(data, progress)
    note(f"trained for {_time(trained.seconds)}, {trained.n_positions:,} positions an epoch")
    return trained


def _stopped(where: str) -> typer.Exit:
    """Say how to go on; the way to end."""
    from localspec.cli.console import note

    note(f"stopped {where}; the same command goes on from there")
    return typer.Exit(STOPPED)


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """A bar whose text changes; without a terminal, a line on stderr now and then."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from localspec.cli.console import console, note

    out = console()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task("", total=1.0)
        last = -LINE_SECONDS

        def report(text: str, share: float) -> None:
            nonlocal last
            bar.update(task, description=text, completed=share)
            if not out.is_terminal and monotonic() - last >= LINE_SECONDS:
                last = monotonic()
                note(text)

        yield report


def _time(seconds: float) -> str:
    minutes = int(seconds) // 60
    return f"{minutes // 60}:{minutes % 60:02}:{int(seconds) % 60:02}"


def _print(accuracy: Accuracy) -> None:
    from rich.table import Table

    from localspec.cli.console import console

    out = console(stderr=False)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("Head", no_wrap=True)
    table.add_column("Top-1", justify="right", no_wrap=True)
    table.add_column("Top-4", justify="right", no_wrap=True)
    for head, (top1, top4) in enumerate(zip(accuracy.top1, accuracy.top4, strict=True)):
        table.add_row(str(head), f"{top1:.1%}", f"{top4:.1%}")
    out.print(table)
    out.print(f"right on {accuracy.n:,} positions of held-out prompts, given the true tokens before", style="dim")
