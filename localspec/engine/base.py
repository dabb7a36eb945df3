"""What the decoding loop needs of an engine. Implemented by `patched.PatchedContext` and `stock.StockContext`.

The engine knows nothing about drafting or acceptance. A *chain* is the committed part of a sequence: tokens whose K/V
rows are in the cache. A *tree* hangs below the end of the chain while it is open; `accept` turns one of its paths into
chain, `drop` discards it. After any error the sequence is a plain chain again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]

#: (tokens, parents, sequence) of the nodes that a decode appends to one tree
Growth = tuple[Sequence[int] | IntArray, Sequence[int] | IntArray, int]

#: called while a prompt is read, often, with the number of tokens done; returns False to stop
Progress = Callable[[int], bool]

MAX_TOP_K = 16

#: the native `llama_token_data`
CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Law(NamedTuple):
    """A distribution over tokens: `ids` int32 [n], each once, and their probabilities `p` float64 [n], sum 1. Tokens
    that are not listed are impossible."""

    ids: IntArray
    p: npt.NDArray[np.float64]


class Rows(Protocol):
    """Results of one `decode`, one row a node in the order given there. Valid until the next `decode`.

    Reductions are computed on demand and without copying the logits matrix.
    """

    def __len__(self) -> int: ...

    def argmax(self, i: int) -> int:
        """Id of the largest logit of row `i`; the smaller id wins a tie."""
        ...

    def top_k(self, i: int, k: int) -> tuple[list[int], list[float]]:
        """Ids and logits of the `k` (<= 16) largest logits of row `i`, largest first, ties by smaller id.

        Lists, as a step looks at few of these numbers.
        """
        ...

    def logsumexp(self, i: int) -> float:
        """Natural log of the sum of exp(logit) over the vocabulary."""
        ...

    def entropy(self, i: int) -> float:
        """Entropy of softmax(logits) in nats."""
        ...

    def logits(self, i: int) -> FloatArray:
        """The whole row, float32 [n_vocab]. A view: copy it to keep it."""
        ...

    def candidates(self, i: int, out: npt.NDArray[np.void]) -> None:
        """Fill `out`, records (id, logit, p) of `CANDIDATE` [n_vocab], from row `i`: ids in order, p 0."""
        ...

    def hidden(self, i: int) -> FloatArray:
        """Hidden state after the final norm, float32 [n_embd] (a copy, possibly read-only)."""
        ...


class TreeContext(Protocol):
    """A llama context whose sequences can hold an open tree. Positions and counts are in tokens."""

    #: tokens that the sequences can hold together, or each of them in a partitioned context
    n_ctx: int
    n_vocab: int
    n_seq_max: int
    #: "patched" or "stock"
    mode: str
    #: most nodes of one tree (root included); 1 when this model cannot hold trees
    max_nodes: int
    #: why `max_nodes` is smaller than 256, for people; None when it is not
    tree_limit_reason: str | None
    #: whether `decode_many` evaluates several sequences in one pass
    one_pass: bool
    #: seconds spent inside the native library since creation
    native_seconds: float

    def n_past(self, seq: int = 0) -> int:
        """Length of the chain of `seq`; nodes of an open tree do not count."""
        ...

    def prefill(self, tokens: Sequence[int], seq: int = 0, progress: Progress | None = None) -> int:
        """Append tokens to the chain and return how many were appended (fewer when `progress` said stop; on the CPU
        this takes effect within a chunk as well, whose tokens are then not appended).

        A model whose state cannot step back may lose its chain then: `n_past` tells.

        Raises `ContextLengthError` when they do not fit.
        """
        ...

    def copy_prefix(self, source: int, seq: int, n: int) -> bool:
        """Make the empty sequence `seq` begin with the first `n` tokens of the chain of `source`, evaluating nothing.
        False, and nothing happened, where this context cannot."""
        ...

    def decode_many(self, growths: Sequence[Growth]) -> Rows:
        """`decode` for several sequences in one forward pass; the rows come in the order given.

        On an error all these trees are dropped. Only where `one_pass` is true.
        """
        ...

    def decode(self, tokens: Sequence[int] | IntArray, parents: Sequence[int] | IntArray, seq: int = 0) -> Rows:
        """Append nodes to the tree of `seq` (opening it if need be) and evaluate them.

        `parents[i]` is the node number of the parent within the whole open tree, -1 for the end of the chain.
        Raises `ContextLengthError` when the cache is full and `EngineError` when the library fails; the tree is
        dropped in both cases.
        """
        ...

    def accept(self, path: Sequence[int], seq: int = 0) -> None:
        """Turn the nodes of `path` (from a child of the chain downwards) into chain and close the tree."""
        ...

    def drop(self, seq: int = 0) -> None:
        """Discard the open tree, if there is one."""
        ...

    def trim(self, n: int, seq: int = 0) -> int:
        """Shorten the chain to its first `n` tokens and return its new length.

        The result is smaller than `n` when the cache no longer holds what a continuation there needs (a sliding
        window that moved on, a recurrent state): the caller prefills from the returned length.
        """
        ...

    def close(self) -> None:
        """Free the native context. Idempotent."""
        ...
