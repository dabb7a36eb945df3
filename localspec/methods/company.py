"""What a node costs when several texts are written in the same forward passes.

A pass of k texts takes c(k) plain steps without any drafts, so a token costs c(k)/k there, and that is the unit in
which each text's governor counts. To a text that is the last to choose, n nodes beside m of the others cost
1 + (c(m + n) - c(m + 1)) / (c(k)/k): the more there are to write for, the dearer a draft, until none pays. So all of
them together find the trees that bring the most tokens a second, by the one curve.
"""

from __future__ import annotations

from localspec.calibrate.curve import CostCurve, OnlineCost

#: what a node costs for which a pass has no room
_NO_ROOM = 1e6


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
    """`calibrate.curve.Cost` for one of the texts."""

    def __init__(self, shared: SharedCost) -> None:
        self._shared = shared
        self._known: tuple[int, int, list[float]] | None = None
        self._relative: list[float] = []

    @property
    def in_company(self) -> bool:
        return self._shared.n_texts > 1

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
