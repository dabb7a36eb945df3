"""Which tree of a bank the coming step uses: the online stage of EntMTP (section 4), and a policy by value.

The score of a step is p_base * q_1 * .. * q_d: the model's probability of the root, and the heads' of their own greedy
path. It is taken from this very step: the path is part of every tree, so its head rows are used again. EntMTP's own
confidences are one step old.

Policies index a bank's trees, the smallest first. `choose` is a look-up: it allocates nothing. Thresholds come from
replay (`localspec.entmtp.fit`), not from a person.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, ClassVar, Protocol

from localspec.errors import UsageError

#: thresholds that no score is below, and none reaches: "always" and "never"
BELOW_ALL, ABOVE_ALL = -1.0, 2.0
_HINT = "fit the policy again"


def score(p_base: float, q: Iterable[float]) -> float:
    """p_base * q_1 * .. * q_d; 0 when a factor is not known (NaN)."""
    for factor in q:
        p_base *= factor
    return p_base if p_base >= 0 else 0.0


class Policy(Protocol):
    """Picks a tree from a score and what it has seen. `depth` is the number of heads in the score."""

    @property
    def kind(self) -> str:
        """The name of the policy in JSON."""

    @property
    def n_trees(self) -> int:
        """Number of trees that it chooses among."""

    @property
    def depth(self) -> int:
        """Heads in the score; 0 when it looks at the root alone, or at nothing."""

    @property
    def edges(self) -> tuple[float, ...]:
        """Ascending scores at which the choice may change; none when it never does."""

    def reset(self) -> None:
        """A new answer begins."""

    def choose(self, score: float, /) -> int:
        """Index of the tree of the coming step."""

    def observe(self, n_accepted: int, /) -> None:
        """The step had this many drafts accepted."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, read back by `policy_from_dict`."""


def _whole(name: str, value: object, least: int, below: int | None = None) -> None:
    if type(value) is not int or value < least or (below is not None and value >= below):
        limit = f"from {least}" + (f" to {below - 1}" if below is not None else "")
        raise UsageError(f"{name} of a policy is {value!r}, not a whole number {limit}", _HINT)


def _number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UsageError(f"{name} of a policy is {value!r}, not a number", _HINT)


