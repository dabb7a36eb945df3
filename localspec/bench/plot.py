"""The picture of a bench: speed against plain per task, and tokens per step. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.bench.report import ALL, Row, header_lines, summarise
from localspec.bench.run import PLAIN, BenchResult
from localspec.errors import UsageError
from localspec.paths import atomic_writer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
# Okabe and Ito's colours: they stay apart for colour-blind readers and in grey
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
INK, FAINT = "#222222", "#6b6b6b"


def check_plot(path: Path) -> None:
    """Raise `UsageError` before a long run when the picture could not be made after it."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"a plot is written as {', '.join(SUFFIXES)}, not as {path.name}", "for example bench.svg")
    if not path.parent.is_dir():
        raise UsageError(f"the folder of the plot, {path.parent}, does not exist")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError("--plot needs matplotlib", "pip install matplotlib") from error


def plot(result: BenchResult, path: Path) -> None:
    """Write the picture of a bench to `path`. Raises `UsageError` (see `check_plot`)."""
    check_plot(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [row for row in summarise(result.runs) if row.method != PLAIN]
    tasks = list(dict.fromkeys(row.task for row in rows))
    methods = list(dict.fromkeys(row.method for row in rows))
    labels = {row.method: row.label for row in rows}
    width = max(7.5, 1.2 + 0.95 * len(tasks) * max(1.0, 0.6 * len(methods)))
    # a figure of its own, not pyplot: no global state and no window system
    figure = Figure(figsize=(width, 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    ratio, steps = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for number, method in enumerate(methods):
        by_task = {row.task: row for row in rows if row.method == method}
        offset, bar = _place(number, len(methods))
        xs = [tasks.index(task) + offset for task in by_task]
        _ratio_bars(ratio, xs, list(by_task.values()), bar, COLOURS[number % len(COLOURS)], labels[method])
        _step_bars(steps, xs, list(by_task.values()), bar, COLOURS[number % len(COLOURS)])
    dress(ratio, "Speed, plain = 1", baseline=1.0)
    dress(steps, "Tokens per step", baseline=1.0)
    steps.set_xticks(range(len(tasks)), ["all tasks" if task == ALL else task for task in tasks])
    if len(methods) > 1:
        ratio.set_ylim(0, ratio.get_ylim()[1] * 1.08)
        ratio.legend(frameon=False, ncols=len(methods), loc="upper left", fontsize=9)
    header = result.header
    title = labels[methods[0]] if len(methods) == 1 else "Speculation"
    figure.suptitle(
        f"{title} against plain decoding: {header['file'].removesuffix('.gguf')}",
        x=0.01,
        ha="left",
        fontsize=13,
        color=INK,
    )
    figure.supxlabel("\n".join(header_lines(header)), x=0.01, ha="left", fontsize=7, color=FAINT)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write the picture. Raises `UsageError` when that fails."""
    try:
        with atomic_writer(path) as file:
            figure.savefig(file, dpi=160, format=path.suffix[1:].lower())
    except OSError as error:
        raise UsageError(f"the plot {path} cannot be written: {error.strerror}") from error


def _place(number: int, count: int) -> tuple[float, float]:
    """Offset of a method's bars from the middle of a task, and their width."""
    bar = min(0.5, 0.78 / count)
    return (number - (count - 1) / 2) * bar, bar * 0.92


def _ratio_bars(axes: Axes, xs: list[float], rows: list[Row], width: float, colour: str, label: str) -> None:
    values = [row.ratio for row in rows]
    axes.bar(xs, values, width, color=colour, label=label, zorder=2)
    several = [(x, row) for x, row in zip(xs, rows, strict=True) if row.n_prompts > 1]
    if several:
        places, spreads = zip(*several, strict=True)
        middle = [row.ratio for row in spreads]
        error: Any = [[row.ratio - row.ratio_q1 for row in spreads], [row.ratio_q3 - row.ratio for row in spreads]]
        axes.errorbar(places, middle, yerr=error, fmt="none", ecolor=INK, elinewidth=1, capsize=3, zorder=3)
    for x, row in zip(xs, rows, strict=True):
        _label(axes, f"{row.ratio:.2f}×", x, row.ratio_q3)


def _step_bars(axes: Axes, xs: list[float], rows: list[Row], width: float, colour: str) -> None:
    axes.bar(xs, [row.tokens_per_step for row in rows], width, color=colour, alpha=0.75, zorder=2)
    for x, row in zip(xs, rows, strict=True):
        _label(axes, f"{row.tokens_per_step:.2f}", x, row.tokens_per_step)


def _label(axes: Axes, text: str, x: float, y: float) -> None:
    # on a white patch, so that the line of plain does not strike through the number
    patch = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    place: Any = {"xy": (x, y), "xytext": (0, 4), "textcoords": "offset points", "ha": "center", "bbox": patch}
    axes.annotate(text, fontsize=9, color=INK, zorder=5, **place)


def dress(axes: Axes, label: str, baseline: float) -> None:
    """The common look: a label, the line of what is compared with, few lines else."""
    axes.set_ylabel(label, color=INK)
    axes.axhline(baseline, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=4)
    axes.set_ylim(0, max(axes.get_ylim()[1] * 1.12, 1.3))
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0, colors=INK)
