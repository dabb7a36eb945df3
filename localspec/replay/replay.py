"""Runs a drafter over logged answers, without the model.

Greedy text does not depend on what was drafted, so what a drafter would have had accepted is known exactly. One thing
is not: a log holds the rows that tokens were drawn from, not those of drafts that came to nothing. A drafter that
learns from those as well does a little better with the model than here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from localspec.engine.base import FloatArray
from localspec.errors import UsageError
from localspec.methods.base import Drafter, Walk
from localspec.replay.log import LoggedAnswer
from localspec.tree import Tree


class LoggedRows:
    """The rows of a step as far as a log has them: `nodes[i]` is the i-th node of the walk, drawn from row `first + i`.

    Other nodes have no candidates: `top_k` is empty for them. Everything that a log lacks raises `UsageError`.
    """

    def __init__(self, answer: LoggedAnswer, first: int, n_nodes: int, walked: Sequence[int]) -> None:
        self._answer = answer
        self._n = n_nodes
        self._row = {node: first + i for i, node in enumerate(walked)}

    def __len__(self) -> int:
        return self._n

    def top_k(self, i: int, k: int) -> tuple[list[int], list[float]]:
        row = self._row.get(i)
        if row is None:
            return [], []
        return self._answer.top_ids[row][:k], self._answer.top_logits[row][:k]

    def argmax(self, i: int) -> int:
        ids, _ = self.top_k(i, 1)
        if not ids:
            self._missing()
        return ids[0]

    def logsumexp(self, i: int) -> float:
        self._missing()

    def entropy(self, i: int) -> float:
        self._missing()

    def logits(self, i: int) -> FloatArray:
        self._missing()

    def candidates(self, i: int, out: object) -> None:
        self._missing()

    def hidden(self, i: int) -> FloatArray:
        self._missing()

    def _missing(self) -> NoReturn:
        raise UsageError("a log lacks what this drafter learns from", "measure it with the model: localspec bench")


@dataclass(slots=True)
class Count:
    """Totals of replayed steps. `expected` is the sum of the drafter's own estimates, the bonus tokens included."""

    tokens: int = 0
    steps: int = 0
    nodes: int = 0
    expected: float = 0.0

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / self.steps if self.steps else 0.0

    def add(self, other: Count) -> None:
        """Take in the totals of other steps."""
        self.tokens += other.tokens
        self.steps += other.steps
        self.nodes += other.nodes
        self.expected += other.expected


def replay_answer(answer: LoggedAnswer, drafter: Drafter, max_nodes: int) -> Count:
    """Write one logged answer again, with trees of at most `max_nodes` nodes (the root included)."""
    drafter.start(answer.prompt)
    count = Count()
    tokens = answer.tokens
    while count.tokens < len(tokens):
        left = tokens[count.tokens :]
        tree = drafter.propose(max_nodes)
        walk = _walk(tree, left)
        walked = (0, *walk.path)[: len(walk.tokens)]
        drafter.observe(tree, LoggedRows(answer, count.tokens, len(tree), walked), walk)
        count.add(Count(len(walk.tokens), 1, len(tree), sum(tree.p)))
    return count


def _walk(tree: Tree, tokens: Sequence[int]) -> Walk:
    """What the verifier would do when `tokens` is what the model writes."""
    path: list[int] = []
    for n, token in enumerate(tokens, start=1):
        node = tree.child(path[-1] if path else 0, token)
        if node is None:
            return Walk(tuple(path), tuple(tokens[:n]))
        path.append(node)
    return Walk(tuple(path), tuple(tokens))


def replay(
    answers: Iterable[LoggedAnswer], make_drafter: Callable[[], Drafter], sizes: Sequence[int], *, warm: bool = False
) -> dict[str, list[Count]]:
    """Totals by task, one for each number of nodes in `sizes` (roots included).

    Every answer gets a fresh drafter, as in a new chat; with `warm` one drafter writes them all.
    """
    totals: dict[str, list[Count]] = {}
    answers = list(answers)
    for i, size in enumerate(sizes):
        drafter = make_drafter()
        for answer in answers:
            counts = totals.setdefault(answer.task, [Count() for _ in sizes])
            counts[i].add(replay_answer(answer, drafter, size))
            if not warm:
                drafter = make_drafter()
    return totals
