"""The picture of a calibrated bank: acceptance and speed by size of tree. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from localspec.bench.plot import COLOURS, FAINT, INK, check_plot, dress, save
from localspec.entmtp.bank_file import StoredBank
from localspec.entmtp.report import header_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_bank(stored: StoredBank, path: Path) -> None:
    """Write the front and the bank to `path`. Raises `UsageError` (see `check_plot`)."""
    check_plot(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(10.5, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    acceptance, speed = figure.subplots(1, 2)
    _draw_acceptance(acceptance, stored)
    _draw_speed(speed, stored)
    for axes in (acceptance, speed):
        axes.set_xlabel("Nodes of the tree, the last token included", color=INK)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False, loc="lower right", fontsize=9)
    title = f"Bank of trees: {stored.names.model}, {stored.key.task}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, color=INK)
    figure.supxlabel("\n".join(header_lines(stored)), x=0.01, ha="left", fontsize=7, color=FAINT)
    save(figure, path)


def _draw_acceptance(axes: Axes, stored: StoredBank) -> None:
    front = stored.report.get("front", [])
    axes.step(
        [nodes for nodes, _ in front],
        [1 + accepted for _, accepted in front],
        where="post",
        color=FAINT,
        linewidth=1,
        label="Pareto front, by replay",
    )
    nodes = [tree.tree.n_nodes for tree in stored.measured]
    expected = [1 + tree.expected for tree in stored.measured]
    measured = [1 + tree.measured for tree in stored.measured]
    axes.scatter(nodes, expected, s=60, facecolors="none", edgecolors=COLOURS[0], label="expected on the answers run")
    axes.scatter(nodes, measured, s=14, color=COLOURS[1], zorder=4, label="measured on them")
    dress(axes, "Tokens per step", baseline=1.0)


def _draw_speed(axes: Axes, stored: StoredBank) -> None:
    kept = set(stored.bank.trees)
    nodes = [tree.tree.n_nodes for tree in stored.measured]
    planned = [(1 + tree.mean_accepted) / tree.planned_seconds for tree in stored.measured]
    measured = [(1 + tree.mean_accepted) / tree.seconds for tree in stored.measured]
    colours = [COLOURS[0] if tree.tree in kept else "white" for tree in stored.measured]
    axes.plot(nodes, planned, color=FAINT, linestyle=":", label="by the cost curve")
    axes.plot(
        [entry.tree.n_nodes for entry in stored.bank.entries],
        [entry.tokens_per_second for entry in stored.bank.entries],
        color=COLOURS[0],
        label="the bank, as measured",
    )
    axes.scatter(nodes, measured, s=36, c=colours, edgecolors=COLOURS[0], zorder=4)
    best = stored.policies[stored.best]
    label = f"policy {stored.best}, by replay"
    axes.axhline(best.tokens_per_second, color=COLOURS[2], linewidth=1, label=label)
    dress(axes, "Tokens per second", baseline=stored.bank.entries[0].tokens_per_second)
