"""The drafter of `localspec.methods.ptd.core` in native code (`include/llama-drafter.h` of ggml_patches).

`NativeCore` gives the trees of `PtdCore`, equal to the last bit, in a fraction of its time: see
`benchmarks/drafter_cost.py`.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable, Sequence
from ctypes import addressof, c_double, c_float, c_int32
from functools import cache
from itertools import chain
from struct import Struct
from typing import Any, cast

from localspec.engine import bindings
from localspec.errors import EngineError, UsageError
from localspec.methods.ptd.automaton import SuffixAutomaton
from localspec.methods.ptd.core import MAX_TEXT, PtdCore, PtdPool, Top
from localspec.methods.ptd.evidence import MAX_TRIALS, N_ROW, N_TEXT, PRIOR_WEIGHT, fitted_rate, rival_factors
from localspec.methods.ptd.recycling import DEFAULT_ENTRIES, TOP_K
from localspec.tree import MAX_NODES, Tree

#: upper limits of the memory held, as in llama-drafter.h: bytes of an entry of a full pool, and of a token of text
BYTES_AN_ENTRY = 72
BYTES_A_TOKEN = 200

#: tokens of a corpus in Python, where they take a kilobyte and 15 microseconds each
MAX_PYTHON_CORPUS = 16_384

#: integers of a step: tokens, parents, path, written tokens, numbers of best tokens, best tokens
_CAPACITY = MAX_NODES * (3 + TOP_K + 2) + 1


def available() -> bool:
    """Whether the installed llama-cpp-python has the native drafter."""
    return bindings.library() is not None


def _library() -> Any:
    lib = bindings.library()
    if lib is None:
        raise EngineError("this llama-cpp-python lacks localspec's patches", "pip install ./ggml_patches")
    return lib


@cache
def _ints(n: int) -> Callable[..., None]:
    """Writes `n` int32 to a buffer: (buffer, offset in bytes, *values)."""
    return Struct(f"{n}i").pack_into


@cache
def _floats(n: int) -> Callable[..., None]:
    """Writes `n` float32 to a buffer: (buffer, offset in bytes, *values)."""
    return Struct(f"{n}f").pack_into


def _check(status: int) -> None:
    if status == bindings.FAILED:
        raise EngineError("no memory is left for the drafter", "its text is forgotten; make its pool smaller")
    if status < 0:
        raise UsageError("the drafter was given something else than a verified tree, or asked for one without a text")


def new_corpus(tokens: Sequence[int]) -> Corpus:
    """A corpus of these tokens, native where that is possible; in Python of their first `MAX_PYTHON_CORPUS`."""
    return NativeCorpus(tokens) if available() else SuffixAutomaton(tokens[:MAX_PYTHON_CORPUS])


def new_pool(max_entries: int = DEFAULT_ENTRIES, corpus: Corpus | None = None) -> Pool:
    """A pool of at most `max_entries` contexts, native where that is possible. Give it a corpus of `new_corpus`."""
    if isinstance(corpus, SuffixAutomaton) or not available():
        return PtdPool(max_entries, cast("SuffixAutomaton | None", corpus))
    return NativePool(max_entries, corpus)


def new_core(pool: Pool, width: int | None = None) -> PtdCore | NativeCore:
    """A core on `pool`, of the same kind."""
    return PtdCore(pool, width) if isinstance(pool, PtdPool) else NativeCore(pool, width)


class NativeCorpus:
    """Text that tells how language usually goes on: nobody's own, so any number of pools may share it.

    Raises `EngineError` without the patched library or memory.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._lib = lib = _library()
        values = array("i", tokens)
        address, n = values.buffer_info()
        self.handle = lib.llama_drafter_corpus_init(address, n)
        if not self.handle:
            raise EngineError("no memory is left for the drafter's corpus")
        weakref.finalize(self, lib.llama_drafter_corpus_free, self.handle)

    @property
    def n_bytes(self) -> int:
        """Bytes of memory that it holds."""
        return int(self._lib.llama_drafter_corpus_n_bytes(self.handle))


class NativePool:
    """What outlives one text, as `PtdPool`: at most `max_entries` contexts with their successors, and learned rates.

    Its cores must not be used by two threads at a time. Raises `EngineError` without the patched library or memory.
    """

    def __init__(self, max_entries: int = DEFAULT_ENTRIES, corpus: NativeCorpus | None = None) -> None:
        self.corpus = corpus  # lives as long as this
        #: how often it was cleared
        self.n_clears = 0
        self._lib = lib = _library()
        rates = array("d", [fitted_rate(text, row) for text in range(N_TEXT) for row in range(N_ROW)])
        factors = array("d", rival_factors())
        known = None if corpus is None else corpus.handle
        self.handle = lib.llama_drafter_pool_init(
            known, max_entries, *rates.buffer_info(), *factors.buffer_info(), PRIOR_WEIGHT, MAX_TRIALS
        )
        if not self.handle:
            raise EngineError("the native drafter knows other kinds of evidence, or no memory is left for its pool")
        weakref.finalize(self, lib.llama_drafter_pool_free, self.handle)

    def __len__(self) -> int:
        """Contexts kept; one that was renewed lately may count twice."""
        return int(self._lib.llama_drafter_pool_size(self.handle))

    @property
    def n_bytes(self) -> int:
        """Bytes of memory that it holds, without the corpus."""
        return int(self._lib.llama_drafter_pool_n_bytes(self.handle))

    def clear(self) -> None:
        """Forget everything; the corpus stays."""
        self.n_clears += 1
        self._lib.llama_drafter_pool_clear(self.handle)


