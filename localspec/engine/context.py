"""What both contexts do alike: making the native context, reading a prompt, trimming, and naming failures."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NoReturn

import numpy as np
from llama_cpp import llama_cpp as L

from localspec.engine import logs
from localspec.engine.base import Growth, Progress, Rows
from localspec.engine.host import Batch, create_context
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.errors import ContextLengthError, EngineError, UsageError

#: what llama_decode returns
OK, FULL, ABORTED = 0, 1, 2


#: a chunk of a prompt up to this size takes about as long as a step, so it is not interrupted
_SHORT = 32
_NO_CALLBACK = L.ggml_abort_callback()


class _Watch:
    """Asks `progress`, from inside an evaluation, whether to go on; the library calls back after every operation.

    Only CPU back ends ask. An exception of `progress` cannot cross the library: it is kept in `failure`.
    """

    def __init__(self, progress: Progress, done: int) -> None:
        self.stopped = False
        self.failure: BaseException | None = None
        self._progress = progress
        self._done = done
        self.callback = L.ggml_abort_callback(self._ask)

    def _ask(self, _data: object) -> bool:
        if not self.stopped:
            try:
                self.stopped = not self._progress(self._done)
            except BaseException as error:
                self.stopped, self.failure = True, error
        return self.stopped


class NativeContext:
    """A llama context with `n_seq_max` chains; sub-classes add the trees. Not thread-safe.

    `generation` counts the evaluations, so that rows know when they are stale.
    """

    max_nodes: int
    tree_limit_reason: str | None
    one_pass = False

    def __init__(self, model: Model, params: ContextParams, **settings: Any) -> None:
        self.ctx = create_context(model, params, **settings)
        self._free = weakref.finalize(self, L.llama_free, self.ctx)
        self._memory = L.llama_get_memory(self.ctx)
        self.n_vocab = model.n_vocab
        self.n_embd = model.n_embd
        self.n_swa = model.n_swa
        self.n_seq_max = params.n_seq_max
        self._partitioned = params.partitioned
        self.n_ctx = int(L.llama_n_ctx(self.ctx)) // (params.n_seq_max if params.partitioned else 1)
        self.n_ubatch = int(L.llama_n_ubatch(self.ctx))
        self.native_seconds = 0.0
        self.generation = 0
        self._n_past = [0] * self.n_seq_max
        self._batch = Batch(self.n_ubatch, 1, 1)

    def n_past(self, seq: int = 0) -> int:
        return self._n_past[self._checked(seq)]

    def check_open(self) -> None:
        """Raise `EngineError` when the context is closed."""
        if not self._free.alive:
            raise EngineError("this context is closed")

    def _checked(self, seq: int) -> int:
        self.check_open()
        if not 0 <= seq < self.n_seq_max:
            raise UsageError(f"sequence {seq} does not exist; this context has {self.n_seq_max}")
        return seq

    @contextmanager
    def _timed(self) -> Iterator[None]:
        begin = perf_counter()
        try:
            yield
        finally:
            self.native_seconds += perf_counter() - begin

    def prefill(self, tokens: Sequence[int], seq: int = 0, progress: Progress | None = None) -> int:
        if self._has_tree(self._checked(seq)):
            raise EngineError(f"sequence {seq} has an open tree: accept or drop it before a prefill")
        array = np.asarray(tokens, dtype=np.int32)
        free = self.n_ctx - self._n_taken(seq)
        if len(array) > free:
            raise ContextLengthError(
                f"{len(array)} tokens do not fit: {free} of {self.n_ctx} cells of the context are free",
                "shorten the prompt or use a larger --ctx-size",
            )
        done = 0
        # one physical batch at a time: just as fast, and `progress` gets a say more often
        while done < len(array):
            chunk = array[done : done + self.n_ubatch]
            self._batch.fill_chain(chunk, self._n_past[seq], seq, outputs=False)
            if not self._evaluate(seq, _Watch(progress, done) if progress and len(chunk) > _SHORT else None):
                break
            self._n_past[seq] += len(chunk)
            done += len(chunk)
            if progress is not None and not progress(done):
                break
        return done

    def _n_taken(self, seq: int) -> int:
        """Tokens that stand where further ones of `seq` could."""
        return self._n_past[seq] if self._partitioned else sum(self._n_past)

    def _has_tree(self, seq: int) -> bool:
        raise NotImplementedError

    def _evaluate(self, seq: int, watch: _Watch | None = None) -> bool:
        """Decode the batch; False when `watch` stopped it. Unless it is done, the sequence is a plain chain of
        `n_past` tokens again (of none where the memory of the model cannot step back)."""
        self.generation += 1
        mark = logs.n_errors()
        with self._timed():
            if watch is not None:
                L.llama_set_abort_callback(self.ctx, watch.callback, None)
            status = L.llama_decode(self.ctx, self._batch.native)
            L.llama_synchronize(self.ctx)
            if watch is not None:
                L.llama_set_abort_callback(self.ctx, _NO_CALLBACK, None)
        if status == OK:
            return True
        self._rewind(seq, self._n_past[seq])
        if watch is None or not watch.stopped:
            self._fail(status, self._batch.native.n_tokens, mark, self._n_taken(seq))
        if watch.failure is not None:
            raise watch.failure
        return False

    def _fail(self, status: int, n: int, mark: int, taken: int) -> NoReturn:
        """Raise what `status` of an evaluation of `n` tokens beside `taken` ones means; native errors since `mark` say
        why."""
        if status == FULL:
            raise ContextLengthError(
                f"no room for {n} more tokens: {taken} of {self.n_ctx} cells of the context are taken",
                "shorten the text or use a larger --ctx-size",
            )
        if status == ABORTED:
            raise EngineError("the evaluation was aborted")
        raise EngineError(f"llama.cpp failed to evaluate {n} tokens: {logs.reason(mark, f'status {status}')}")

    def copy_prefix(self, source: int, seq: int, n: int) -> bool:
        return False

    def decode_many(self, growths: Sequence[Growth]) -> Rows:
        raise EngineError("this context evaluates one sequence at a time")

    def drop(self, seq: int = 0) -> None:
        raise NotImplementedError

    def trim(self, n: int, seq: int = 0) -> int:
        self.drop(seq)
        if 0 <= n < self._n_past[seq]:
            self._rewind(seq, n)
        return self._n_past[seq]

    def _rewind(self, seq: int, n: int) -> None:
        """Cut the chain, without a tree, to `n` tokens, or to none where the library cannot stop there."""
        with self._timed():
            if not (self._remove(seq, n) and self._window_kept(seq, n)):
                n = 0
                self._remove(seq, 0)
        self._n_past[seq] = n

    def _remove(self, seq: int, start: int) -> bool:
        """Remove everything of the sequence from position `start` on; False when the library cannot."""
        return bool(L.llama_memory_seq_rm(self._memory, seq, start, -1))

    def _window_kept(self, seq: int, n: int) -> bool:
        """Whether the cells that a token at position `n` looks back at are still there."""
        n_swa = self.n_swa
        return not n_swa or n == 0 or L.llama_memory_seq_pos_min(self._memory, seq) <= max(0, n - n_swa + 1)

    def close(self) -> None:
        self.generation += 1
        self._free()
