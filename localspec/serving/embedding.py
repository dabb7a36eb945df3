"""Embeddings: the states of a text's tokens, pooled to one vector.

A vector does not depend on the texts beside it. Long texts are read alone. Short ones share a pass where each row has
the same bits in any company: as long as there are at most `SHARED_ROWS` rows, on the row kernels.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from localspec.engine import kernels
from localspec.engine.base import FloatArray
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.engine.token_states import TokenStates
from localspec.errors import ContextLengthError, ModelError, UsageError
from localspec.gguf_check import check_gguf
from localspec.methods.registry import MAX_TREE_NODES
from localspec.serving.api import Pooled

Vector = npt.NDArray[np.float64]

#: most rows and texts of a pass that several texts share
SHARED_ROWS, SHARED_TEXTS = MAX_TREE_NODES, 4
#: cells of each sequence of that pass: the library makes caches in steps of so many
SHARED_CELLS = 256
#: rows of a pass of one text; each has logits too, which nobody needs, so more of them take memory for nothing
ROWS = 64
#: least cells of the context for long texts
LEAST_CELLS = 1024
#: seconds after which a context that nobody uses is freed
IDLE_SECONDS = 60.0

#: llama.cpp's numbers for the ways of pooling
_POOLINGS = {"0": "mean", "1": "mean", "2": "first", "3": "last"}


def pooling_of(model: Model) -> str:
    """How the states of a text become one vector: "mean" (also where the model does not say), or the "first" or "last"
    state. Raises `ModelError` for a model that ranks texts."""
    number = model.metadata.get(f"{model.arch}.pooling_type", "1")
    if number not in _POOLINGS:
        raise ModelError(f"{model.path.name} ranks texts; it makes no embeddings", "choose a model for embeddings")
    return _POOLINGS[number]


def plan(lengths: Sequence[int], most_texts: int, most_rows: int) -> list[list[int]]:
    """Which texts are read together: groups of their indices. Texts of similar length go together, as the library reads
    their common length at once."""
    groups: list[list[int]] = []
    n_rows = 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        n = lengths[index]
        if not groups or len(groups[-1]) >= most_texts or n_rows + n > most_rows:
            groups.append([])
            n_rows = 0
        groups[-1].append(index)
        n_rows += n
    return groups


@dataclass
class Job:
    """Embeddings under way: `step` until it is done. One at a time for one `Embedder`."""

    n_tokens: int
    normalize: bool
    _passes: Iterator[None]
    _vectors: list[Vector] = field(default_factory=list)
    done: bool = False

    def step(self) -> bool:
        """One pass of the model, of 64 tokens at most (of a whole text for an encoder); whether that was all."""
        self.done = self.done or next(self._passes, self) is self
        return self.done

    def result(self) -> Pooled:
        """The vectors, in the order of the texts."""
        while not self.step():
            pass
        vectors = [_unit(vector) if self.normalize else vector for vector in self._vectors]
        return Pooled([vector.astype(np.float32).tolist() for vector in vectors], self.n_tokens)


class Embedder:
    """Embeddings by `model`, with threads and cache types of `params`; texts of up to `n_ctx` tokens. Contexts are made
    when they are needed, and `release` frees them. Of one thread alone.

    Raises `ModelError` for a model that makes none.
    """

    def __init__(self, model: Model, params: ContextParams, n_ctx: int | None = None) -> None:
        self._model, self._params = model, params
        self._pooling = pooling_of(model)
        self.n_ctx = min(n_ctx or params.resolve_n_ctx(model.n_ctx_train), model.n_ctx_train)
        self._most = SHARED_TEXTS if _rows_are_independent(model) else 1
        # an encoder sees a text from both ends, so it takes it as a whole
        self._rows = self.n_ctx if model.is_encoder else ROWS
        self._shared: TokenStates | None = None
        self._single: TokenStates | None = None
        self.used = time.monotonic()

    def embed(self, inputs: Sequence[Sequence[int]], normalize: bool = True) -> Pooled:
        """The embeddings of texts as tokens, all at once; see `begin`."""
        return self.begin(inputs, normalize).result()

    def begin(self, inputs: Sequence[Sequence[int]], normalize: bool = True) -> Job:
        """Begin to embed texts, each to a vector [n_embd], of length 1 with `normalize`.

        Raises `UsageError` for an empty text or an id that is no token, and `ContextLengthError`.
        """
        for tokens in inputs:
            self._check(tokens)
        vectors: list[Vector] = [np.zeros(0)] * len(inputs)
        return Job(sum(map(len, inputs)), normalize, self._read(inputs, vectors), vectors)

    def _check(self, tokens: Sequence[int]) -> None:
        if not len(tokens):
            raise UsageError("an input is empty", "give at least one token")
        if len(tokens) > self.n_ctx:
            raise ContextLengthError(
                f"an input has {len(tokens)} tokens, and the context for embeddings has {self.n_ctx}", "shorten it"
            )
        if not all(0 <= token < self._model.n_vocab for token in tokens):
            raise UsageError(f"an input has an id that is no token: this model has {self._model.n_vocab}")

    def _read(self, inputs: Sequence[Sequence[int]], vectors: list[Vector]) -> Iterator[None]:
        short = [i for i, tokens in enumerate(inputs) if self._most > 1 and len(tokens) <= SHARED_ROWS]
        for group in plan([len(inputs[i]) for i in short], self._most, SHARED_ROWS):
            self.used = time.monotonic()
            self._read_together([short[i] for i in group], inputs, vectors)
            yield
        for index in sorted(set(range(len(inputs))) - set(short)):
            for _ in self._read_alone(index, inputs[index], vectors):
                self.used = time.monotonic()
                yield

    def _read_together(self, indices: Sequence[int], inputs: Sequence[Sequence[int]], vectors: list[Vector]) -> None:
        states = self._shared = self._shared or self._states(SHARED_TEXTS, SHARED_CELLS, SHARED_ROWS)
        states.clear()
        rows = states.read([(seq, 0, inputs[index]) for seq, index in enumerate(indices)])
        ends = itertools.accumulate(len(inputs[index]) for index in indices)
        for index, end in zip(indices, ends, strict=True):
            pool = _Pool(self._pooling, states.n_embd)
            pool.add(rows[end - len(inputs[index]) : end])
            vectors[index] = pool.vector()

    def _read_alone(self, index: int, tokens: Sequence[int], vectors: list[Vector]) -> Iterator[None]:
        states = self._single
        if states is None or states.n_cells < len(tokens):
            if states is not None:
                states.close()
            n_cells = max(LEAST_CELLS, 1 << (len(tokens) - 1).bit_length())
            n_cells = min(n_cells, -(-self.n_ctx // SHARED_CELLS) * SHARED_CELLS)
            states = self._single = self._states(1, n_cells, min(n_cells, self._rows))
        states.clear()
        pool = _Pool(self._pooling, states.n_embd)
        for start in range(0, len(tokens), self._rows):
            pool.add(states.read([(0, start, tokens[start : start + self._rows])]))
            if start + self._rows >= len(tokens):
                vectors[index] = pool.vector()
            yield

    def _states(self, n_seq: int, n_cells: int, n_rows: int) -> TokenStates:
        return TokenStates(self._model, self._params, n_seq=n_seq, n_cells=n_cells, n_rows=n_rows)

    def release(self, idle_seconds: float = IDLE_SECONDS) -> None:
        """Free the contexts if they have not been used for so long."""
        if time.monotonic() - self.used >= idle_seconds:
            for states in (self._shared, self._single):
                if states is not None:
                    states.close()
            self._shared = self._single = None


class _Pool:
    """The states of one text, as they come."""

    def __init__(self, kind: str, n_embd: int) -> None:
        self._kind = kind
        self._n = 0
        self._state: Vector = np.zeros(n_embd)

    def add(self, rows: FloatArray) -> None:
        if self._kind == "mean":
            self._state += rows.sum(axis=0, dtype=np.float64)
        elif self._kind == "last" or not self._n:
            self._state[:] = rows[-1 if self._kind == "last" else 0]
        self._n += len(rows)

    def vector(self) -> Vector:
        return self._state / self._n if self._kind == "mean" else self._state


def _unit(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0.0 else vector


def _rows_are_independent(model: Model) -> bool:
    """Whether the state at a token has the same bits whatever is evaluated beside it."""
    if model.is_recurrent or model.is_hybrid or model.is_encoder or not kernels.enabled():
        return False
    return not kernels.uncovered(check_gguf(model.path).matrices)
