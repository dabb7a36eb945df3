"""What a node costs when several texts are written in the same forward passes.

A pass of k texts takes c(k) plain steps without any drafts, so a token costs c(k)/k there, and that is the unit in
which each text's governor counts. To a text that is the last to choose, n nodes beside m of the others cost
1 + (c(m + n) - c(m + 1)) / (c(k)/k): the more there are to write for, the dearer a draft, until none pays. So all of
them together find the trees that bring the most tokens a second, by the one curve.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.calibrate.curve import CostCurve
from localspec.calibrate.online import OnlineCost

#: what a node costs for which a pass has no room
_NO_ROOM = 1e6

#: passes without drafts at first, and passes after which one is made again, as contexts grow
PLAIN_FIRST, PLAIN_EVERY = 3, 48
#: share of the newest pass in what one without drafts is believed to take, and how many of those a pass counts at most
PLAIN_RATE, MOST_PASSES = 0.2, 4.0
#: passes that drafts may lose, net of what they won just before, until they are left out
MAX_LOSS = 1.5
#: passes of a trial, and passes between trials at most
TRIES, MAX_GAP = 6, 768


class SharedCost:
    """The cost of passes of one context. While a pass is put together, `n_texts` take part in it, and `n_others` are
    the nodes of it that are not for the text that chooses now."""

    def __init__(self, curve: CostCurve | None, max_nodes: int) -> None:
        self.cost = OnlineCost(curve, max_nodes)
        self.n_texts = 1
        self.n_others = 0

    def observe(self, n_nodes: int, seconds: float) -> None:
        """A pass for several texts took so long; those for one are told by its governor."""
        if n_nodes <= len(self.cost.relative):
            self.cost.observe(n_nodes, seconds)

    @property
    def plain_pass(self) -> float | None:
        """Seconds that a pass without drafts takes for these texts, None while that is not known."""
        plain = self.cost.plain_seconds
        return None if plain is None else plain * self.relative(self.n_texts)

    def relative(self, n_nodes: int) -> float:
        """Cost of a pass in plain steps of one text."""
        return self.cost.relative[min(n_nodes, len(self.cost.relative)) - 1]


class TextCost:
    """`calibrate.online.Cost` for one of the texts."""

    def __init__(self, shared: SharedCost) -> None:
        self._shared = shared
        self._known: tuple[int, int, list[float]] | None = None
        self._relative: list[float] = []

    @property
    def in_company(self) -> bool:
        return self._shared.n_texts > 1

    @property
    def n_texts(self) -> int:
        return self._shared.n_texts

    @property
    def relative(self) -> list[float]:
        shared = self._shared
        whole = shared.cost.relative
        if shared.n_texts == 1:
            return whole
        known = self._known
        if known is None or known[:2] != (shared.n_texts, shared.n_others) or known[2] is not whole:
            self._known = shared.n_texts, shared.n_others, whole
            unit = shared.relative(shared.n_texts) / shared.n_texts
            rest = whole[shared.n_others :]
            self._relative = [1 + (cost - rest[0]) / unit for cost in rest] or [1.0]
            self._relative += [_NO_ROOM] * (len(whole) - len(self._relative))
        return self._relative

    @property
    def plain_seconds(self) -> float | None:
        plain = self._shared.plain_pass
        return None if plain is None else plain / self._shared.n_texts

    @property
    def plain_known(self) -> bool:
        return self.in_company or self._shared.cost.plain_known

    @property
    def n_plain(self) -> int:
        return self._shared.cost.n_plain

    @property
    def doubtful(self) -> bool:
        return self._shared.cost.doubtful

    @property
    def n_tree_steps(self) -> int:
        return self._shared.cost.n_tree_steps

    def start(self) -> None:
        """A new text; in company, plain steps cannot be measured."""
        if not self.in_company:
            self._shared.cost.start()

    def observe(self, n: int, seconds: float) -> float:
        """A step with `n` nodes; returns its cost in plain steps."""
        if self.in_company:
            return self.relative[n - 1]
        return self._shared.cost.observe(n, seconds)


@dataclass(slots=True)
class _Plain:
    """What passes without drafts take for one number of texts."""

    seconds: float = 0.0
    n: int = 0
    n_since: int = 0

    def learn(self, seconds: float) -> None:
        self.n_since = 0
        self.n += 1
        if self.n == 1:
            self.seconds = seconds
        elif self.n <= PLAIN_FIRST:
            self.seconds = min(self.seconds, seconds)
        else:
            self.seconds += PLAIN_RATE * (min(seconds, 2 * self.seconds) - self.seconds)


@dataclass(slots=True)
class _Verdict:
    """Whether drafts pay for about so many texts. What they lost is in passes, as are `gap` and `next_try`."""

    n_passes: int = 0
    on: bool = True
    lost: float = 0.0
    n_tried: int = 0
    gap: int = 0
    next_try: int = 0

    def learn(self, loss: float) -> None:
        if self.on:
            self.lost = max(0.0, self.lost + loss)
            if self.lost > MAX_LOSS:
                self._wait(PLAIN_EVERY)
            return
        self.lost += loss
        self.n_tried += 1
        if self.n_tried < TRIES:
            return
        if self.lost < 0:
            self.on, self.lost, self.gap = True, 0.0, 0
        else:
            self._wait(2 * self.gap)

    def _wait(self, gap: int) -> None:
        self.on, self.lost, self.n_tried = False, 0.0, 0
        self.gap = min(gap, MAX_GAP)
        self.next_try = self.n_passes + self.gap


class CompanyGovernor:
    """Whether the passes of several texts may have drafts: "never slower" for all of them together.

    What a draft costs all others, beside its nodes, no curve knows: drafting, verifying and telling happen for one text
    after the other while all wait. So passes with drafts are held against passes without, by the clock, for each number
    of texts; where they have lost, drafts are left out for a while, and tried again after twice as long each time. What
    is found for 5 texts goes for 5 to 8, and so on.
    """

    def __init__(self) -> None:
        self._plain: dict[int, _Plain] = {}
        self._verdicts: dict[int, _Verdict] = {}

    def _of(self, n_texts: int) -> tuple[_Plain, _Verdict]:
        return (
            self._plain.setdefault(n_texts, _Plain()),
            self._verdicts.setdefault((n_texts - 1).bit_length(), _Verdict()),
        )

    def may_draft(self, n_texts: int) -> bool:
        """Whether the next pass, for so many texts, may have drafts."""
        plain, verdict = self._of(n_texts)
        verdict.n_passes += 1
        if plain.n < PLAIN_FIRST:
            return False
        return plain.n_since < PLAIN_EVERY if verdict.on else verdict.n_passes >= verdict.next_try

    def observe(self, n_texts: int, n_tokens: int, n_nodes: int, seconds: float) -> None:
        """A pass for so many texts wrote `n_tokens` with `n_nodes`, and took `seconds`, all that belongs to it."""
        plain, verdict = self._of(n_texts)
        if n_nodes <= n_texts or not plain.n:
            plain.learn(seconds)
            return
        plain.n_since += 1
        # a hiccup of the machine is no fault of a draft
        verdict.learn(min(seconds / plain.seconds, MOST_PASSES) - n_tokens / n_texts)
