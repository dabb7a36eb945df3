"""Events of generations that never were, to look at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from localspec.events import Choice, StepEvent, StepTimings
from localspec.tree import Topology
from localspec.tui.backend import ModelInfo

INFO = ModelInfo(
    name="tiny",
    path=Path("/models/tiny.gguf"),
    description="tiny 1M Q4_0",
    n_ctx=1024,
    mode="patched",
    device="CPU",
    method="ptd",
    curve=((1, 1.0), (2, 1.1), (4, 1.3), (8, 2.0)),
)


class Words:
    """A vocabulary that learns a token from every text. `asked` counts the look-ups of texts."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.asked = 0

    def id(self, text: str) -> int:
        if text not in self._texts:
            self._texts.append(text)
        return self._texts.index(text)

    def piece(self, token: int) -> str:
        self.asked += 1
        return self._texts[token]

    def step(
        self,
        texts: Sequence[str] = (" the",),
        parents: Sequence[int] = (-1,),
        path: Sequence[int] = (),
        bonus: str | None = " and",
        seconds: float = 0.1,
        forgiven: Sequence[int] = (),
        method: str = "ptd",
        choice: Choice | None = None,
    ) -> StepEvent:
        """A step whose tree has `texts` at its nodes, of which `path` was taken, then `bonus`."""
        tree = tuple(map(self.id, texts))
        tokens = [tree[node] for node in path] + ([] if bonus is None else [self.id(bonus)])
        return StepEvent(
            tuple(tokens),
            "".join([self._texts[token] for token in tokens]),
            method,
            Topology(tuple(parents)),
            tree,
            tuple(path),
            StepTimings(0.0, seconds, 0.0, 0.0, seconds, seconds),
            tuple(forgiven),
            choice or Choice(on=True),
        )
