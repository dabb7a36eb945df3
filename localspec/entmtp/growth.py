"""Growth of trees over a rank log: by measured acceptance (EntMTP, section 3), and by products of accuracies (Medusa).

All trees write the same tokens, so the tree with the largest mean acceptance is the one with the fewest steps, and ties
are exact. Adding a leaf changes the walk of few positions: those that ended at its parent and whose next rank is the
leaf's. From such a position the new run of steps leaves the old one, and soon meets it again; behind that both are
equal. So a candidate costs the steps in between, and still its step count is that of a full replay.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from localspec.entmtp.ranks import RankLog
from localspec.entmtp.replay import StepSeconds, TreeReplay
from localspec.errors import UsageError
from localspec.static_tree import MAX_RANK, Path, StaticTree
from localspec.tree import MAX_NODES

#: children of a parent at most, as published for each way to grow
GREEDY_CHILDREN = 100
PRODUCT_CHILDREN = 10

Positions = npt.NDArray[np.int64]
_NONE: Positions = np.zeros(0, dtype=np.int64)


def _check(log: RankLog, max_nodes: int, max_depth: int, max_children: int) -> None:
    if not 1 <= max_nodes <= MAX_NODES:
        raise UsageError(f"a tree has 1 to {MAX_NODES} nodes with its root, not {max_nodes}")
    if not 1 <= max_depth <= log.n_heads:
        raise UsageError(f"a log of {log.n_heads} heads grows trees of depth 1 to {log.n_heads}, not {max_depth}")
    if not 1 <= max_children <= MAX_RANK:
        raise UsageError(f"a parent has 1 to {MAX_RANK} children, not {max_children}")


class _Growth:
    """A growing tree with the run of its steps over the log.

    `waiting[path]` are the positions, ascending, whose walk would go on to `path` if it were a node, for paths whose
    parent is one. A position waits for one path at most.
    """

    def __init__(self, log: RankLog, max_depth: int) -> None:
        self._ranks = log.ranks[:, :max_depth]
        self.n = len(log)
        self.waiting: dict[Path, Positions] = {}
        #: number of the path that each position waits for; one that waits for none keeps a number that is done with
        self._awaited = [-1] * self.n
        self._numbers: dict[Path, int] = {}
        self._next = list(range(1, self.n + 1))
        self._wait(np.arange(self.n), ())
        self._run()

    def _wait(self, positions: Positions, parent: Path) -> None:
        """The walks at `positions` end at `parent` now."""
        depth = len(parent)
        ranks = self._ranks[positions, depth] if depth < self._ranks.shape[1] else np.full(len(positions), MAX_RANK)
        for rank in np.unique(ranks).tolist():
            if not 0 <= rank < MAX_RANK:
                continue
            path = (*parent, rank)
            self.waiting[path] = found = positions[ranks == rank]
            number = self._numbers[path] = len(self._numbers)
            for t in found.tolist():
                self._awaited[t] = number

    def _run(self) -> None:
        """Step through the log: `_order[t]` is the number of the step at t, -1 where none stands."""
        order = [-1] * self.n
        t = steps = 0
        after = self._next
        while t < self.n:
            order[t] = steps
            steps += 1
            t = after[t]
        order.append(steps)  # the end of the log is where all runs meet
        self._order = order
        self.steps = steps
        self._stands = np.array(order[:-1]) >= 0

    def steps_with(self, path: Path) -> int:
        """Steps of a full replay if `path` were a node as well."""
        waiting = self.waiting.get(path, _NONE)
        changed = waiting[self._stands[waiting]].tolist()
        if not changed:
            return self.steps
        number, awaited, order, after, n = self._numbers[path], self._awaited, self._order, self._next, self.n
        steps = saved = i = 0
        while i < len(changed):
            left = t = changed[i]
            steps = 0
            # a further changed position on the way is taken with its longer walk as well
            while t < n and (order[t] < 0 or t == left):
                t = after[t] + (awaited[t] == number)
                steps += 1
            saved += order[t] - order[left] - steps
            i = bisect_left(changed, t, i + 1)
        return self.steps - saved

    def add(self, path: Path) -> None:
        """Make `path` a node."""
        positions = self.waiting.pop(path, _NONE)
        after = self._next
        for t in positions.tolist():
            after[t] += 1
        if len(positions):
            self._wait(positions, path)
            self._run()


def _frontier(children: dict[Path, int], max_depth: int, max_children: int) -> Iterator[Path]:
    """The next contiguous child of every parent that may have one; `children` counts those of each node."""
    return ((*p, n) for p, n in children.items() if len(p) < max_depth and n < max_children)


def grow(
    log: RankLog, max_nodes: int, max_depth: int | None = None, max_children: int = GREEDY_CHILDREN
) -> list[TreeReplay]:
    """Trees of 1, 2, .. `max_nodes` nodes (roots included), each the one before and the best further node.

    The best node gives the largest mean acceptance, by exact replay; then the smaller sum of ranks, then the smaller
    depth, then the smaller path. Candidates are the next contiguous child of every node above `max_depth` (None: the
    number of heads). Ends early when all parents are full. Raises `UsageError` for sizes that cannot be.
    """
    max_depth = log.n_heads if max_depth is None else max_depth
    _check(log, max_nodes, max_depth, max_children)
    growth = _Growth(log, max_depth)
    children: dict[Path, int] = {(): 0}
    paths: list[Path] = []
    grown = [TreeReplay(StaticTree(), growth.n, growth.steps)]
    while len(grown) < max_nodes:
        rated = [(growth.steps_with(p), sum(p), len(p), p) for p in _frontier(children, max_depth, max_children)]
        if not rated:
            break
        best = min(rated)[-1]
        growth.add(best)
        children[best[:-1]] += 1
        children[best] = 0
        paths.append(best)
        grown.append(TreeReplay(StaticTree.from_paths(paths), growth.n, growth.steps))
    return grown


def grow_all(log: RankLog, max_nodes: int, max_children: int = GREEDY_CHILDREN) -> list[TreeReplay]:
    """`grow` for every maximal depth from 1 to the number of heads, one behind the other; equal trees once."""
    trees: dict[StaticTree, TreeReplay] = {}
    for max_depth in range(1, log.n_heads + 1):
        for replayed in grow(log, max_nodes, max_depth, max_children):
            trees.setdefault(replayed.tree, replayed)
    return list(trees.values())


def accuracies(log: RankLog, max_children: int = PRODUCT_CHILDREN) -> npt.NDArray[np.float64]:
    """How often candidate r of head d was right, float64 [D, max_children]; 0 for a head without any known token.

    Counted over all positions whose token is within the answer, as in Medusa's calibration.
    """
    table = np.zeros((log.n_heads, max_children))
    for d in range(log.n_heads):
        n_known = sum(max(0, len(answer) - 1 - d) for answer in log.answers)
        ranks = log.ranks[:, d]
        counts = np.bincount(ranks[(ranks >= 0) & (ranks < max_children)], minlength=max_children)
        table[d] = counts / max(n_known, 1)
    return table


def grow_by_products(
    log: RankLog, max_nodes: int, max_depth: int | None = None, max_children: int = PRODUCT_CHILDREN
) -> list[tuple[StaticTree, float]]:
    """Medusa's growth: trees of 1, 2, .. `max_nodes` nodes with their expected tokens per step.

    The next node is the one with the largest product of accuracies along its path, as if heads were right or wrong
    independently; ties as in `grow`. Expected tokens are 1 and the products of all nodes. What a tree really brings
    tells `localspec.entmtp.replay.replay_tree`. Raises `UsageError` for sizes that cannot be.
    """
    max_depth = log.n_heads if max_depth is None else max_depth
    _check(log, max_nodes, max_depth, max_children)
    table: list[list[float]] = accuracies(log, max_children).tolist()

    def entry(parent: Path, product: float, rank: int) -> tuple[float, int, int, Path, float]:
        path = (*parent, rank)
        return -product * table[len(parent)][rank], sum(path), len(path), path, product

    heap = [entry((), 1.0, 0)]
    paths: list[Path] = []
    expected = 1.0
    grown = [(StaticTree(), expected)]
    while heap and len(grown) < max_nodes:
        negative, _, depth, path, above = heapq.heappop(heap)
        paths.append(path)
        expected -= negative
        grown.append((StaticTree.from_paths(paths), expected))
        if path[-1] + 1 < max_children:
            heapq.heappush(heap, entry(path[:-1], above, path[-1] + 1))
        if depth < max_depth:
            heapq.heappush(heap, entry(path, -negative, 0))
    return grown


def best_under_cost(replays: Iterable[TreeReplay], seconds: StepSeconds) -> TreeReplay:
    """The tree with the most tokens per second, tokens_per_step / seconds(tree), as Sequoia chooses a size.

    The first of equals. Raises `UsageError` without trees.
    """
    best = max(replays, key=lambda replayed: replayed.tokens_per_step / seconds(replayed.tree), default=None)
    if best is None:
        raise UsageError("there are no trees to choose from", "grow some")
    return best
