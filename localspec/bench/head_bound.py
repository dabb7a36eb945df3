"""What draft heads could bring at best with one static tree: tokens per step by exact replay, over the cost of a step.

The trees are grown on the very answers that are judged, so no tree that was chosen before can be expected to beat the
bound; a policy that changes trees, and nodes chosen at each step, can. What a draft costs is measured behind a step of
the model, as it is in a text (with weights still in the caches it would be cheaper), and in units of that step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np

from localspec.bench.bound import Bound, by_task
from localspec.bench.step_costs import ALL, Curves
from localspec.calibrate.curve import CostCurve
from localspec.engine.base import TreeContext
from localspec.entmtp.growth import grow_all
from localspec.entmtp.in_use import HeadsInUse
from localspec.entmtp.live import loop_steps
from localspec.entmtp.observe import observe_answers
from localspec.entmtp.ranks import RankedAnswer, RankLog
from localspec.errors import UsageError
from localspec.heads.choose import HYDRA_KIND, MEDUSA_KIND
from localspec.methods.head_methods import BANK_NAMES
from localspec.methods.heads import Evaluator
from localspec.replay.log import LoggedAnswer
from localspec.session import Session
from localspec.static_tree import StaticTree

#: methods whose bound is that of the best tree, and of the one tree that they verify
BEST_TREE = ("heads", *BANK_NAMES)
ONE_TREE = {"hydra-static": HYDRA_KIND, "medusa": MEDUSA_KIND}
#: nodes of the largest tree that is grown
MAX_GROWN = 32
#: sizes of each depth whose drafts are timed; calls in a row, after one that does not count, and how often
N_SIZES, CALLS, ROUNDS = 3, 4, 3


@dataclass(frozen=True)
class DraftCosts:
    """Drafting in plain steps: of the trees that were timed, and between their sizes for others of a depth."""

    timed: Mapping[StaticTree, float]

    def __call__(self, tree: StaticTree) -> float:
        if not tree.n_drafts:
            return 0.0
        if tree in self.timed:
            return self.timed[tree]
        depth = min({known.depth for known in self.timed}, key=lambda known: (abs(known - tree.depth), known))
        points = sorted((known.n_nodes, cost) for known, cost in self.timed.items() if known.depth == depth)
        return float(np.interp(tree.n_nodes, [n for n, _ in points], [cost for _, cost in points]))


def head_bounds(
    session: Session, answers: Sequence[LoggedAnswer], methods: Sequence[str], curves: Curves
) -> dict[tuple[str, str], Bound]:
    """The bound of each method on heads, on each task and on all answers as task `ALL`.

    Methods that follow other rules than one static tree have none, nor have heads with a prefix layer, whose ranks
    cannot be looked up. Empties the prompt cache.
    """
    found: dict[tuple[str, str], Bound] = {}
    for kind in (HYDRA_KIND, MEDUSA_KIND):
        best = [name for name in methods if name in BEST_TREE and kind == HYDRA_KIND]
        one = [name for name in methods if ONE_TREE.get(name) == kind]
        if not best and not one:
            continue
        try:
            heads = HeadsInUse.of(session, (kind,))
        except UsageError:
            continue
        fixed = {name: known.shapes[0] for name in one if (known := session.method(name).trees) is not None}
        found |= _bounds(session, heads, answers, best, fixed, curves)
    return found


def _bounds(
    session: Session,
    heads: HeadsInUse,
    answers: Sequence[LoggedAnswer],
    best: Sequence[str],
    fixed: Mapping[str, StaticTree],
    curves: Curves,
) -> dict[tuple[str, str], Bound]:
    """The bounds of the methods `best`, by the best tree, and of `fixed`, by their trees."""
    largest = min(MAX_GROWN, session.ctx.max_nodes)
    try:
        ranked = observe_answers(session.ctx, heads.reference, answers, {}).answers
        groups = by_task(ranked)
        grown: dict[str, list[StaticTree]] = {}
        for task, group in groups.items() if best else ():
            grown[task] = [replayed.tree for replayed in grow_all(RankLog(tuple(group)), largest)]
        trees = [*_spread(grown.get(ALL, [])), *fixed.values()]
        drafts = draft_costs(session.ctx, heads.evaluator, answers[0], trees)
    finally:
        session.forget()
    found: dict[tuple[str, str], Bound] = {}
    for task, group in groups.items():
        if best:
            bound = best_bound(group, grown[task], curves[task], drafts)
            found |= {(name, task): bound for name in best}
        found |= {(name, task): tree_bound(group, tree, curves[task], drafts) for name, tree in fixed.items()}
    return found


def tree_bound(answers: Sequence[RankedAnswer], tree: StaticTree, curve: CostCurve, drafts: DraftCosts) -> Bound:
    """What `tree` brings: medians over answers. The first step of an answer is plain, as there is no hidden state."""
    step = curve.ratio(tree.n_nodes) + drafts(tree)
    steps = [loop_steps(answer, tree) for answer in answers]
    pairs = list(zip(map(len, answers), steps, strict=True))
    ratios = [tokens / (1 + (n - 1) * step) for tokens, n in pairs]
    return Bound(tree.n_nodes, median(tokens / n for tokens, n in pairs), median(ratios))


def best_bound(
    answers: Sequence[RankedAnswer], trees: Sequence[StaticTree], curve: CostCurve, drafts: DraftCosts
) -> Bound:
    """The largest ratio of all `trees`."""
    return max((tree_bound(answers, tree, curve, drafts) for tree in trees), key=lambda bound: bound.ratio)


def _spread(trees: Sequence[StaticTree]) -> list[StaticTree]:
    """A few sizes of each depth, from the smallest to the largest."""
    chosen: list[StaticTree] = []
    for depth in sorted({tree.depth for tree in trees if tree.n_drafts}):
        mine = sorted((tree for tree in trees if tree.depth == depth), key=lambda tree: tree.n_nodes)
        last = len(mine) - 1
        chosen += [mine[i] for i in sorted({round(k * last / (N_SIZES - 1)) for k in range(N_SIZES)})]
    return chosen


def draft_costs(ctx: TreeContext, heads: Evaluator, answer: LoggedAnswer, trees: Sequence[StaticTree]) -> DraftCosts:
    """Time the draft of each of `trees` behind a step of the model in the text of `answer`, by turns, each next to its
    step; medians.

    Empties sequence 0 first and leaves it filled.
    """
    ctx.drop()
    ctx.trim(0)
    if len(answer.prompt) > 1:
        ctx.prefill(list(answer.prompt[:-1]))
    text = (answer.prompt[-1], *answer.tokens)
    costs: dict[StaticTree, list[float]] = {tree: [] for tree in trees}
    n_calls = 0
    for _ in range(ROUNDS):
        for tree, taken in costs.items():
            for call in range(1 + CALLS):
                root = text[n_calls % len(text)]
                n_calls += 1
                start = perf_counter()
                state = ctx.decode([root], [-1]).hidden(0)
                step = perf_counter() - start
                ctx.drop()  # every step sees the same context
                start = perf_counter()
                heads.draft(state, root, tree)
                if call:  # the first one may build a graph
                    taken.append((perf_counter() - start) / step)
    return DraftCosts({tree: median(taken) for tree, taken in costs.items()})
