"""One generation, as the loop sees it: what to write after, where to end, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from localspec.engine.base import Rows
from localspec.errors import UsageError
from localspec.events import FinishReason, Likely, Stats
from localspec.methods.base import Method, Sampler, Walk
from localspec.text import TextStream
from localspec.tree import Tree


class Vocab(Protocol):
    """What the loop needs of a vocabulary."""

    @property
    def eog(self) -> frozenset[int]:
        """Tokens that end a generation. They emit no text."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes of a token, possibly a part of a UTF-8 character."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Where to end: after `max_tokens` tokens (None: at the end of the context window), before any of `stops`."""

    max_tokens: int | None = None
    stops: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"max_tokens is at least 1, not {self.max_tokens}")


@dataclass(slots=True)
class Job:
    """One generation. `last` is the emitted token without K/V, `left` how many more may be emitted."""

    prompt: list[int]
    sampler: Sampler
    method: Method
    stream: TextStream
    cancelled: Callable[[], bool]
    last: int
    left: int
    #: alternatives a token that log-probabilities are told of, None for no log-probabilities
    top_logprobs: int | None = None
    #: tokens of the prompt that are still to be read, None before the cache was looked at, and how many were read
    left_to_read: list[int] | None = None
    n_read: int = 0
    reason: FinishReason | None = None
    stats: Stats = field(default_factory=Stats)

    def emit(self, tokens: Sequence[int], eog: frozenset[int]) -> tuple[int, str]:
        """Take a run of tokens up to the one that ends the generation; returns how many count, and their text."""
        text = ""
        for n, token in enumerate(tokens, start=1):
            self.last = token
            self.left -= 1
            if token in eog:
                self.reason = "stop"
            else:
                text += self.stream.push(token)
                if self.stream.stopped is not None:
                    self.reason = "stop"
                elif self.left == 0:
                    self.reason = "length"
            if self.reason is not None:
                return n, text
        return len(tokens), text

    def likely(self, rows: Rows, walk: Walk, n: int) -> tuple[Likely, ...]:
        """The log-probabilities of the first `n` tokens of a walk, if they are wanted; token i was drawn at its i-th
        node."""
        if self.top_logprobs is None:
            return ()
        drawn = zip((0, *walk.path), walk.tokens[:n], strict=False)
        return tuple(likely_at(rows, node, token, self.top_logprobs) for node, token in drawn)

    def count(self, tree: Tree, walk: Walk, n: int) -> None:
        """Add a step that emitted `n` tokens."""
        stats, children = self.stats, tree.topology.children
        stats.n_steps += 1
        stats.n_tokens += n
        stats.n_drafted += len(tree) - 1
        stats.n_accepted += min(n, len(walk.path))
        for depth, node in enumerate((0, *walk.path)[:n]):
            if not children[node]:
                break
            if depth == len(stats.steps_reaching):
                stats.steps_reaching.append(0)
                stats.accepted_at.append(0)
            stats.steps_reaching[depth] += 1
            stats.accepted_at[depth] += depth < len(walk.path)


def likely_at(rows: Rows, node: int, token: int, top: int) -> Likely:
    """The log-probability of `token` at row `node`, under the model alone, and the `top` most likely tokens there."""
    lse = rows.logsumexp(node)
    logits = rows.logits(node)
    best: tuple[tuple[int, float], ...] = ()
    if top:
        # ties go to the smaller id, as everywhere
        few = np.argpartition(logits, -top)[-top:] if top < len(logits) else np.arange(len(logits))
        least = logits[few].min()
        ids = np.flatnonzero(logits >= least)
        ids = ids[np.argsort(-logits[ids], kind="stable")[:top]]
        best = tuple((int(id_), float(logits[id_]) - lse) for id_ in ids)
    return Likely(float(logits[token]) - lse, best)
