"""How much of a candidate tree to verify, so that speculation is never slower than plain decoding.

The governor weighs expected tokens, 1 + the sum of p over the verified nodes, against the cost of the step. Both sides
are kept honest: costs by measured step times (`OnlineCost`), the drafter's p by what came true (`Calibration`). When
speculation has cost more than it brought it goes off, and tries again with a tiny tree from time to time.

Time reaches this module only as arguments; one *plain step* is the unit of all costs here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from localspec.calibrate.curve import CostCurve
from localspec.calibrate.online import Cost, OnlineCost
from localspec.events import OFF, ON, Choice
from localspec.methods.base import Walk
from localspec.methods.calibration import Calibration
from localspec.tree import MAX_NODES, Tree

OFF_NOTE = f"{OFF}not faster here"
ON_NOTE = f"{ON} again"

#: a larger tree must promise this factor over a plain step, since estimates are noisy
MARGIN = 1.03
#: promise at which a switched-off governor tries again
RETRY_MARGIN = 1.1
#: steps in a row with a draft that was not worth verifying until it goes off
MAX_IDLE = 24
#: while off: steps between looks at the (unverified) drafts of a cheap drafter, and between verified probes
LOOK_EVERY = 8
PROBE_EVERY = 48
PROBE_EVERY_MAX = 768
PROBE_NODES = 4
#: a look may cost this share of a plain step
CHEAP_DRAFT = 0.02
#: steps without a plain one after which one is made, to follow the cost of plain decoding: at most; at least, as where
#: drafts win nothing it costs nothing; and in between by what they win, in tokens per plain step
PLAIN_EVERY, PLAIN_EVERY_LEAST, PLAIN_EVERY_WON = 48, 8, 480
#: plain steps of a text before which they are made more often
PLAIN_FIRST = 2
#: share of the newest step in the means of tokens and cost
RATE = 0.1
#: tree steps measured early when there is no calibrated curve
LEARN_STEPS = 3
#: steps for which the least useful chance of a node is kept
LEAST_EVERY = 16
#: draft-only nodes at most
MAX_SPARE = 33
#: candidate nodes asked for at the least while on
MIN_BUDGET = 8


class Governor:
    """Chooses the size of every step. `curve` is the calibrated cost, None when there is none.

    Learned costs and corrections stay over generations; being off does not.
    """

    #: plain passes that one draft is believed to take at most: longer was a hiccup of the machine
    _MOST_DRAFT_COST = 1.0
    #: plain steps that speculation may lose, net of what it won just before, until it goes off
    _MAX_DEFICIT = 3.0
    #: plain steps won that count against later losses: times of steps scatter, and without it what pays goes off. What
    #: it costs at most was won in the same answer.
    _MOST_CREDIT = 8.0

    def __init__(self, curve: CostCurve | None, max_nodes: int) -> None:
        self.on = True
        self._calibrated = curve is not None
        self._max_nodes = min(max_nodes, MAX_NODES)
        self._cost: Cost = OnlineCost(curve, self._max_nodes)
        self._trust = Calibration()
        self._draft_cost = 0.0
        #: what a look took lately, while off
        self._look_cost = 0.0
        #: no node less likely than this can pay: below the least cost of a further node, which is known by then
        self.least_p = 0.0
        self._cheapest = 1.0
        #: the last answer of `_largest_useful` and what it was for
        self._useful: tuple[list[float] | None, float, int] = (None, 0.0, 1)
        self._reset()

    def _reset(self) -> None:
        self.on = True
        self._candidate: Tree | None = None
        self._keep: list[int] = [0]
        self._promise = 0.0
        self._expected = 1.0
        self._recent = float(MIN_BUDGET)
        self._deficit = 0.0
        self._idle = 0
        self._step = 0
        self._least_due = 0
        self._last_plain = 0
        self._on_since = 0
        #: of a step, lately
        self._mean_tokens = self._mean_cost = 1.0
        self._gap = 0.0
        self._look_gap = LOOK_EVERY
        self._next_look = 0.0
        self._next_probe = 0.0

    def share(self, cost: Cost) -> None:
        """Go by `cost` from now on, which others learn from and depend on as well; see `company`."""
        self._cost = cost

    def start(self) -> None:
        """A new generation: speculation gets a new chance."""
        self._reset()
        self._cost.start()
        self._trust.start()

    def budget(self) -> int:
        """Most nodes worth drafting for the coming step; 1 means no draft at all."""
        self._step += 1
        self._candidate = None
        if self._step >= self._least_due:
            self._least_due = self._step + LEAST_EVERY
            relative = self._cost.relative
            self._cheapest = max(0.0, min((more - cost for cost, more in pairwise(relative)), default=1.0))
            self.least_p = self._cheapest / self._trust.most
        if self.on:
            if self._plain_due():
                return 1
            return min(self._largest_useful(), max(MIN_BUDGET, int(2 * self._recent)))
        due = self._step >= self._next_probe
        look = self._step >= self._next_look and self._cheap_draft() and self._largest_useful() > 1
        return min(PROBE_NODES, self._max_nodes) if due or look else 1

    def _plain_due(self) -> bool:
        """Whether the coming step shall be a plain one, to be measured: the more often the less drafts win, as it costs
        the less."""
        cost = self._cost
        if cost.in_company:  # its passes are not for one text to measure
            return False
        if not cost.plain_known or cost.doubtful:
            return True
        won = self._mean_tokens / self._mean_cost - 1
        every = min(max(PLAIN_EVERY_LEAST, PLAIN_EVERY_WON * won), PLAIN_EVERY)
        return self._step - self._last_plain > every * min(1.0, cost.n_plain / PLAIN_FIRST)

    def _cheap_draft(self) -> bool:
        return self._look_cost <= CHEAP_DRAFT

    def _largest_useful(self) -> int:
        """The size with the best yield if every node were accepted; 1 when even that is not faster."""
        relative, draft_cost = self._cost.relative, self._draft_cost
        known_relative, known_draft_cost, n = self._useful
        if relative is not known_relative or abs(draft_cost - known_draft_cost) > 0.002:
            yields = [size / (cost + draft_cost) for size, cost in enumerate(relative, start=1)]
            best = max(yields)
            n = yields.index(best) + 1 if best >= MARGIN else 1
            self._useful = (relative, draft_cost, n)
        return n

    def select(self, tree: Tree) -> Tree:
        """The nodes worth verifying: those with the largest p, as many as pay."""
        self._candidate = tree
        self._expected = 1.0
        if len(tree) == 1:
            self._keep = [0]
            return tree
        order, rates = self._weigh(tree, self._draft_cost)
        self._promise = max(rates)
        best = rates.index(self._promise) + 1
        if self.on:
            if self._promise < MARGIN * rates[0]:
                best = 1
            if best == 1 and not self._calibrated and self._cost.n_tree_steps < LEARN_STEPS and self._step > 2:
                best = 2
        elif best == 1 or self._promise < RETRY_MARGIN:
            best = 2 if self._step >= self._next_probe else 1
        self._keep = sorted(order[:best])
        self._expected = rates[best - 1] * (self._cost.relative[best - 1] + self._draft_cost)
        return tree.prune(self._keep)

    def _weigh(self, tree: Tree, draft_cost: float) -> tuple[list[int], list[float]]:
        """The nodes by corrected p, and the tokens per plain step of the first, of the first two, and so on."""
        p = self._trust.correct(tree)
        # equal p: the parent has the smaller number and stays first
        order = sorted(range(len(p)), key=p.__getitem__, reverse=True)
        sums = self._tokens(tree, p, order)
        return order, [tokens / (cost + draft_cost) for tokens, cost in zip(sums, self._cost.relative, strict=False)]

    def _tokens(self, tree: Tree, p: Sequence[float], order: Sequence[int]) -> Iterable[float]:
        """Expected tokens of a step that verifies the first of the nodes in `order`, the first two, and so on."""
        return accumulate([p[node] for node in order])

    def promise(self, tree: Tree, seconds: float = 0.0) -> float:
        """Tokens per plain step that the best part of `tree` promises, if its draft took `seconds`."""
        plain = self._cost.plain_seconds
        return max(self._weigh(tree, seconds / plain if plain else 0.0)[1])

    def spare(self, n_nodes: int, worth: float) -> int:
        """How many draft-only nodes pay beside the selected ones; none while off, nor without a calibrated curve."""
        if worth <= self._cheapest or not self.on or not self._calibrated:
            return 0
        costs = self._cost.relative[n_nodes - 1 :]
        rates = [
            (self._expected + worth * more) / (cost + self._draft_cost) for more, cost in enumerate(costs[:MAX_SPARE])
        ]
        best = max(range(len(rates)), key=rates.__getitem__)
        return best if rates[best] >= MARGIN * rates[0] else 0

    def choice(self) -> Choice:
        """How this step was seen, for those who watch."""
        return Choice(self.on, self._cost.plain_seconds, self._cost.plain_known)

    def observe(self, tree: Tree, walk: Walk, seconds: float, propose_seconds: float = 0.0) -> str | None:
        """Learn from a step; returns a note when speculation went off or on."""
        n = len(tree)
        cost = self._cost.observe(n, seconds)
        plain = self._cost.plain_seconds
        if n == 1:
            self._last_plain = self._step
        drafted = self._candidate is not None
        if self._candidate is not None:
            # the unit is a token's part of a pass, of which there is one for each text
            most = self._MOST_DRAFT_COST * self._cost.n_texts
            share = min(propose_seconds / plain, most) if plain else 0.0
            self._draft_cost += 0.1 * (share - self._draft_cost)
            self._look_cost += 0.2 * (share - self._look_cost)
            cost += share
            if len(self._candidate) > 1:
                self._trust.observe(self._candidate, self._keep, self._matched(walk))
                n_kept = len(self._keep)  # without draft-only nodes
                self._idle = self._idle + 1 if n_kept == 1 else 0
                self._recent += 0.3 * (n_kept - self._recent)
        self._account(len(walk.tokens), cost)
        if self.on:
            return self._judge(cost - len(walk.tokens))
        return self._retry(n, walk) if drafted else None

    def _matched(self, walk: Walk) -> Walk:
        """What of `walk` tells whether the drafter's estimates were right. For sub-classes."""
        return walk

    def _account(self, n_tokens: int, cost: float) -> None:
        """A step wrote `n_tokens` and cost so many plain steps, draft included."""
        self._mean_tokens += RATE * (n_tokens - self._mean_tokens)
        self._mean_cost += RATE * (cost - self._mean_cost)

    def _judge(self, loss: float) -> str | None:
        self._deficit = max(-self._MOST_CREDIT, self._deficit + loss)
        useless = self._max_nodes > 1 and self._largest_useful() == 1
        if not (useless or self._deficit > self._MAX_DEFICIT or self._idle >= MAX_IDLE):
            return None
        self.on = False
        self._look_cost = 0.0  # a first look is free: drafters may have a cheap way for it
        if self._on_since == 0 or self._step - self._on_since > PROBE_EVERY:
            self._gap, self._look_gap = 0.0, LOOK_EVERY
        else:  # on for a moment only: the estimates that said so are wrong
            self._look_gap = max(PROBE_EVERY, 2 * self._look_gap)
        self._wait()
        return OFF_NOTE

    def _retry(self, n: int, walk: Walk) -> str | None:
        """A step of the off state that had a draft."""
        due = self._step >= self._next_probe
        self._next_look = self._step + self._look_gap
        if n == 1:
            if due:  # the drafter had nothing: ask again soon if asking costs nothing
                self._next_probe = self._step + (LOOK_EVERY if self._cheap_draft() else self._gap)
            return None
        if walk.path and self._promise >= RETRY_MARGIN:
            self.on, self._on_since = True, self._step
            self._deficit, self._idle, self._last_plain = 0.0, 0, self._step
            return ON_NOTE
        if not due:  # promising, and wrong
            self._look_gap = min(2 * self._look_gap, PROBE_EVERY_MAX)
        self._wait()
        return None

    def _wait(self) -> None:
        """Put the next probe off, twice as long after every failure, longer where a probe is dear."""
        dear = self._cost.relative[min(2, self._max_nodes) - 1] - 1
        self._gap = min(2 * self._gap, PROBE_EVERY_MAX) or PROBE_EVERY * max(1.0, dear)
        self._next_probe = self._step + self._gap
        self._next_look = self._step + self._look_gap
