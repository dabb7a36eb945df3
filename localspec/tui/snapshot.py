"""What the interface shows of an engine at one moment, as frozen plain data: `localspec.tui.live` makes it,
`localspec.tui.render` draws it, and `localspec.tui.feed` sends it to other processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

#: waiting for a question, reading the prompt, writing, and the answer is whole
Phase = Literal["idle", "reading", "writing", "done"]


@dataclass(frozen=True)
class Step:
    """One step to look at: the nodes of its tree, the root first, each after its parent, with their texts.

    `number` counts the steps of an answer from 1. `path` holds the accepted nodes below the root in order, `forgiven`
    those of them that were accepted against the target. `bonus` is the text of the token after the path, None where
    the answer ended within it. `tree` is the bank's tree that was used, if one was.
    """

    number: int
    method: str
    parents: tuple[int, ...]
    texts: tuple[str, ...]
    path: tuple[int, ...]
    bonus: str | None
    seconds: float
    forgiven: tuple[int, ...] = ()
    on: bool = True
    tree: int | None = None
    score: float | None = None

    @property
    def n_drafted(self) -> int:
        """Nodes without the root."""
        return len(self.parents) - 1

    @property
    def n_tokens(self) -> int:
        """Tokens that the step wrote."""
        return len(self.path) + (self.bonus is not None)


@dataclass(frozen=True)
class Snapshot:
    """An engine at one moment. Times are seconds, rates tokens per second, without prompts; figures are those of the
    answer that is written or was written last.

    `rate` is that of the last second or so of writing. `speedup` is held against plain decoding: `measured`, or else an
    estimate; None when nothing is known about plain steps. `off` tells why there is no speculation, None while there
    is. `shape` names the tree in use, "" when there was none lately. `lengths[k]` counts the steps with k accepted
    drafts, `tree_steps` those of each of the bank's `trees`, of which `tree` is the last one in use, chosen by `score`
    against `edges`. `rates` follow each other in time, `curve` is (n, cost in plain steps).

    `step` is the one to draw, `at` steps before the newest (None: it is the newest, and will be), out of `n_kept` that
    can be looked at; a picture of one takes some `most_lines` at most.
    """

    model: str = ""
    device: str = ""
    n_ctx: int = 0
    phase: Phase = "idle"
    method: str = ""
    accept: str = "strict"
    lossless: bool = True
    n_prompt: int = 0
    n_cached: int = 0
    prompt_seconds: float = 0.0
    n_tokens: int = 0
    n_steps: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    n_forgiven: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    speedup: float | None = None
    measured: bool = False
    off: str | None = None
    shape: str = ""
    lengths: tuple[int, ...] = ()
    trees: tuple[str, ...] = ()
    tree_steps: tuple[int, ...] = ()
    tree: int | None = None
    score: float | None = None
    edges: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    curve: tuple[tuple[int, float], ...] = ()
    finish: str | None = None
    step: Step | None = None
    at: int | None = None
    n_kept: int = 0
    most_lines: int = 0

    @property
    def mean_rate(self) -> float:
        """Tokens per second of the whole answer."""
        return self.n_tokens / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a step wrote on average."""
        return self.n_tokens / self.n_steps if self.n_steps else 0.0

    @property
    def n_used(self) -> int:
        """Tokens of the context window in use."""
        return self.n_prompt + self.n_tokens


def n_lines(children: Sequence[Sequence[int]], n_accepted: int) -> int:
    """Lines that a tree takes about, of which a path of `n_accepted` nodes was taken; `children` are those of each
    node. Every node beside another begins one, and so does the end of the path; a long path takes more than one."""
    beside = sum(len(below) for below in children if len(below) > 1)
    return 1 + beside + 2 * (len(children) > 1) + n_accepted // 4


def shape_name(parents: Sequence[int]) -> str:
    """A name for a shape: how deep it is and how many nodes its widest level has, "d4×w3"; "" for a lone root."""
    depths = [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    levels = Counter(depths[1:])
    return f"d{max(levels)}×w{max(levels.values())}" if levels else ""
