"""The decoding loop: propose a tree -> decode it -> walk it -> accept -> emit.

A `Generator` owns one sequence of a context and remembers which tokens its cache holds, so that the next prompt reuses
the common beginning. It sees token ids, trees and bytes; no model files, no templates.

`Generator.generate` does it all for one text. Who writes several at a time calls its parts, in the same order: `begin`,
`read` until the prompt is read, `propose` and `take` as often as there is no reason to end, `end`; `recover` after an
exception.

Between steps, and after any end or error, the cache holds the prompt and all emitted tokens but the last one, which is
the root of the next tree.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from localspec.engine.base import Rows, TreeContext
from localspec.errors import ContextLengthError, EngineError, LocalspecError, UsageError
from localspec.events import DoneEvent, Event, NoteEvent, PromptEvent, StepEvent, StepTimings
from localspec.job import Job, Limits, Vocab
from localspec.methods.base import Method, Sampler
from localspec.reading import common_prefix
from localspec.text import TextStream
from localspec.tree import MAX_NODES, Tree

__all__ = ["Generator", "Limits"]

log = logging.getLogger(__name__)


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

    def copy(self, other: Generator, n: int) -> bool:
        """Hold the first `n` tokens that another sequence of the context holds; nothing, and False, where the context
        cannot do that."""
        self.reset()
        copied = self.ctx.copy_prefix(other.seq, self.seq, n)
        if copied:
            self.chain = other.chain[:n]
        return copied

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
        return self._run(self.begin(prompt, sampler, method, limits, cancelled))

    def begin(
        self,
        prompt: Sequence[int],
        sampler: Sampler,
        method: Method,
        limits: Limits | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        *,
        piece: Callable[[int], bytes] | None = None,
        top_logprobs: int | None = None,
    ) -> Job:
        """What `generate` is to do, checked; raises what that does. `piece` is for texts that show tokens otherwise
        than the vocabulary does."""
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
        stream = TextStream(piece or self.vocab.piece, limits.stops)
        tokens = [int(token) for token in prompt]
        return Job(tokens, sampler, method, stream, cancelled, tokens[-1], left, top_logprobs)

    def _run(self, job: Job) -> Iterator[Event]:
        self._turn += 1
        turn = self._turn
        try:
            while not self.read(job):
                pass
            if job.reason is None:
                yield self.prompt_event(job)
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
                self.recover()
            raise
        yield self.end(job)

    def prompt_event(self, job: Job) -> PromptEvent:
        """What reading the prompt took."""
        return PromptEvent(job.stats.n_prompt, job.stats.n_cached, job.stats.prompt_seconds)

    def end(self, job: Job) -> DoneEvent:
        """The end of a generation that has a reason to end."""
        if job.reason is None:
            raise EngineError("a generation ends for a reason")
        text = job.stream.flush()
        verifier = job.method.verifier
        return DoneEvent(job.reason, text, job.stats, job.stream.stopped, verifier.lossless, verifier.name)

    def _reuse(self, job: Job) -> list[int]:
        """Cut the chain to the beginning that it has in common with the prompt; returns what is left to read."""
        if self.ctx.n_past(self.seq) != len(self.chain):
            log.warning("sequence %d was changed from outside; its cache is not reused", self.seq)
            self.reset()
        body = job.prompt[:-1]
        keep = common_prefix(self.chain, body)
        if keep < len(self.chain):
            kept = self.ctx.trim(keep, self.seq)
            del self.chain[min(kept, keep) :]
            self._check()
        job.stats.n_prompt, job.stats.n_cached = len(job.prompt), len(self.chain)
        return body[len(self.chain) :]

    def read(self, job: Job, most: int | None = None) -> bool:
        """Read the prompt, or up to `most` further tokens of it, reusing what the cache holds of it; True when
        that is done. The chain is the prompt without its last token then, or `job.reason` says "cancelled"."""
        start = perf_counter()
        if job.left_to_read is None:
            job.left_to_read = self._reuse(job)
        rest = job.left_to_read
        n = len(rest) if most is None else min(most, len(rest))
        if n:
            self._pending = rest[:n]
            done = self.ctx.prefill(rest[:n], self.seq, lambda _: not job.cancelled())
            self.chain.extend(rest[:done])
            if done < n:
                job.reason = "cancelled"
                del self.chain[self.ctx.n_past(self.seq) :]  # lost where the model's state cannot step back
            self._extend(())
            del rest[:done]
            job.n_read += done
        finished = not rest or job.reason is not None
        if finished and job.reason is None:
            job.method.drafter.start(job.prompt)
            if job.method.scout is not None:
                job.method.scout.start(job.prompt)
            job.method.scheduler.start()
        job.stats.prompt_seconds += perf_counter() - start
        return finished

    def _step(self, job: Job) -> tuple[StepEvent, str | None]:
        """One forward pass."""
        native = self._native_seconds(job)
        t0 = perf_counter()
        tree = self.propose(job)
        t1 = perf_counter()
        rows = self.ctx.decode(tree.tokens, tree.topology.parents, self.seq)
        return self.take(job, tree, rows, t1 - t0, perf_counter() - t1, native)

    def _native_seconds(self, job: Job) -> float:
        return self.ctx.native_seconds + job.sampler.native_seconds + job.method.native_seconds

    def take(
        self, job: Job, tree: Tree, rows: Rows, proposing: float, decoding: float, native: float | None = None
    ) -> tuple[StepEvent, str | None]:
        """Verify a decoded tree, of which `rows` are the rows; the chain grows by the root and all accepted nodes but a
        final one. Proposing and decoding it took so many seconds; `native` is what `_native_seconds` was before."""
        ctx, method = self.ctx, job.method
        t2 = perf_counter()
        root = job.last
        walk = method.verifier.walk(tree, rows, job.sampler, self.vocab.eog, job.left)
        n, text = job.emit(walk.tokens, self.vocab.eog)
        likely = job.likely(rows, walk, n)
        t3 = perf_counter()
        self._pending = (root, *walk.tokens[: n - 1])
        ctx.accept((0, *walk.path[: n - 1]), self.seq)
        self._extend(self._pending)
        t4 = perf_counter()
        if method.scout is not None:
            method.scout.observe(tree, rows, walk)
        method.drafter.observe(tree, rows, walk)
        t5 = perf_counter()
        proposing += t5 - t4
        choice = method.scheduler.choice()
        note = method.scheduler.observe(tree, walk, decoding + t4 - t2, proposing)
        job.count(tree, walk, n)
        spent = 0.0 if native is None else self._native_seconds(job) - native
        forgiven = tuple(i for i in walk.forgiven if i < n)
        stats = job.stats
        total = decoding + proposing + t4 - t2
        stats.forgiven += [stats.n_tokens - n + i for i in forgiven]
        stats.seconds += total
        stats.native_seconds += spent
        stats.propose_seconds += proposing
        timings = StepTimings(proposing, decoding, t3 - t2, t4 - t3, spent, total)
        taken = walk.tokens[:n], text, method.name, tree.topology, tree.tokens, walk.path[:n]
        return StepEvent(*taken, timings, forgiven, choice, likely), note

    def propose(self, job: Job, room: int = MAX_NODES) -> Tree:
        """The tree of this step: within the scheduler's budget, the cache, the tokens left, and `room` nodes."""
        scheduler = job.method.scheduler
        room = min(room, self.ctx.n_ctx - len(self.chain))
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

    def recover(self) -> None:
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
