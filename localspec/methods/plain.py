"""No drafting: one token a step."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.engine.base import Rows
from localspec.methods.base import Walk
from localspec.tree import Tree


class PlainDrafter:
    """Proposes the root alone."""

    def __init__(self) -> None:
        self._last = -1

    def start(self, prompt: Sequence[int]) -> None:
        self._last = prompt[-1]

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        return Tree.root(self._last)

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        self._last = walk.tokens[-1]