class NativeCore:
    """One text and its pool, as `PtdCore`. `width` limits the children of a node: 1 makes chains.

    Of a text of more than `max_text` tokens the latest half of that is kept. Tokens are int32. Not thread-safe.
    Raises `EngineError` when memory runs out; the text is forgotten then.
    """

    def __init__(self, pool: NativePool, width: int | None = None, max_text: int = MAX_TEXT) -> None:
        if (width is not None and width < 1) or max_text < 1:
            raise UsageError(f"a node has at least one child and a text one token: {width} and {max_text} given")
        self.pool = pool
        self._lib = lib = _library()
        self._handle = lib.llama_drafter_init(pool.handle, width or 0, max_text)
        if not self._handle:
            raise EngineError("no memory is left for the drafter")
        weakref.finalize(self, lib.llama_drafter_free, self._handle)
        # plain addresses of fixed buffers are the cheapest arguments that ctypes can pass
        self._parents, self._tokens = (c_int32 * MAX_NODES)(), (c_int32 * MAX_NODES)()
        self._p = (c_double * MAX_NODES)()
        self._results = addressof(self._parents), addressof(self._tokens), addressof(self._p)
        self._step, self._logits = (c_int32 * _CAPACITY)(), (c_float * (MAX_NODES * TOP_K))()
        self._step_address, self._logits_address = addressof(self._step), addressof(self._logits)
        self._full_rows = (c_int32 * MAX_NODES)(*[TOP_K] * MAX_NODES)
        self._full_rows_address = addressof(self._full_rows)

    @property
    def n_text(self) -> int:
        """Tokens of text that are held."""
        return int(self._lib.llama_drafter_n_text(self._handle))

    @property
    def n_bytes(self) -> int:
        """Bytes of memory that it holds, without the pool."""
        return int(self._lib.llama_drafter_n_bytes(self._handle))

    def reset(self) -> None:
        """Forget the text, not the pool."""
        self._lib.llama_drafter_reset(self._handle)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens that the model did not write."""
        values = array("i", tokens)
        address, n = values.buffer_info()
        _check(self._lib.llama_drafter_extend(self._handle, address, n))

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        """The `max_nodes` most likely nodes, the root included; fewer when not as many are likely enough.

        Raises `UsageError` for an empty text, or when `max_nodes` is not 1 to `MAX_NODES`.
        """
        if not 1 <= max_nodes <= MAX_NODES:
            raise UsageError(f"a tree has 1 to {MAX_NODES} nodes, not {max_nodes}")
        n = self._lib.llama_drafter_propose(self._handle, max_nodes, least_p, *self._results)
        if n < 0:
            _check(n)
        return Tree.of(self._parents[:n], self._tokens[:n], self._p[:n])

    def learn(self, tree: Tree, tops: Sequence[Top], path: Sequence[int], written: Sequence[int]) -> None:
        """Take in a verified step: the tree, what the model thought at each of its nodes, and what it wrote.

        `tops` are ids and logits (float32) of up to `TOP_K` best tokens of each node, the best first, or empty. `path`
        are the nodes below the root that were accepted, `written` their tokens and the bonus token: at least one
        token, at most one more than `path` has. Raises `UsageError`, and learns nothing, when they are something else.
        """
        n_top = [len(ids) for ids, _ in tops]
        ids = list(chain.from_iterable([ids for ids, _ in tops]))
        logits = list(chain.from_iterable([logits for _, logits in tops]))
        n_ids = len(ids)
        if len(n_top) != len(tree) or len(logits) != n_ids or max(n_top) > TOP_K or len(tree) > MAX_NODES:
            raise UsageError(f"{len(tree)} nodes need as many rows of up to {TOP_K} tokens with their logits")
        _floats(n_ids)(self._logits, 0, *logits)
        self._learn(tree, self._logits_address, path, written, n_top, ids)

    def learn_rows(
        self, tree: Tree, ids_address: int, logits_address: int, path: Sequence[int], written: Sequence[int]
    ) -> None:
        """`learn` from what `llama_tree_stats` has written: the cheapest way.

        The addresses are of int32 and float32, shape [n_nodes, TOP_K] both, the best of each row first.
        """
        self._learn(tree, logits_address, path, written, ids_address=ids_address)

    def _learn(
        self,
        tree: Tree,
        logits_address: int,
        path: Sequence[int],
        written: Sequence[int],
        n_top: Sequence[int] = (),
        ids: Sequence[int] = (),
        ids_address: int | None = None,
    ) -> None:
        n, n_path, n_written = len(tree), len(path), len(written)
        if n > MAX_NODES or n_path >= n or n_written > n_path + 1:
            raise UsageError(f"a step of {n} nodes, {n_path} of them accepted and {n_written} written tokens")
        total = 2 * n + n_path + n_written + len(n_top) + len(ids)
        _ints(total)(self._step, 0, *tree.tokens, *tree.topology.parents, *path, *written, *n_top, *ids)
        tokens_at = self._step_address
        parents_at = tokens_at + 4 * n
        path_at = parents_at + 4 * n
        written_at = path_at + 4 * n_path
        n_top_at = written_at + 4 * n_written
        ids_at = n_top_at + 4 * n
        if ids_address is not None:
            n_top_at, ids_at = self._full_rows_address, ids_address
        arrays = tokens_at, parents_at, n_top_at, ids_at, logits_address, path_at
        status = self._lib.llama_drafter_learn(self._handle, n, *arrays, n_path, written_at, n_written)
        if status:
            _check(status)


#: what outlives a text, of either kind
Pool = PtdPool | NativePool
#: text that is nobody's, of either kind
Corpus = SuffixAutomaton | NativeCorpus
