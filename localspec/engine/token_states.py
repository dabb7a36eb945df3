"""The state that a model ends with at each token of a text: what embeddings are made of.

It is read on a context of its own, as one that hands out the states of all tokens cannot hold trees.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np
from llama_cpp import llama_cpp as L

from localspec.engine import logs
from localspec.engine.base import FloatArray
from localspec.engine.host import Batch, create_context
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.errors import EngineError

#: (sequence, position of its first token, tokens)
Piece = tuple[int, int, Sequence[int]]


class TokenStates:
    """`n_seq` sequences of `n_cells` tokens each, of which up to `n_rows` tokens are evaluated in one pass. Threads and
    cache types are those of `params`. Not thread-safe."""

    def __init__(self, model: Model, params: ContextParams, *, n_seq: int, n_cells: int, n_rows: int) -> None:
        self._ctx = create_context(
            model,
            params,
            n_ctx=n_seq * n_cells,
            n_batch=n_rows,
            n_ubatch=n_rows,
            n_seq_max=n_seq,
            n_outputs_max=n_rows,
            kv_unified=False,  # what a text becomes must not depend on the cells of others
            embeddings=True,
        )
        self._free = weakref.finalize(self, L.llama_free, self._ctx)
        self._memory = L.llama_get_memory(self._ctx)
        self._batch = Batch(n_rows, n_rows, 1)
        self.n_cells = n_cells
        self.n_embd = int(L.llama_model_n_embd_out(model.handle))
        model.own(self)

    def clear(self) -> None:
        """Forget all texts."""
        if self._memory:  # an encoder has none
            L.llama_memory_clear(self._memory, False)

    def read(self, pieces: Sequence[Piece]) -> FloatArray:
        """Evaluate the next tokens of some sequences: float32 [n, n_embd], in the order given; a copy.

        Raises `EngineError` when the library fails; all texts are forgotten then.
        """
        tokens = [token for _, _, piece in pieces for token in piece]
        positions = [start + i for _, start, piece in pieces for i in range(len(piece))]
        seqs = [[seq] for seq, _, piece in pieces for _ in piece]
        self._batch.fill_nodes(np.asarray(tokens, dtype=np.int32), positions, seqs)
        mark = logs.n_errors()
        status = L.llama_decode(self._ctx, self._batch.native)
        if status != 0:
            self.clear()
            reason = logs.reason(mark, f"status {status}")
            raise EngineError(f"llama.cpp failed to read {len(tokens)} tokens for an embedding: {reason}")
        return np.ctypeslib.as_array(L.llama_get_embeddings(self._ctx), (len(tokens), self.n_embd)).copy()

    def close(self) -> None:
        """Free the context. Idempotent."""
        self._free()
