"""The picture of `bench --curve`: cost of a step by its tokens. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from localspec.bench.curve import CurveResult, StepCosts, header_lines
from localspec.bench.plot import COLOURS, FAINT, INK, check_plot, dress, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_curves(result: CurveResult, path: Path) -> None:
    """Write one panel a context to `path`. Raises `UsageError` (see `check_plot`)."""
    check_plot(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(result.costs), 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(result.costs), squeeze=False)[0]
    for axes, costs in zip(panels, result.costs, strict=True):
        _draw(axes, costs)
    # above the panels: the lines need all their room
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="upper right", ncols=3, fontsize=9)
    name = str(result.header["file"]).removesuffix(".gguf")
    figure.suptitle(f"Cost of a step: {name}", x=0.01, ha="left", fontsize=13, color=INK)
    figure.supxlabel("\n".join(header_lines(result.header)), x=0.01, ha="left", fontsize=7, color=FAINT)
    save(figure, path)


def _draw(axes: Axes, costs: StepCosts) -> None:
    quartiles = [costs.ratios(i) for i in range(len(costs.n))]
    stock = [costs.stock_ratio(i) for i in range(len(costs.n))]
    middle = [median for _, median, _ in quartiles]
    axes.plot(costs.n, stock, color=COLOURS[1], marker="s", markersize=4, label="llama.cpp")
    axes.plot(costs.n, middle, color=COLOURS[0], marker="o", markersize=4, label="localspec")
    axes.fill_between(costs.n, [q1 for q1, *_ in quartiles], [q3 for *_, q3 in quartiles], color=COLOURS[0], alpha=0.2)
    if costs.roofline is not None:
        single = sorted(costs.stock[0])[len(costs.stock[0]) // 2]
        best = [seconds / single for seconds in costs.roofline]
        axes.plot(costs.n, best, color=FAINT, linestyle=":", label="roofline of the weights")
    dress(axes, "Single steps of llama.cpp", baseline=1.0)
    axes.set_ylim(0, max(1.3, 2.2 * max(middle)))
    axes.set_xlabel("Tokens in the step", color=INK)
    axes.set_title(f"{costs.context} tokens in the cache", fontsize=10, color=INK)
    axes.set_xticks(costs.n)