def _ascending(name: str, values: object) -> tuple[float, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise UsageError(f"{name} of a policy is {values!r}, not a list of numbers", _HINT)
    for value in values:
        _number(name, value)
    if any(a > b for a, b in pairwise(values)):
        raise UsageError(f"{name} of a policy does not ascend: {list(values)}", _HINT)
    return tuple(map(float, values))


class _Plain:
    """What policies have in common: JSON of their fields, and no state."""

    __slots__ = ()
    kind: ClassVar[str]

    def reset(self) -> None:
        """A new answer begins."""

    def observe(self, n_accepted: int, /) -> None:
        """The step had this many drafts accepted."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, read back by `policy_from_dict`."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.init}  # type: ignore[arg-type]
        return {"policy": self.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}}


@dataclass(slots=True)
class Star(_Plain):
    """EntMTP*: always tree `index`. It needs no score."""

    kind: ClassVar[str] = "star"
    n_trees: int
    index: int
    depth: int = 0

    def __post_init__(self) -> None:
        _whole("n_trees", self.n_trees, 1)
        _whole("index", self.index, 0, self.n_trees)
        _whole("depth", self.depth, 0)

    @property
    def edges(self) -> tuple[float, ...]:
        """None."""
        return ()

    def choose(self, score: float, /) -> int:
        """The tree."""
        return self.index


@dataclass(slots=True)
class Ladder(_Plain):
    """EntMTP-l: tree i from the i-th of the ascending thresholds on, bisect_right(thresholds, s)."""

    kind: ClassVar[str] = "ladder"
    n_trees: int
    thresholds: tuple[float, ...]
    depth: int

    def __post_init__(self) -> None:
        _whole("n_trees", self.n_trees, 1)
        _whole("depth", self.depth, 0)
        self.thresholds = _ascending("thresholds", self.thresholds)
        if len(self.thresholds) != self.n_trees - 1:
            raise UsageError(f"a ladder of {self.n_trees} trees has {len(self.thresholds)} thresholds", _HINT)

    @property
    def edges(self) -> tuple[float, ...]:
        """The thresholds."""
        return self.thresholds

    def choose(self, score: float, /) -> int:
        """The tree of the rung that the score stands on."""
        return bisect_right(self.thresholds, score)


@dataclass(slots=True)
class Tau(_Plain):
    """EntMTP-tau: two trees with hysteresis. From `big` to `small` iff s <= tau_off, back iff s > tau_on.

    Answers start with `small`. tau_off <= tau_on; equal ones make a plain threshold.
    """

    kind: ClassVar[str] = "tau"
    n_trees: int
    small: int
    big: int
    tau_off: float
    tau_on: float
    depth: int
    _now: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        _whole("n_trees", self.n_trees, 1)
        _whole("small", self.small, 0, self.n_trees)
        _whole("big", self.big, 0, self.n_trees)
        _whole("depth", self.depth, 0)
        _number("tau_off", self.tau_off)
        _number("tau_on", self.tau_on)
        if self.tau_off > self.tau_on:
            raise UsageError(f"tau_off {self.tau_off} of a policy is above tau_on {self.tau_on}", _HINT)
        self._now = self.small

    def reset(self) -> None:
        """A new answer begins, with the small tree."""
        self._now = self.small

    @property
    def edges(self) -> tuple[float, ...]:
        """Both thresholds."""
        return self.tau_off, self.tau_on

    def choose(self, score: float, /) -> int:
        """The tree after the switch that the score asks for, if any."""
        if score > self.tau_on:
            self._now = self.big
        elif score <= self.tau_off:
            self._now = self.small
        return self._now


@dataclass(slots=True)
class Value(_Plain):
    """The tree worth most by a table: over bins of the score, bins of an average of what was accepted, and the tree in
    use, which stays unless another is worth `margin` tokens more (`localspec.entmtp.fit.fit_value` makes the table).

    `table` is flat: entry ((score bin) * n_ema_bins + ema bin) * n_trees + tree in use is the tree to use. Bin i begins
    at edge i - 1. The average is exponential with `span` steps; answers start at `ema_start` and tree `first`.
    `rate` (tokens per second) and `margin` tell how the table was made.
    """

    kind: ClassVar[str] = "value"
    n_trees: int
    score_edges: tuple[float, ...]
    ema_edges: tuple[float, ...]
    table: tuple[int, ...]
    ema_start: float
    first: int
    depth: int
    span: int = 8
    rate: float = 0.0
    margin: float = 0.0
    _now: int = field(init=False, repr=False, compare=False, default=0)
    _ema: float = field(init=False, repr=False, compare=False, default=0.0)
    _row: int = field(init=False, repr=False, compare=False, default=0)
    _share: float = field(init=False, repr=False, compare=False, default=0.0)

    def __post_init__(self) -> None:
        _whole("n_trees", self.n_trees, 1)
        _whole("first", self.first, 0, self.n_trees)
        _whole("depth", self.depth, 0)
        _whole("span", self.span, 1)
        for name in ("ema_start", "rate", "margin"):
            _number(name, getattr(self, name))
        self.score_edges = _ascending("score_edges", self.score_edges)
        self.ema_edges = _ascending("ema_edges", self.ema_edges)
        if not isinstance(self.table, Sequence):
            raise UsageError(f"the table of a policy is {self.table!r}, not a list", _HINT)
        self.table = tuple(self.table)
        size = (len(self.score_edges) + 1) * (len(self.ema_edges) + 1) * self.n_trees
        if len(self.table) != size:
            raise UsageError(f"the table of a policy has {len(self.table)} entries, not {size}", _HINT)
        for tree in self.table:
            _whole("table", tree, 0, self.n_trees)
        self._row = (len(self.ema_edges) + 1) * self.n_trees
        self._share = 2 / (1 + self.span)
        self.reset()

    def reset(self) -> None:
        """A new answer begins."""
        self._now = self.first
        self._ema = self.ema_start

    @property
    def edges(self) -> tuple[float, ...]:
        """The edges of the table's bins of scores."""
        return self.score_edges

    def choose(self, score: float, /) -> int:
        """The tree that the table holds for the bins of now and the tree in use."""
        bins = (
            bisect_right(self.score_edges, score) * self._row + bisect_right(self.ema_edges, self._ema) * self.n_trees
        )
        self._now = self.table[bins + self._now]
        return self._now

    def observe(self, n_accepted: int, /) -> None:
        """The average follows what was accepted."""
        self._ema += self._share * (n_accepted - self._ema)


_KINDS: dict[str, type[Star | Ladder | Tau | Value]] = {cls.kind: cls for cls in (Star, Ladder, Tau, Value)}


def policy_from_dict(data: object) -> Star | Ladder | Tau | Value:
    """Rebuild a policy from `to_dict` data. Raises `UsageError`, which names what is wrong, for anything else."""
    if not isinstance(data, Mapping):
        raise UsageError(f"a policy is an object, not {type(data).__name__}", _HINT)
    kind = data.get("policy")
    cls = _KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise UsageError(f"there is no policy {kind!r}", f"the policies are {', '.join(_KINDS)}")
    names = {f.name for f in fields(cls) if f.init}
    wrong = sorted(map(str, names.symmetric_difference(set(data) - {"policy"})))
    if wrong:
        raise UsageError(f"policy {kind!r} lacks or does not know {', '.join(wrong)}", _HINT)
    return cls(**{str(name): data[name] for name in names})
