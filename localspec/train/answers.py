"""Answers to many prompts at once: one sequence each, one token of all of them a forward pass.

The pass that draws a token also computes the hidden state that it was drawn from, so features cost no second pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from localspec.engine.base import MAX_TOP_K, FloatArray, IntArray, Rows, TreeContext
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.train.sampling import draw

#: called, between passes, with the tokens answered so far; returns False to stop
Watch = Callable[[int], bool]


class Stopped(Exception):
    """The watch of `answer_all` said stop."""


@dataclass(frozen=True)
class Job:
    """One answer to make: `prompt` in tokens, `seed` the entropy of its random numbers."""

    prompt: Sequence[int]
    seed: Sequence[int]


@dataclass
class Answer:
    """A finished answer: row i is what `tokens[i]` was drawn from."""

    tokens: list[int] = field(default_factory=list)
    hidden: list[FloatArray] = field(default_factory=list)
    best_ids: list[int] = field(default_factory=list)
    best_logits: list[float] = field(default_factory=list)


@dataclass
class _Slot:
    """A sequence at work: `last` is its last token, which has no K/V row yet."""

    number: int
    last: int
    uniform: npt.NDArray[np.float64]
    answer: Answer = field(default_factory=Answer)


@runtime_checkable
class _Many(Protocol):
    """A context that decodes several sequences in one pass."""

    def decode_many(self, growths: Sequence[tuple[Sequence[int], Sequence[int], int]]) -> Rows: ...


def new_answering_context(model: Model, n_parallel: int, n_cells: int, n_threads: int | None = None) -> TreeContext:
    """A context for `n_parallel` answers of at most `n_cells` tokens each, prompts included; one answer at a time in
    stock mode. Raises `EngineError` when the memory does not suffice."""
    from localspec.engine.patched import available

    if not available():
        n_parallel = 1
    # 256 is what the library rounds up to
    n_cells = -(-n_cells // 256) * 256
    params = ContextParams(
        n_ctx=n_parallel * n_cells, n_seq_max=n_parallel, n_threads=n_threads, shared_cells=False, hidden=True
    )
    return model.new_context(params)


def answer_all(
    ctx: TreeContext,
    jobs: Iterable[Job],
    *,
    end_tokens: frozenset[int],
    max_tokens: int,
    temperature: float,
    watch: Watch = lambda n: True,
) -> list[Answer]:
    """Answer all `jobs`, as many at a time as `ctx` has sequences. An end token is part of its answer.

    Raises `Stopped` when `watch` says so, and `EngineError` when the library fails.
    """
    waiting = deque(enumerate(jobs))
    answers: dict[int, Answer] = {}
    slots: dict[int, _Slot] = {}
    n_done = 0
    try:
        while waiting or slots:
            for seq in range(ctx.n_seq_max):
                if seq not in slots and waiting:
                    slots[seq] = _begin(ctx, seq, *waiting.popleft(), max_tokens)
            _step(ctx, slots, temperature)
            n_done += len(slots)
            for seq, slot in list(slots.items()):
                answer = slot.answer
                if slot.last in end_tokens or len(answer.tokens) == max_tokens:
                    answers[slot.number] = answer
                    del slots[seq]
            if not watch(n_done):
                raise Stopped
    finally:
        for seq in range(ctx.n_seq_max):
            ctx.drop(seq)
            ctx.trim(0, seq)
    return [answers[number] for number in sorted(answers)]


def _begin(ctx: TreeContext, seq: int, number: int, job: Job, max_tokens: int) -> _Slot:
    ctx.trim(0, seq)
    if len(job.prompt) > 1:
        ctx.prefill(job.prompt[:-1], seq)
    uniform = np.random.Generator(np.random.PCG64(np.random.SeedSequence(list(job.seed)))).random(max_tokens)
    return _Slot(number, int(job.prompt[-1]), uniform)


def _step(ctx: TreeContext, slots: dict[int, _Slot], temperature: float) -> None:
    """One more token for every slot."""
    # sequences that follow each other in the cache are evaluated together; out of order, one after the other
    slots = dict(sorted(slots.items()))
    if isinstance(ctx, _Many):
        rows = ctx.decode_many([([slot.last], [-1], seq) for seq, slot in slots.items()])
        _emit(rows, list(slots.values()), temperature)
        for seq in slots:
            ctx.accept([0], seq)
        return
    for seq, slot in slots.items():
        _emit(ctx.decode([slot.last], [-1], seq), [slot], temperature)
        ctx.accept([0], seq)


def _emit(rows: Rows, slots: Sequence[_Slot], temperature: float) -> None:
    """Draw the token of each row and keep what it was drawn from."""
    best = [rows.top_k(i, MAX_TOP_K) for i in range(len(slots))]
    ids: IntArray = np.array([row[0] for row in best], dtype=np.int32)
    logits: FloatArray = np.array([row[1] for row in best], dtype=np.float32)
    uniform = np.array([slot.uniform[len(slot.answer.tokens)] for slot in slots])
    for i, (slot, token) in enumerate(zip(slots, draw(ids, logits, temperature, uniform).tolist(), strict=True)):
        slot.last = token
        answer = slot.answer
        answer.tokens.append(token)
        answer.hidden.append(rows.hidden(i))
        answer.best_ids.append(best[i][0][0])
        answer.best_logits.append(best[i][1][0])
