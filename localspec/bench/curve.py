"""`bench --curve`: what a step costs with localspec's CPU kernels, against llama.cpp's own and against the roofline.

Both sides run the patched library in one process, interleaved size by size; the model is loaded twice, since either
side rearranges weights for its own kernels. A step is timed behind another one of the same side, as in decoding: the
caches then hold what that step left there. All times are compared with llama.cpp's single step of the same round: what
plain decoding costs without localspec.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from localspec.calibrate.measure import StepTimer
from localspec.engine import kernels
from localspec.engine.base import TreeContext
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.errors import UsageError
from localspec.gguf_check import check_gguf

if TYPE_CHECKING:
    from rich.table import Table

SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
CONTEXTS = (64, 1000)
ROUNDS = 7
Progress = Callable[[float], None]


@dataclass(frozen=True)
class StepCosts:
    """Seconds of steps over `n[i]` tokens with `context` tokens in the cache; row i of each list has one value a round.

    `roofline` is the least time that the weights allow (None when the peaks are not known), attention not counted.
    """

    context: int
    n: tuple[int, ...]
    ours: list[list[float]]
    stock: list[list[float]]
    roofline: list[float] | None

    def ratios(self, i: int) -> tuple[float, float, float]:
        """Quartiles of our step over n[i] tokens, in stock single steps of the same round: 25, 50, 75 %."""
        q1, median, q3 = np.percentile(np.array(self.ours[i]) / np.array(self.stock[0]), [25, 50, 75]).tolist()
        return q1, median, q3

    def stock_ratio(self, i: int) -> float:
        """The same for the stock step, its median."""
        return float(np.median(np.array(self.stock[i]) / np.array(self.stock[0])))


@dataclass(frozen=True)
class CurveResult:
    """All that was measured. `header` names the model, the machine and the peaks."""

    header: dict[str, Any]
    costs: list[StepCosts] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """JSON data; `ratio` has the quartiles of our step in stock single steps, by size."""
        return {
            "format": "localspec-kernel-curve",
            "version": 1,
            "header": self.header,
            "costs": [
                {**asdict(one), "ratio": {str(n): one.ratios(i) for i, n in enumerate(one.n)}} for one in self.costs
            ],
        }


def measure_curves(
    path: Path,
    params: ContextParams,
    *,
    contexts: Sequence[int] = CONTEXTS,
    sizes: Sequence[int] = SIZES,
    rounds: int = ROUNDS,
    header: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> CurveResult:
    """Measure the model at `path` on the CPU, with and without our kernels.

    Raises `UsageError` when this library has no such kernels, `EngineError` when the memory does not suffice.
    """
    if not kernels.enabled():
        raise UsageError("this library has no kernels of its own to measure", "pip install ./ggml_patches")
    n_threads, _ = params.resolve_threads()
    peaks = kernels.peaks(n_threads)
    matrices = check_gguf(path).matrices
    roofline = None
    if peaks is not None and not matrices.experts:
        roofline = [peaks.step_seconds(n, matrices.n_elements, matrices.n_bytes) for n in sizes]
    about = {
        **(header or {}),
        "threads": n_threads,
        "peaks": None if peaks is None else asdict(peaks),
        "weights": {"elements": matrices.n_elements, "bytes": matrices.n_bytes, "types": dict(matrices.types)},
        "rounds": rounds,
    }
    result = CurveResult(about)
    with ExitStack() as stack:
        ours = stack.enter_context(Model.load(path, n_gpu_layers=0))
        with kernels.disabled():
            stock = stack.enter_context(Model.load(path, n_gpu_layers=0))
        for number, context in enumerate(contexts):
            with _Pair(ours, stock, params, context, max(sizes)) as pair:
                times = pair.run(sizes, rounds, _part(progress, number, len(contexts)))
            result.costs.append(StepCosts(context, tuple(sizes), *times, roofline))
    return result


def _part(progress: Progress | None, number: int, count: int) -> Progress:
    """The progress of part `number` of `count` as progress of the whole."""

    def report(share: float) -> None:
        if progress is not None:
            progress((number + share) / count)

    return report


class _Pair:
    """The same context on both sides, filled with the same tokens."""

    def __init__(self, ours: Model, stock: Model, params: ContextParams, n_context: int, most: int) -> None:
        self._models, self._params = (ours, stock), params
        self._n_context, self._most = n_context, most
        self._contexts: list[TreeContext] = []
        self._timers: list[StepTimer] = []

    def __enter__(self) -> _Pair:
        params = ContextParams(
            n_ctx=self._n_context + self._most + 8,
            n_threads=self._params.n_threads,
            flash_attn=self._params.flash_attn,
            type_k=self._params.type_k,
            type_v=self._params.type_v,
        )
        text = np.random.default_rng(0).integers(0, self._models[0].n_vocab, self._n_context + self._most).tolist()
        try:
            self._open(self._models[0], params, text)
            with kernels.disabled():
                self._open(self._models[1], params, text)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _open(self, model: Model, params: ContextParams, text: list[int]) -> None:
        ctx = model.new_context(params)
        self._contexts.append(ctx)
        ctx.prefill(text[: self._n_context])
        self._timers.append(StepTimer(ctx, text, self._n_context))

    def __exit__(self, *_: object) -> None:
        for ctx in self._contexts:
            ctx.close()

    def run(self, sizes: Sequence[int], rounds: int, progress: Progress) -> tuple[list[list[float]], list[list[float]]]:
        """Seconds by size and round: ours, stock. The first round builds graphs and is not kept."""
        ours: list[list[float]] = [[] for _ in sizes]
        stock: list[list[float]] = [[] for _ in sizes]
        for number in range(rounds + 1):
            for i, n in enumerate(sizes):
                mine = self._second(0, n)
                with kernels.disabled():
                    theirs = self._second(1, n)
                if number:
                    ours[i].append(mine)
                    stock[i].append(theirs)
            progress((number + 1) / (rounds + 1))
        return ours, stock

    def _second(self, side: int, n: int) -> float:
        self._timers[side](n)
        return self._timers[side](n)


def curve_table(costs: StepCosts) -> Table:
    """One context's costs for people."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Tokens", "Step", "Stock", "x stock single", "quartiles", "stock x", "roofline x"):
        table.add_column(column, justify="right")
    single = statistics.median(costs.stock[0])
    for i, n in enumerate(costs.n):
        q1, median, q3 = costs.ratios(i)
        table.add_row(
            str(n),
            f"{statistics.median(costs.ours[i]) * 1e3:.2f} ms",
            f"{statistics.median(costs.stock[i]) * 1e3:.2f} ms",
            f"{median:.2f}",
            f"{q1:.2f}-{q3:.2f}",
            f"{costs.stock_ratio(i):.2f}",
            "" if costs.roofline is None else f"{costs.roofline[i] / single:.2f}",
        )
    return table


def header_lines(header: dict[str, Any]) -> list[str]:
    """What was measured on what, in two or three lines."""
    machine, weights, peaks = header["machine"], header["weights"], header["peaks"]
    types = ", ".join(f"{count} {name}" for name, count in sorted(weights["types"].items(), key=lambda item: -item[1]))
    lines = [
        f"{header['file']}: {weights['elements'] / 1e6:.0f} M weights a step in {weights['bytes'] / 1e6:.0f} MB "
        f"({types} matrices), threads {header['threads']}, flash attention on, {header['rounds']} rounds",
        f"{header['build']}, {machine['cpu']}, {', '.join(header['features'])}",
    ]
    if peaks is not None:
        lines.append(
            f"Peaks of this machine: {peaks['read_bytes'] / 1e9:.1f} GB/s read, "
            f"{peaks['products'] / 1e9:.0f} G 8-bit products/s"
        )
    return lines
