"""From batches of runs to the tensors that heads take and are held against."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from localspec.engine.base import FloatArray, IntArray
from localspec.train.base import BaseMatrices
from localspec.train.dataset import RUN, Batch, rows_of
from localspec.train.loss import Targets
from localspec.train.shards import HalfArray

#: inputs that are never larger than its root are left as small as they are
LEAST_SQUARE = 1e-6


class Feeder:
    """Holds the model's matrices, cut to what the data need, on `device` and in the type that is computed in.

    `used` are all tokens that the data hold, ascending, and `d2t` those that can be drafted. `teacher` is the output
    matrix over the latter.
    """

    def __init__(
        self,
        matrices: BaseMatrices,
        used: IntArray,
        d2t: IntArray,
        n_heads: int,
        device: torch.device,
        kind: torch.dtype,
    ) -> None:
        self.n_heads = n_heads
        self.device = device
        self.kind = kind
        self.output: FloatArray = matrices.output_rows(d2t)
        self.teacher = self._tensor(self.output)
        self._embedding = self._tensor(matrices.embeddings(used))
        self._used = used
        #: row of the vocabulary head of each of `used`, -1 for those without
        self._rows = torch.from_numpy(rows_of(used, d2t)).to(device)

    def _tensor(self, values: FloatArray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device, self.kind)

    def feed(self, batch: Batch) -> tuple[Tensor, Targets]:
        """The inputs u [n_runs * RUN, (n_heads + 1) * n_embd] of all heads, and what they should say."""
        hidden = torch.from_numpy(batch.hidden).to(self.device, self.kind)
        # what stands beyond the end of an answer may be no token of the data: it is not valid, whatever it is taken for
        ids = torch.from_numpy(np.searchsorted(self._used, batch.tokens).clip(max=len(self._used) - 1)).to(self.device)
        embedded = self._embedding[ids]
        parts = [hidden[:, :RUN], *(embedded[:, i : i + RUN] for i in range(self.n_heads))]
        u = torch.cat(parts, dim=-1).flatten(0, 1)
        labels, valid = self._rows[ids], torch.from_numpy(batch.valid).to(self.device)
        later = [slice(1 + i, 1 + i + RUN) for i in range(self.n_heads)]
        return u, Targets(
            hidden=hidden[:, 1:].contiguous(),  # products of a strided view are up to twenty times slower
            labels=torch.stack([labels[:, rows] for rows in later]),
            valid=torch.stack([valid[:, rows] for rows in later]),
        )

    def scale(self, hidden: HalfArray) -> Tensor:
        """What makes the inputs of all heads alike in size, float32 [(n_heads + 1) * n_embd]: each element of the
        hidden state by its own mean square over `hidden` [n, n_embd], embeddings by that of all of them."""
        squares = np.square(hidden, dtype=np.float32).mean(axis=0)
        of_hidden = torch.from_numpy(1 / np.sqrt(np.maximum(squares, LEAST_SQUARE)))
        of_embedding = 1 / self._embedding.float().square().mean().clamp(min=LEAST_SQUARE).sqrt()
        scales = [of_hidden.to(self.device), *[of_embedding.expand(len(of_hidden))] * self.n_heads]
        return torch.cat(scales)
