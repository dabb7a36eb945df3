"""Fits policies to a rank log by replay: what EntMTP sets by hand (section 4) is searched for here.

Every answer is written whatever the policy, so the best policy is the one whose replay takes the least estimated time.
All fits take a log, K trees (a bank's, the smallest first) and the seconds of a step with each, drafting included. The
heads that a score takes run in every step, so their seconds belong to every tree of a policy that looks at it.

Figures on the log that a policy was fitted on flatter it: judge on other answers (`RankLog.subset`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement
from math import comb
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from localspec.entmtp.policies import ABOVE_ALL, BELOW_ALL, Ladder, Star, Tau, Value
from localspec.entmtp.ranks import RankLog
from localspec.entmtp.replay import Bench, Ints, PolicyReplay
from localspec.errors import UsageError
from localspec.static_tree import StaticTree

#: thresholds between "always" and "never" that are tried
GRID = 12
#: ladders that are all tried; where there are more of them they are climbed instead
MAX_LADDERS = 4000
#: steps that a mean of all bins counts for in a bin's own mean: bins with few steps lean on others
SHRINK = 8.0

Floats = npt.NDArray[np.float64]
_P = TypeVar("_P")


@dataclass(frozen=True, eq=False)
class Fit(Generic[_P]):
    """A fitted policy and its replay on the log that it was fitted on."""

    policy: _P
    replay: PolicyReplay


def threshold_grid(scores: Floats, n: int = GRID) -> list[float]:
    """Thresholds to try, ascending: below all scores, up to `n` quantiles of them (equal ones once), above all."""
    if n < 1:
        raise UsageError(f"a grid of {n} thresholds has nothing to try", "give 1 or more")
    levels = np.arange(1, n + 1) / (n + 1)
    return [BELOW_ALL, *np.unique(np.quantile(scores, levels)).tolist(), ABOVE_ALL]


def _depth(log: RankLog, depth: int | None) -> int:
    return log.n_heads if depth is None else depth


def fit_star(log: RankLog, trees: Sequence[StaticTree], seconds: Sequence[float]) -> Fit[Star]:
    """The one tree with the most tokens per second; the first of equals."""
    return _star(Bench(log, trees, seconds))


def _star(bench: Bench) -> Fit[Star]:
    n = bench.n_trees
    replays = [bench.run_choices(np.full(len(bench.log), k)) for k in range(n)]
    best = min(range(n), key=lambda k: replays[k].seconds)
    return Fit(Star(n, best), replays[best])


def fit_ladder(
    log: RankLog, trees: Sequence[StaticTree], seconds: Sequence[float], *, depth: int | None = None, grid: int = GRID
) -> Fit[Ladder]:
    """Thresholds for all trees, the best on the grid when there are no more than `MAX_LADDERS` ways to place them.

    With more, the search starts from the best single tree and moves the thresholds i..j to one grid value while that
    helps: it ends where no such move helps, and is never worse than that tree. `depth` is the number of heads in the
    score, all of them for None.
    """
    depth = _depth(log, depth)
    bench = Bench(log, trees, seconds)
    scores = log.scores(depth)
    values = threshold_grid(scores, grid)
    n = bench.n_trees - 1

    def cost(thresholds: tuple[float, ...]) -> float:
        return bench.run_choices(_rungs(thresholds, scores)).seconds

    if comb(len(values) + n - 1, n) <= MAX_LADDERS:
        best = min(combinations_with_replacement(values, n), key=cost)
    else:
        star = _star(bench).policy.index
        best = _climb((BELOW_ALL,) * star + (ABOVE_ALL,) * (n - star), values, cost)
    return Fit(Ladder(n + 1, best, depth), bench.run_choices(_rungs(best, scores)))


def _rungs(thresholds: tuple[float, ...], scores: Floats) -> Ints:
    return np.searchsorted(np.array(thresholds), scores, side="right")


def _moves(thresholds: tuple[float, ...], values: Sequence[float]) -> Iterator[tuple[float, ...]]:
    n = len(thresholds)
    for i, j in combinations(range(n + 1), 2):
        least = thresholds[i - 1] if i else BELOW_ALL
        most = thresholds[j] if j < n else ABOVE_ALL
        for value in values:
            if least <= value <= most:
                yield thresholds[:i] + (value,) * (j - i) + thresholds[j:]


def _climb(
    start: tuple[float, ...], values: Sequence[float], cost: Callable[[tuple[float, ...]], float]
) -> tuple[float, ...]:
    best, least = start, cost(start)
    known = {start}
    while True:
        rated = [(cost(move), move) for move in _moves(best, values) if move not in known]
        known.update(move for _, move in rated)
        found = min(rated, default=(least, best))
        if found[0] >= least:
            return best
        least, best = found


def _tau_pairs(values: Sequence[float]) -> Iterator[tuple[float, float]]:
    """All (tau_off, tau_on) of the grid that differ in what they do: below "never", tau_off has no say."""
    *below, never = values
    yield from combinations_with_replacement(below, 2)
    yield never, never


def fit_tau(
    log: RankLog,
    trees: Sequence[StaticTree],
    seconds: Sequence[float],
    *,
    depth: int | None = None,
    grid: int = GRID,
    pairs: Iterable[tuple[int, int]] | None = None,
) -> Fit[Tau]:
    """The best two trees with the best tau_off <= tau_on on the grid; every combination is replayed.

    `pairs` limits the trees to these (small, big). The result is never slower on the log than the best single tree of
    the pairs.
    """
    depth = _depth(log, depth)
    bench = Bench(log, trees, seconds)
    scores = log.scores(depth)
    features = scores.tolist()
    n = bench.n_trees
    best: Fit[Tau] | None = None
    if pairs is None:
        pairs = combinations(range(n), 2) if n > 1 else [(0, 0)]
    for small, big in pairs:
        for off, on in _tau_pairs(threshold_grid(scores, grid)):
            policy = Tau(n, small, big, off, on, depth)
            replay = bench.run(policy, features)
            if best is None or replay.seconds < best.replay.seconds:
                best = Fit(policy, replay)
    if best is None:
        raise UsageError("there are no pairs of trees to switch between", "give some, or None for all")
    best.policy.reset()
    return best


def fit_value(
    log: RankLog,
    trees: Sequence[StaticTree],
    seconds: Sequence[float],
    *,
    depth: int | None = None,
    score_bins: int = 8,
    ema_bins: int = 3,
    span: int = 8,
    margins: Sequence[float] = (0.0, 0.02, 0.05, 0.1),
    rounds: int = 8,
) -> Fit[Value]:
    """The table that takes the tree with the largest (1 + A_k) - rate * seconds_k in each bin.

    A_k are the drafts that tree k has accepted, on average over the steps of the last round that fell into the bin: a
    log tells that for every tree, not only for the one that was used. `rate` is the last round's tokens per second
    (Dinkelbach's iteration for the best ratio of tokens to time), and the first round is the best single tree. Edges of
    the bins are quantiles over the steps of that round. Rounds end when the table stays the same.

    As a choice also moves the steps that follow, no round is sure to be better than the one before: the best of all
    rounds and margins is returned, so it is never slower on the log than the best single tree.
    """
    for name, number in (("score_bins", score_bins), ("ema_bins", ema_bins), ("rounds", rounds)):
        if number < 1:
            raise UsageError(f"{name} is {number}", "give 1 or more")
    depth = _depth(log, depth)
    bench = Bench(log, trees, seconds)
    scores = log.scores(depth)
    star = _star(bench)
    tree, start = star.policy.index, star.replay.tokens_per_step - 1
    score_edges = _edges(scores[star.replay.positions], score_bins)
    ema_edges = _edges(_averages(bench, star.replay, start, span), ema_bins)
    table = (tree,) * ((len(score_edges) + 1) * (len(ema_edges) + 1) * bench.n_trees)
    rate = star.replay.tokens_per_second
    first = best = Fit(Value(bench.n_trees, score_edges, ema_edges, table, start, tree, depth, span, rate), star.replay)
    for margin in margins:
        for fit in _rounds(bench, scores, first, margin, rounds):
            if fit.replay.seconds < best.replay.seconds:
                best = fit
    best.policy.reset()
    return best


def _rounds(bench: Bench, scores: Floats, fit: Fit[Value], margin: float, rounds: int) -> Iterator[Fit[Value]]:
    """Dinkelbach's iteration: the policy of each round is made for the speed of the one before."""
    features = scores.tolist()
    for _ in range(rounds):
        rate = fit.replay.tokens_per_second
        values = 1 + _means(bench, scores, fit) - rate * bench.seconds
        table = _switches(values, margin)
        if table == fit.policy.table:
            return
        policy = replace(fit.policy, table=table, rate=rate, margin=margin)
        fit = Fit(policy, bench.run(policy, features))
        yield fit


def _edges(values: Floats, bins: int) -> tuple[float, ...]:
    """Inner quantiles that make so many bins; equal ones once."""
    return tuple(np.unique(np.quantile(values, np.arange(1, bins) / bins)).tolist())


def _averages(bench: Bench, replay: PolicyReplay, start: float, span: int) -> Floats:
    """The average of what was accepted as `Value` sees it before each step, float64 [steps]."""
    accepted = bench.accepted[replay.choices, replay.positions].tolist()
    starts = {t for t, _ in bench.log.bounds}
    share = 2 / (1 + span)
    averages = []
    ema = start
    for t, n_accepted in zip(replay.positions, accepted, strict=True):
        if t in starts:
            ema = start
        averages.append(ema)
        ema += share * (n_accepted - ema)
    return np.array(averages)


def _means(bench: Bench, scores: Floats, fit: Fit[Value]) -> Floats:
    """Mean accepted drafts of every tree in every bin, over the steps of a replay, float64 [bins, K].

    A bin leans on the bins of the same score, and these on all steps, for as much as `SHRINK` steps.
    """
    policy, positions = fit.policy, fit.replay.positions
    ema = _averages(bench, fit.replay, policy.ema_start, policy.span)
    n_scores, n_emas = len(policy.score_edges) + 1, len(policy.ema_edges) + 1
    rows = np.searchsorted(policy.score_edges, scores[positions], side="right")
    columns = np.searchsorted(policy.ema_edges, ema, side="right")
    accepted = bench.accepted[:, positions].astype(np.float64)
    sums = np.zeros((n_scores, n_emas, bench.n_trees))
    np.add.at(sums, (rows, columns), accepted.T)
    counts = np.zeros((n_scores, n_emas, 1))
    np.add.at(counts, (rows, columns), 1.0)
    overall = accepted.mean(axis=1)
    by_score = (sums.sum(axis=1) + SHRINK * overall) / (counts.sum(axis=1) + SHRINK)
    means = (sums + SHRINK * by_score[:, None]) / (counts + SHRINK)
    return means.reshape(n_scores * n_emas, bench.n_trees)


def _switches(values: Floats, margin: float) -> tuple[int, ...]:
    """The table of a `Value` policy: the best tree of each bin, unless the one in use is worth nearly as much."""
    best = values.argmax(axis=1)
    stays = values >= values.max(axis=1, keepdims=True) - margin
    trees = np.where(stays, np.arange(values.shape[1]), best[:, None])
    return tuple(trees.ravel().tolist())
