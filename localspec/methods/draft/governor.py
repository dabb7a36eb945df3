"""A governor that knows what the drafts of a second model cost.

Such drafts take a good part of a step, and more the longer they are, so their time counts in full, and the drafter asks
what one pass more is worth. While speculation is off the draft model does not read along; what it has missed must be
read before it can try again. So it tries only where all its losses, that one included, stay small.
"""

from __future__ import annotations

from collections.abc import Callable

from localspec.calibrate.curve import CostCurve
from localspec.methods.base import Walk
from localspec.methods.draft.times import DraftTimes
from localspec.methods.governor import LOOK_EVERY, Governor
from localspec.tree import Tree

#: share of a text's plain steps that retries may leave lost at most
MAX_LOSS = 0.02
#: share of the newest step in the mean of tokens per plain step
_RATE = 0.1


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
        self._mean_tokens = self._mean_cost = 1.0
        self._lost = 0.0
        self._n_tokens = 0
        super().__init__(curve, max_nodes)

    def start(self) -> None:
        """A new generation: speculation gets a new chance."""
        super().start()
        self._mean_tokens = self._mean_cost = 1.0
        self._lost, self._n_tokens = 0.0, 0
        self._told = False

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

    def budget(self) -> int:
        """Most nodes worth drafting for the coming step; 1 means no draft at all."""
        n = super().budget()
        if n > 1 and not self.on:
            if not self._can_retry():
                self._next_probe = self._step + LOOK_EVERY
                return 1
            self._trust.start()  # the drafter looks again at what its estimates are worth
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
        if self._told or (reason := self.why_not()) is None:
            return note
        self._told = True
        return f"spec off: {reason}"

    def _account(self, n_tokens: int, cost: float) -> None:
        self._mean_tokens += _RATE * (n_tokens - self._mean_tokens)
        self._mean_cost += _RATE * (cost - self._mean_cost)
        self._lost += cost - n_tokens
        self._n_tokens += n_tokens
