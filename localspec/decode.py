"""The decoding loop: propose a tree -> decode it -> walk it -> accept -> emit.

A `Generator` owns one sequence of a context and remembers which tokens its cache holds, so that the next prompt reuses
the common beginning. It sees token ids, trees and bytes; no model files, no templates.

Between steps, and after any end or error, the cache holds the prompt and all emitted tokens but the last one, which is
the root of the next tree.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

from localspec.engine.base import TreeContext
from localspec.errors import ContextLengthError, EngineError, LocalspecError, UsageError
from localspec.events import DoneEvent, Event, FinishReason, NoteEvent, PromptEvent, Stats, StepEvent, StepTimings
from localspec.methods.base import Method, Sampler, Walk
from localspec.text import TextStream
from localspec.tree import Tree

log = logging.getLogger(__name__)


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
class _Job:
    """One generation. `last` is the emitted token without K/V, `left` how many more may be emitted."""

    prompt: list[int]
    sampler: Sampler
    method: Method
    stream: TextStream
    cancelled: Callable[[], bool]
    last: int
    left: int
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


class Generator:
    """Generates on sequence `seq` of `ctx`, which it has to itself; what the sequence held before is forgotten.

    `chain` lists the tokens whose K/V rows the cache holds.
    """

    def __init__(self, vocab: Vocab, ctx: TreeContext, seq: int = 0) -> None:
        self.vocab = vocab
        self.ctx = ctx
        self.seq = seq
        self.chain: list[int] = []
        self._pending: Sequence[int] = ()
        self._turn = 0
        self.reset()

    def reset(self) -> None:
        """Forget everything: empty the sequence."""
        self.chain, self._pending = [], ()
        self.ctx.drop(self.seq)
        self.ctx.trim(0, self.seq)

    def generate(
        self,
        prompt: Sequence[int],
        sampler: Sampler,
        method: Method,
        limits: Limits | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[Event]:
        """Continue `prompt`: a `PromptEvent`, then `StepEvent`s with `NoteEvent`s between, then a `DoneEvent`.

        `sampler` is fresh: its history starts as the caller wants it and gains each emitted token. `cancelled` is asked
        before every step and between chunks of the prompt. Closing the iterator ends the generation as well, and a new
        `generate` ends an older one of this object.

        Raises `UsageError` (empty prompt) and `ContextLengthError` (no room for one token) at once, the cache
        untouched; `EngineError` while iterating. The generator stays usable after all of them.
        """
        limits = limits or Limits()
        if not len(prompt):
            raise UsageError("the prompt is empty", "give at least one token")
        room = self.ctx.n_ctx - len(prompt)
        if room < 1:
            raise ContextLengthError(
                f"the prompt has {len(prompt)} tokens, which leaves no room in the context of {self.ctx.n_ctx}",
                "shorten the prompt or enlarge the context",
            )
        left = room if limits.max_tokens is None else min(room, limits.max_tokens)
        stream = TextStream(self.vocab.piece, limits.stops)
        tokens = [int(token) for token in prompt]
        return self._run(_Job(tokens, sampler, method, stream, cancelled, tokens[-1], left))

    def _run(self, job: _Job) -> Iterator[Event]:
        self._turn += 1
        turn = self._turn
        try:
            self._read_prompt(job)
            if job.reason is None:
                yield PromptEvent(job.stats.n_prompt, job.stats.n_cached, job.stats.prompt_seconds)
            while job.reason is None:
                if turn != self._turn:
                    raise EngineError("this generation was ended by a newer one on the same sequence")
                if job.cancelled():
                    job.reason = "cancelled"
                    break
                event, note = self._step(job)
                yield event
                if note:
                    yield NoteEvent(note)
        except BaseException:
            if turn == self._turn:
                self._recover()
            raise
        text = job.stream.flush()
        verifier = job.method.verifier
        yield DoneEvent(job.reason, text, job.stats, job.stream.stopped, verifier.lossless, verifier.name)

    def _read_prompt(self, job: _Job) -> None:
        """Make the chain the prompt without its last token, reusing what is there."""
        start = perf_counter()
        if self.ctx.n_past(self.seq) != len(self.chain):
            log.warning("sequence %d was changed from outside; its cache is not reused", self.seq)
            self.reset()
        body = job.prompt[:-1]
        keep = _common_prefix(self.chain, body)
        if keep < len(self.chain):
            kept = self.ctx.trim(keep, self.seq)
            del self.chain[min(kept, keep) :]
            self._check()
        job.stats.n_prompt, job.stats.n_cached = len(job.prompt), len(self.chain)
        rest = self._pending = body[len(self.chain) :]
        if rest:
            done = self.ctx.prefill(rest, self.seq, lambda _: not job.cancelled())
            self.chain.extend(rest[:done])
            if done < len(rest):
                job.reason = "cancelled"
                del self.chain[self.ctx.n_past(self.seq) :]  # lost where the model's state cannot step back
            self._extend(())
        if job.reason is None:
            job.method.drafter.start(job.prompt)
            if job.method.scout is not None:
                job.method.scout.start(job.prompt)
            job.method.scheduler.start()
        job.stats.prompt_seconds = perf_counter() - start

    def _step(self, job: _Job) -> tuple[StepEvent, str | None]:
        """One forward pass; the chain grows by the root and all accepted nodes but a final one."""
        ctx, method = self.ctx, job.method
        native = ctx.native_seconds + job.sampler.native_seconds + method.native_seconds
        t0 = perf_counter()
        tree = self._propose(job)
        t1 = perf_counter()
        rows = ctx.decode(tree.tokens, tree.topology.parents, self.seq)
        t2 = perf_counter()
        root = job.last
        walk = method.verifier.walk(tree, rows, job.sampler, self.vocab.eog, job.left)
        n, text = job.emit(walk.tokens, self.vocab.eog)
        t3 = perf_counter()
        self._pending = (root, *walk.tokens[: n - 1])
        ctx.accept((0, *walk.path[: n - 1]), self.seq)
        self._extend(self._pending)
        t4 = perf_counter()
        if method.scout is not None:
            method.scout.observe(tree, rows, walk)
        method.drafter.observe(tree, rows, walk)
        t5 = perf_counter()
        proposing = t1 - t0 + t5 - t4
        choice = method.scheduler.choice()
        note = method.scheduler.observe(tree, walk, t4 - t1, proposing)
        _count(job.stats, tree, walk, n)
        native = ctx.native_seconds + job.sampler.native_seconds + method.native_seconds - native
        forgiven = tuple(i for i in walk.forgiven if i < n)
        total = perf_counter() - t0
        job.stats.forgiven += [job.stats.n_tokens - n + i for i in forgiven]
        job.stats.seconds += total
        job.stats.native_seconds += native
        job.stats.propose_seconds += proposing
        timings = StepTimings(proposing, t2 - t1, t3 - t2, t4 - t3, native, total)
        taken = walk.tokens[:n], text, method.name, tree.topology, tree.tokens, walk.path[:n]
        return StepEvent(*taken, timings, forgiven, choice), note

    def _propose(self, job: _Job) -> Tree:
        """The tree of this step: within the scheduler's budget, the cache and the tokens left."""
        scheduler = job.method.scheduler
        room = self.ctx.n_ctx - len(self.chain)
        most = min(scheduler.budget(), self.ctx.max_nodes, room)
        if most <= 1 or job.left == 1:
            return Tree.root(job.last)
        tree = scheduler.select(job.method.drafter.propose(most, scheduler.least_p))
        scout = job.method.scout
        if scout is not None:
            # near the end there is nothing left to learn for, and a tree must not be cut after this
            limit = min(room, self.ctx.max_nodes, job.left)
            spare = min(scheduler.spare(len(tree), scout.worth), limit - len(tree))
            if spare > 0:
                tree = scout.extend(tree, spare)
                most = len(tree)
        if tree.tokens[0] != job.last:
            raise EngineError(f"the drafter of {job.method.name!r} lost track of the text")
        if len(tree) > most:
            tree = tree.prune(range(most))
        if len(tree) > job.left:
            tree = tree.prune([node for node, depth in enumerate(tree.topology.depths) if depth < job.left])
        return tree

    def _extend(self, tokens: Sequence[int]) -> None:
        self.chain.extend(tokens)
        self._pending = ()
        self._check()

    def _check(self) -> None:
        """The list and the cache must agree, else every later token would be wrong in silence."""
        n = self.ctx.n_past(self.seq)
        if n != len(self.chain):
            expected = len(self.chain)
            self.reset()
            raise EngineError(f"the cache of sequence {self.seq} holds {n} tokens where {expected} are expected")

    def _recover(self) -> None:
        """After an exception at any point: close the tree and find out how much of the last change took effect."""
        try:
            self.ctx.drop(self.seq)
            known = [*self.chain, *self._pending]
            n = self.ctx.n_past(self.seq)
            self._pending = ()
            if n > len(known):
                self.reset()
            else:
                self.chain = known[:n]
        except LocalspecError as error:
            # The next generation finds chain and cache in disagreement and starts from nothing.
            log.warning("cannot tidy up sequence %d: %s", self.seq, error)
            self.chain, self._pending = [], ()


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)


def _count(stats: Stats, tree: Tree, walk: Walk, n: int) -> None:
    """Add a step that emitted `n` tokens; token i was drawn at the i-th node of the walk."""
    children = tree.topology.children
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
