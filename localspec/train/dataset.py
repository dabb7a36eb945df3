"""Training data in memory: runs of consecutive positions, and the tokens that the heads can draft.

Position j of an answer has the hidden state h that token a_j was drawn from. Head i takes h and a_j .. a_{j+i}, and
predicts a_{j+1+i}. What an answer does not have any more is not valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localspec.engine.base import IntArray
from localspec.errors import UsageError
from localspec.train.shards import HalfArray, Shard

#: positions of a run; a batch is made of runs from many answers
RUN = 32


def count_tokens(shards: Sequence[Shard], held_out: Sequence[bool], n_vocab: int) -> npt.NDArray[np.int64]:
    """How often each token occurs in answers to prompts that are not `held_out`, [n_vocab]."""
    counts = np.zeros(n_vocab, dtype=np.int64)
    for shard in shards:
        used = np.repeat(~np.asarray(held_out)[shard.prompts], shard.lengths)
        counts += np.bincount(shard.tokens[used], minlength=n_vocab)
    return counts


def choose_vocabulary(
    counts: npt.NDArray[np.int64], size: int, first_tokens: Iterable[int], by_count: bool = False
) -> IntArray:
    """The `size` tokens that can be drafted, int32: `first_tokens`, such as end tokens, then the most frequent, then
    low ids. They are ascending, or `by_count` the most frequent first.

    Raises `UsageError` when the model has fewer tokens.
    """
    if size > len(counts):
        raise UsageError(
            f"{size} tokens to draft are more than the {len(counts)} of the model", "give a smaller --vocab"
        )
    order = np.argsort(-counts, kind="stable")
    first = np.array(sorted(first_tokens), dtype=np.int64)[:size]
    rest = order[~np.isin(order, first)][: size - len(first)]
    chosen = np.sort(np.concatenate([first, rest])).astype(np.int32)
    return chosen[np.argsort(-counts[chosen], kind="stable")] if by_count else chosen


def rows_of(tokens: IntArray, d2t: IntArray) -> npt.NDArray[np.int64]:
    """The row of each token in `d2t`, which names every token once in any order; -1 where it does not."""
    order = np.argsort(d2t)
    at = order[np.searchsorted(d2t, tokens, sorter=order).clip(max=len(d2t) - 1)]
    return np.where(d2t[at] == tokens, at, -1)


@dataclass(frozen=True)
class Batch:
    """Runs: `hidden` float16 [n_runs, RUN + n_heads, n_embd], `tokens` int32 and `valid` bool [n_runs, RUN + n_heads].

    Beyond an answer's end, rows are zero and not valid.
    """

    hidden: HalfArray
    tokens: IntArray
    valid: npt.NDArray[np.bool_]


class Runs:
    """The runs of RUN positions of all answers to prompts of one kind, held out or not."""

    def __init__(self, shards: Sequence[Shard], held_out: Sequence[bool], want: bool, n_heads: int) -> None:
        self._shards = shards
        self._width = RUN + n_heads
        places = []
        for number, shard in enumerate(shards):
            ends = np.cumsum(shard.lengths)
            for prompt, length, end in zip(shard.prompts, shard.lengths, ends, strict=True):
                # the last token of an answer has none after it to predict
                if held_out[prompt] == want and length > 1:
                    places += [(number, start, end) for start in range(int(end - length), int(end) - 1, RUN)]
        #: shard, first position and end of the answer of each run
        self._places = np.array(places, dtype=np.int64).reshape(-1, 3)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def n_positions(self) -> int:
        """Positions at which at least the first head predicts."""
        return int(np.minimum(self._places[:, 2] - 1 - self._places[:, 1], RUN).sum())

    def batch(self, which: npt.NDArray[np.int64]) -> Batch:
        """The runs with these numbers."""
        n_embd = self._shards[0].hidden.shape[1]
        shape = (len(which), self._width)
        batch = Batch(np.zeros((*shape, n_embd), np.float16), np.zeros(shape, np.int32), np.zeros(shape, np.bool_))
        for row, (number, start, end) in enumerate(self._places[which].tolist()):
            n = min(self._width, end - start)
            shard = self._shards[number]
            batch.hidden[row, :n] = shard.hidden[start : start + n]
            batch.tokens[row, :n] = shard.tokens[start : start + n]
            batch.valid[row, :n] = True
        return batch

    def n_batches(self, size: int) -> int:
        """Batches of `size` runs in an epoch; runs that are left over are used in other epochs."""
        return max(1, len(self) // size)

    def epoch(self, seed: int, epoch: int, size: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, in an order that follows from seed and epoch, from batch `start` on."""
        order = np.random.default_rng([seed, epoch]).permutation(len(self))
        for n in range(start, self.n_batches(size)):
            yield self.batch(order[n * size : (n + 1) * size])

    def all(self, size: int, limit: int) -> Iterator[Batch]:
        """At most `limit` runs in batches, spread over the whole."""
        chosen = np.linspace(0, len(self) - 1, min(limit, len(self))).astype(np.int64)
        for start in range(0, len(chosen), size):
            yield self.batch(chosen[start : start + size])
