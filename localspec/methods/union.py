"""One tree from two drafters: what the text tells (ptd, nearly free) and what heads tell (better, but they cost time).

ptd drafts first. The heads are asked when that has paid at steps like this one: where ptd is sure of itself they add
little, and their time is saved. A node that both drafted is likelier than either says; what only one of them knows of
is less likely than it says where the other was asked.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol

from localspec.engine.base import Rows
from localspec.methods.base import Drafter, Walk
from localspec.tree import Tree, TreeBuilder

#: a step's promise without heads, in tokens per plain step: where one kind of step ends and the next begins
EDGES = (1.02, 1.15, 1.35, 1.6, 2.0, 2.6)
#: what asking the heads is assumed to bring at first, and how fast that is unlearned
FIRST_GAIN, RATE = 0.1, 0.06
#: a kind of step at which heads do not pay is tried again once in so many
RETRY_EVERY = 24
#: the heads take part in one of so many probes of a judge that is off
PROBE_HEADS_EVERY = 4
#: logit of a node's chance given its parent = weights * logits of what the drafters gave it + bias: where both drafted
#: it, ptd alone, heads alone where ptd drafted others, and heads alone where ptd drafted nothing. Fitted by
#: benchmarks/fit_union.py to SmolLM2 on its own prompts
BOTH = (0.60, 0.75, 1.35)
PTD_ALONE = (1.20, -1.03)
HEADS_BESIDE = (0.88, -1.05)
HEADS_ALONE = (1.00, 0.05)
_EPS = 1e-4


class Judge(Protocol):
    """Says what a tree is worth: a governor does. While it is not `on`, drafts are probes."""

    on: bool

    def promise(self, tree: Tree, seconds: float = 0.0) -> float:
        """Tokens per plain step of the best part of `tree`, if its draft took `seconds`."""
        ...


class Asking:
    """Whether the heads are worth their time, by kinds of steps."""

    def __init__(self) -> None:
        self._gain = [FIRST_GAIN] * (len(EDGES) + 1)
        self._refused = [0] * (len(EDGES) + 1)

    def pays(self, promise: float) -> bool:
        """Whether to ask at a step that promises so much without."""
        kind = bisect_right(EDGES, promise)
        if self._gain[kind] > 0:
            return True
        self._refused[kind] += 1
        if self._refused[kind] < RETRY_EVERY:
            return False
        self._refused[kind] = 0
        return True

    def learn(self, promise: float, gain: float) -> None:
        """Asking at such a step changed its promise by `gain`, the time of the heads included."""
        kind = bisect_right(EDGES, promise)
        self._gain[kind] += RATE * (gain - self._gain[kind])


class UnionDrafter:
    """Drafts with `ptd`, and with `heads` where `judge` finds that they pay; without a judge always with both."""

    def __init__(
        self, ptd: Drafter, heads: Drafter, judge: Judge | None, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._ptd = ptd
        self._heads = heads
        self._judge = judge
        self._clock = clock
        self._asking = Asking()
        self._seconds = 0.0
        self._n_probes = 0
        #: steps of this generation that had a draft, and those of them at which the heads were asked
        self.n_steps = self.n_asked = 0

    def start(self, prompt: Sequence[int]) -> None:
        """A new generation begins after `prompt`."""
        self._ptd.start(prompt)
        self._heads.start(prompt)
        self.n_steps = self.n_asked = 0

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        """The tree of ptd, joined with that of the heads if they are asked: the likeliest nodes of both.

        The heads leave nodes out by their own estimates, and a node may be likelier where ptd drafted it too. That is
        rare: of SmolLM2's drafts worth verifying in the joint tree, 3 % hang below levels that the heads end at.
        """
        known = self._ptd.propose(max_nodes, least_p)
        if max_nodes <= 1:
            return known
        self.n_steps += 1
        if self._judge is None:
            self.n_asked += 1
            return join(known, self._heads.propose(max_nodes, least_p)).likeliest(max_nodes)
        if not self._judge.on:
            self._n_probes += 1
            if self._n_probes % PROBE_HEADS_EVERY:
                return known
        promise = self._judge.promise(known)
        if not self._asking.pays(promise):
            return known
        self.n_asked += 1
        began = self._clock()
        guessed = self._heads.propose(max_nodes, least_p)
        if len(guessed) == 1:  # no hidden state yet
            return known
        tree = join(known, guessed).likeliest(max_nodes)
        seconds = self._clock() - began
        # a first call may build graphs
        self._seconds = min(seconds, self._seconds + 0.1 * (seconds - self._seconds)) if self._seconds else seconds
        self._asking.learn(promise, self._judge.promise(tree, self._seconds) - promise)
        return tree

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        """Learn from a verified step."""
        self._ptd.observe(tree, rows, walk)
        self._heads.observe(tree, rows, walk)


def join(known: Tree, guessed: Tree) -> Tree:
    """All nodes of a tree of ptd and a tree of heads, which have the same root, each with a chance of its own."""
    builder = TreeBuilder(known.tokens[0])
    place = {0: 0}  # node of `known` -> node of the result
    twin = {0: 0}  # node of `known` -> node of `guessed`
    for node, parent in enumerate(known.topology.parents[1:], start=1):
        p = chance(known, node, parent)
        other = twin.get(parent)
        if other is not None and guessed.topology.children[other]:
            match = guessed.child(other, known.tokens[node])
            if match is None:
                p = _sigmoid(PTD_ALONE[0] * logit(p) + PTD_ALONE[1])
            else:
                twin[node] = match
                p = _sigmoid(BOTH[0] * logit(p) + BOTH[1] * logit(chance(guessed, match, other)) + BOTH[2])
        above = place[parent]
        place[node] = builder.add(above, known.tokens[node], builder.p[above] * p)
    back = {match: node for node, match in twin.items()}  # the other way round
    placed = {match: place[node] for node, match in twin.items()}
    for node, parent in enumerate(guessed.topology.parents[1:], start=1):
        if node in placed:
            continue
        beside = parent in back and known.topology.children[back[parent]]
        weight, bias = HEADS_BESIDE if beside else HEADS_ALONE
        p = _sigmoid(weight * logit(chance(guessed, node, parent)) + bias)
        above = placed[parent]
        placed[node] = builder.add(above, guessed.tokens[node], builder.p[above] * p)
    return builder.build()


def chance(tree: Tree, node: int, parent: int) -> float:
    """The estimate of a node when its parent is right."""
    return tree.p[node] / tree.p[parent] if tree.p[parent] > 0 else 0.0


def logit(p: float) -> float:
    """ln(p / (1 - p)), for p kept away from 0 and 1."""
    p = min(max(p, _EPS), 1 - _EPS)
    return math.log(p / (1 - p))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))
