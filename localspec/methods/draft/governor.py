"""A governor that knows what the drafts of a second model cost.

Such drafts take a good part of a step, and more the longer they are, so their time counts in full, and the drafter asks
what one pass more is worth. While speculation is off the draft model does not read along; what it has missed must be
read before it can try again. So it tries only where all its losses, that one included, stay small.

With loose acceptance it counts what forgiving brings, which wants chains longer than the window: see `forgiving`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from localspec.calibrate.curve import CostCurve
from localspec.methods.base import Walk
from localspec.methods.draft.forgiving import Forgiving, matching, spine
from localspec.methods.draft.times import DraftTimes
from localspec.methods.fly import LooseRule
from localspec.methods.governor import LOOK_EVERY, Governor
from localspec.tree import Tree

#: share of a text's plain steps that retries may leave lost at most
MAX_LOSS = 0.02


class DraftGovernor(Governor):
    """See the module's text; `times` are those of the drafter."""

    #: a draft may take several plain steps, and all of them count; so one that fails must not turn off what has won
    _MOST_DRAFT_COST = 16.0
    _MOST_CREDIT = 8.0
    #: the step that goes beyond it does so by more than other drafts could
    _MAX_DEFICIT = 2.0

    def __init__(self, curve: CostCurve | None, max_nodes: int, times: DraftTimes) -> None:
        self._times = times
        #: asked why there can be no drafts, which is told once a generation
        self.why_not: Callable[[], str | None] = lambda: None
        self._told = False
        self._forgiving: Forgiving | None = None
        self._lost = 0.0
        self._n_tokens = 0
        super().__init__(curve, max_nodes)

    def start(self) -> None:
        """A new generation: speculation gets a new chance."""
        super().start()
        self._lost, self._n_tokens = 0.0, 0
        self._told = False
        if self._forgiving is not None:
            self._forgiving.start()

    def forgive(self, rule: LooseRule | None) -> None:
        """From here on mismatches are forgiven by `rule`; None: none are."""
        known = None if self._forgiving is None else self._forgiving.rule
        if rule != known:
            self._forgiving = None if rule is None else Forgiving(rule)

    @property
    def _rate(self) -> float:
        """Tokens per plain step lately; plain decoding brings one."""
        return max(1.0, self._mean_tokens / self._mean_cost)

    @property
    def price(self) -> float:
        """Tokens that every second has to bring."""
        plain = self._cost.plain_seconds
        return self._rate / plain if plain else 0.0

    @property
    def stake(self) -> float:
        """Seconds that the draft of one step may take: what may be lost until speculation goes off."""
        left = self._MAX_DEFICIT - self._deficit if self.on else self._MAX_DEFICIT
        return left * (self._cost.plain_seconds or 0.0)

    def gain(self, n_nodes: int, depth: int, p: float) -> float:
        """Tokens that a node brings beside `n_nodes` others, less those that the time to verify it would bring."""
        relative = self._cost.relative
        if n_nodes >= len(relative):
            return 0.0
        return self._trust.trusted(p, depth) - self._rate * (relative[n_nodes] - relative[n_nodes - 1])

    def further(self, p: Sequence[float], n: int) -> list[float]:
        """Tokens that the drafts after the first `n` of a chain bring with forgiving, less those that the time to
        verify them would bring: for one more, two more, and so on; empty where nothing is forgiven.

        `p` are the chances that each draft and all before it match.
        """
        if self._forgiving is None:
            return []
        p = list(accumulate((self._trust.trusted(chance, depth) for depth, chance in enumerate(p, start=1)), min))
        tokens = [0.0, *(a + b for a, b in zip(accumulate(p), self._forgiving.bonuses(p), strict=True))]
        relative = self._cost.relative
        last = min(len(p), len(relative) - 1)
        return [tokens[k] - tokens[n] - self._rate * (relative[k] - relative[n]) for k in range(n + 1, last + 1)]

    def budget(self) -> int:
        """Most nodes worth drafting for the coming step; 1 means no draft at all."""
        n = super().budget()
        if n > 1 and not self.on:
            if not self._can_retry():
                self._next_probe = self._step + LOOK_EVERY
                return 1
            self._trust.start()  # the drafter looks again at what its estimates are worth
        if self._forgiving is not None:
            # what lies deep in a chain is unlikely to match, and may pay all the same
            self.least_p = 0.0
            if n > 1 and self.on:
                return self._largest_useful()
        return n

    def select(self, tree: Tree) -> Tree:
        """The nodes worth verifying."""
        plain = self._cost.plain_seconds
        if not self.on and plain:
            # a short draft is judged by what it cost, not by long ones of the past, nor by reading what was missed
            passes = tree.topology.depth * self._times.of_pass(1)
            self._draft_cost = min(self._draft_cost, passes / plain)
        return super().select(tree)

    def _cheap_draft(self) -> bool:
        return False

    def _can_retry(self) -> bool:
        """Whether a retry that fails leaves less lost than `MAX_LOSS`."""
        plain = self._cost.plain_seconds
        if not plain:
            return False
        retry = self._times.catching_up / plain + self._cost.relative[min(2, self._max_nodes) - 1] - 1
        return self._lost + retry <= MAX_LOSS * self._n_tokens

    def observe(self, tree: Tree, walk: Walk, seconds: float, propose_seconds: float = 0.0) -> str | None:
        """Learn from a step; returns a note when speculation went off or on, or cannot go on."""
        # the drafter knows better than the clock when the machine had a hiccup
        credible = min(propose_seconds, 2 * self._times.spent + 1e-3) if self._candidate is not None else 0.0
        note = super().observe(tree, walk, seconds, credible)
        if self._forgiving is not None:
            self._forgiving.learn(tree, walk)
        if self._told or (reason := self.why_not()) is None:
            return note
        self._told = True
        return f"spec off: {reason}"

    def _tokens(self, tree: Tree, p: Sequence[float], order: Sequence[int]) -> Iterable[float]:
        expected = super()._tokens(tree, p, order)
        if self._forgiving is None:
            return expected
        nodes = spine(tree)[1:]
        bonuses = [0.0, *self._forgiving.bonuses([p[node] for node in nodes])]
        depths = accumulate(node in nodes for node in order)
        return [tokens + bonuses[depth] for tokens, depth in zip(expected, depths, strict=True)]

    def _matched(self, walk: Walk) -> Walk:
        return matching(walk)

    def _account(self, n_tokens: int, cost: float) -> None:
        super()._account(n_tokens, cost)
        self._lost += cost - n_tokens
        self._n_tokens += n_tokens
