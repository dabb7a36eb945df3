"""The three small protocols that make a speculation method, and the record that joins them.

A *drafter* proposes a candidate tree, a *scheduler* decides how much of it is worth verifying, and a *verifier* walks
the verified tree. None of them knows llama.cpp; they see token ids, `Tree`s and `Rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from localspec.engine.base import Law, Rows, TreeContext
from localspec.events import Choice
from localspec.static_tree import StaticTree
from localspec.tree import Tree

SamplerT = TypeVar("SamplerT", bound="Sampler")


class Sampler(Protocol):
    """The target's own sampler chain, with the history of the text so far."""

    @property
    def native_seconds(self) -> float:
        """Seconds spent inside the native library since creation, by forks as well."""
        ...

    def sample(self, rows: Rows, i: int) -> int:
        """Draw one token from row `i`, given the history. One draw a call; the history does not change."""
        ...

    def law(self, rows: Rows, i: int) -> Law:
        """The distribution that `sample` draws from. Draws nothing."""
        ...

    def uniform(self) -> float:
        """A random number from [0, 1), of the seed."""
        ...

    def accept(self, token: int) -> None:
        """Append `token` to the history (penalties, grammar)."""
        ...

    def allows(self, rows: Rows, i: int, token: int) -> bool:
        """Whether `token` could be emitted at row `i` at all, given the history: no grammar, ban or, above temperature
        0, filter of the chain stands against it. Draws nothing."""
        ...

    def fork(self: SamplerT) -> SamplerT:
        """A sampler with the same history that will make the same draws, and goes its own way from here on."""
        ...

    def adopt(self: SamplerT, fork: SamplerT) -> None:
        """Go on where `fork`, made by this sampler or by a fork of it, stands. The fork is not used any more."""
        ...


@dataclass(frozen=True, slots=True)
class Walk:
    """The outcome of verifying one tree.

    `path` holds the accepted nodes below the root, in order. `tokens` are the emitted ids: those of the path, then the
    bonus token. A walk that ended on an end-of-generation token or at the limit has it as its last token and may then
    lack the bonus (len(tokens) == len(path)). `forgiven` are positions in `tokens` accepted against the target.
    """

    path: tuple[int, ...]
    tokens: tuple[int, ...]
    forgiven: tuple[int, ...] = ()


class Drafter(Protocol):
    """Proposes continuations. One instance serves one sequence."""

    def start(self, prompt: Sequence[int]) -> None:
        """A new generation begins after `prompt` (its last token is the first root)."""
        ...

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        """A tree of at most `max_nodes` nodes whose root is the last token of the text.

        Nodes that are accepted with a chance below `least_p` will not be verified: a drafter saves itself the work.
        """
        ...

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        """Learn from a verified step. `rows` may be read only during this call."""
        ...


class Scout(Protocol):
    """Adds draft-only nodes: rows that are read, not accepted. `worth` is how many tokens one of them brings, later."""

    @property
    def worth(self) -> float: ...

    def start(self, prompt: Sequence[int]) -> None:
        """A new generation begins after `prompt`."""
        ...

    def extend(self, tree: Tree, n_nodes: int) -> Tree:
        """The tree and up to `n_nodes` draft-only nodes."""
        ...

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        """Learn from a verified step, extended or not. `rows` may be read only during this call."""
        ...


class Scheduler(Protocol):
    """Decides the size of every step. Nodes less likely than `least_p` are not worth drafting."""

    @property
    def least_p(self) -> float: ...

    def start(self) -> None:
        """A new generation begins."""
        ...

    def budget(self) -> int:
        """Most nodes (root included) worth drafting for the coming step."""
        ...

    def select(self, tree: Tree) -> Tree:
        """The part of the candidate tree that is worth verifying."""
        ...

    def spare(self, n_nodes: int, worth: float) -> int:
        """Draft-only nodes that pay beside a selected tree of `n_nodes`, if each brings `worth` tokens later."""
        ...

    def choice(self) -> Choice:
        """How this step was seen, for those who watch. Asked between `select` and `observe`."""
        ...

    def observe(self, tree: Tree, walk: Walk, seconds: float, propose_seconds: float = 0.0) -> str | None:
        """Learn from a step that took `seconds`, and `propose_seconds` more for the drafter; returns a note for people
        when something changed."""
        ...


class Verifier(Protocol):
    """Walks a verified tree and decides what is emitted. `name` is the rule's name for people."""

    name: str
    lossless: bool

    def walk(self, tree: Tree, rows: Rows, sampler: Sampler, stop: frozenset[int], limit: int) -> Walk:
        """Emit at most `limit` (>= 1) tokens, ending with the first token in `stop`."""
        ...


@dataclass(frozen=True, slots=True)
class KnownTrees:
    """The static trees that a method verifies, and what a replay expects: `accepted` is the mean of accepted drafts in
    the steps that use each tree (empty when not known), `mixed` that of all steps together."""

    shapes: tuple[StaticTree, ...]
    accepted: tuple[float, ...] = ()
    mixed: float | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """A named speculation method. `trees` are those that it takes from a list, None for one that makes its own.

    `draft_ctx` is the context of a second model that drafts, if one does.
    """

    name: str
    drafter: Drafter
    scheduler: Scheduler
    verifier: Verifier
    scout: Scout | None = None
    trees: KnownTrees | None = None
    draft_ctx: TreeContext | None = None

    @property
    def native_seconds(self) -> float:
        """Seconds that drafting spent inside the native library, beside those of the target's context."""
        return 0.0 if self.draft_ctx is None else self.draft_ctx.native_seconds
