"""The scheduler that always verifies the whole candidate tree."""

from __future__ import annotations

from dataclasses import replace

from localspec.events import Choice
from localspec.methods.base import Method, Walk
from localspec.tree import Tree


class Fixed:
    """Always the whole candidate tree, up to `n` nodes. `note`, if given, is told once a generation."""

    least_p = 0.0

    def __init__(self, n: int, note: str | None = None) -> None:
        self._n = n
        self._note = note
        self._told = False

    def start(self) -> None:
        self._told = False

    def budget(self) -> int:
        return self._n

    def select(self, tree: Tree) -> Tree:
        return tree.prune(range(min(len(tree), self._n)))

    def spare(self, n_nodes: int, worth: float) -> int:
        return 0

    def choice(self) -> Choice:
        return Choice(on=self._n > 1)

    def observe(self, tree: Tree, walk: Walk, seconds: float, propose_seconds: float = 0.0) -> str | None:
        if self._told:
            return None
        self._told = True
        return self._note


def at_nodes(method: Method, n_nodes: int) -> Method:
    """The method made to verify its best tree of `n_nodes` nodes at every step, whether that pays or not."""
    return replace(method, scheduler=Fixed(n_nodes), scout=None, trees=None)
