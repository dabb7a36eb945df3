"""A toy engine: the contract of `TreeContext` in pure Python, strict about every violation.

The logits of a node are a fixed function of its whole token path, so a wrong path, ancestor or accepted row changes
what is generated. The last two tokens decide most of it, so greedy text soon repeats itself and drafts come true.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import numpy as np

from localspec.engine.base import MAX_TOP_K, Progress
from localspec.errors import ContextLengthError, EngineError
from localspec.events import DoneEvent, Event, StepEvent
from localspec.methods.base import Method, Walk
from localspec.methods.fixed import Fixed
from localspec.methods.strict import StrictVerifier
from localspec.tree import Tree, TreeBuilder

EOG = 0
_MASK = (1 << 64) - 1


def _fold(state: int, token: int) -> int:
    state = (state ^ (token + 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9 & _MASK
    return state ^ (state >> 31)


def _uniform(seed: int, n: int) -> np.ndarray:
    """n numbers in [0, 1), a function of `seed` alone."""
    with np.errstate(over="ignore"):
        x = (np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(seed)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)) / 2.0**53


@lru_cache(maxsize=1 << 16)
def _logits(state: int, before: int, last: int, n_vocab: int, memory: int) -> np.ndarray:
    logits = 8 * _uniform(_fold(_fold(7, before if memory > 1 else 0), last), n_vocab)
    if memory > 2:
        logits += 0.5 * _uniform(state, n_vocab)
    logits = logits.astype(np.float32)
    logits.setflags(write=False)
    return logits


class ToyRows:
    """Rows that refuse to be read after the next decode."""

    def __init__(self, ctx: ToyContext, rows: list[np.ndarray]) -> None:
        self._ctx, self._epoch, self._rows = ctx, ctx.n_decodes, rows

    def __len__(self) -> int:
        return len(self._rows)

    def logits(self, i: int) -> np.ndarray:
        if self._epoch != self._ctx.n_decodes:
            raise AssertionError("rows were read after the next decode")
        if not 0 <= i < len(self._rows):
            raise AssertionError(f"row {i} of {len(self._rows)}")
        return self._rows[i]

    def argmax(self, i: int) -> int:
        return int(self.logits(i).argmax())

    def top_k(self, i: int, k: int) -> tuple[list[int], list[float]]:
        assert k <= MAX_TOP_K
        row = self.logits(i)
        ids = np.argsort(-row, kind="stable")[:k]
        return ids.tolist(), row[ids].tolist()

    def logsumexp(self, i: int) -> float:
        return float(np.log(np.exp(self.logits(i).astype(np.float64)).sum()))

    def entropy(self, i: int) -> float:
        row = self.logits(i).astype(np.float64) - self.logsumexp(i)
        return float(-(np.exp(row) * row).sum())

    def hidden(self, i: int) -> np.ndarray:
        raise AssertionError("the toy has no hidden states")


class ToyContext:
    """`fail_decode`, `fail_accept`, `fail_prefill`: raise `EngineError` at the k-th such call (from 1).

    `memory` is how many of the last tokens decide the logits: 1, 2, or 3 for the whole path. `trim_to` maps the wanted
    length of a trim to what is left.
    """

    mode = "toy"
    n_seq_max = 1
    one_pass = False
    tree_limit_reason = None

    def __init__(
        self,
        n_ctx: int = 256,
        n_vocab: int = 32,
        max_nodes: int = 256,
        *,
        memory: int = 3,
        chunk: int = 8,
        eog_bias: float = -100.0,
        force: dict[tuple[int, ...], int] | None = None,
        trim_to: Callable[[int], int] = lambda n: n,
        fail_decode: int = 0,
        fail_accept: int = 0,
        fail_prefill: int = 0,
    ) -> None:
        self.n_ctx, self.n_vocab, self.max_nodes = n_ctx, n_vocab, max_nodes
        self.native_seconds = 0.0
        self.chain: list[int] = []
        self.n_decodes = self.n_accepts = self.n_prefills = 0
        self.trees: list[int] = []
        self.prefilled: list[int] = []
        self._states: list[int] = []
        self._nodes: list[tuple[int, int, int, int]] = []  # (parent, token, state, token before)
        self._memory, self._chunk, self._eog_bias, self._force = memory, chunk, eog_bias, force or {}
        self._trim_to = trim_to
        self._fail = {"decode": fail_decode, "accept": fail_accept, "prefill": fail_prefill}

    def n_past(self, seq: int = 0) -> int:
        assert seq == 0
        return len(self.chain)

    def _push(self, token: int) -> None:
        self._states.append(_fold(self._states[-1] if self._states else 1, token))
        self.chain.append(token)

    def _no_tree(self, what: str) -> None:
        if self._nodes:
            raise AssertionError(f"{what} while a tree is open")

    def prefill(self, tokens: Sequence[int], seq: int = 0, progress: Progress | None = None) -> int:
        self._no_tree("prefill")
        self.n_prefills += 1
        if len(self.chain) + len(tokens) > self.n_ctx:
            raise ContextLengthError("prefill overflows")
        done = 0
        while done < len(tokens):
            if done and progress is not None and not progress(done):
                break
            part = tokens[done : done + self._chunk]
            for token in part:
                self._push(token)
            done += len(part)
            if self._fail["prefill"] == self.n_prefills:
                raise EngineError("prefill failed")
        self.prefilled.append(done)
        return done

    def decode(self, tokens: Sequence[int], parents: Sequence[int], seq: int = 0) -> ToyRows:
        self.n_decodes += 1
        tokens, parents = [int(t) for t in tokens], [int(p) for p in parents]
        n = len(self._nodes) + len(tokens)
        if len(self.chain) + n > self.n_ctx:
            self._nodes = []
            raise ContextLengthError("decode overflows")
        if not tokens or len(tokens) != len(parents) or n > self.max_nodes:
            raise AssertionError(f"{len(tokens)} tokens, {len(parents)} parents, {n} nodes")
        if self._fail["decode"] == self.n_decodes:
            self._nodes = []
            raise EngineError("decode failed")
        rows = []
        for token, parent in zip(tokens, parents, strict=True):
            if not -1 <= parent < len(self._nodes) or not 0 <= token < self.n_vocab:
                raise AssertionError(f"node {len(self._nodes)}: parent {parent}, token {token}")
            if parent >= 0:
                _, before, state, _ = self._nodes[parent]
            else:
                before, state = (self.chain[-1], self._states[-1]) if self.chain else (0, 1)
            state = _fold(state, token)
            self._nodes.append((parent, token, state, before))
            rows.append(self._row(len(self._nodes) - 1))
        self.trees.append(n)
        self.native_seconds += 1e-3
        return ToyRows(self, rows)

    def _row(self, node: int) -> np.ndarray:
        _, token, state, before = self._nodes[node]
        row = _logits(state, before, token, self.n_vocab, self._memory)
        row = row + np.where(np.arange(self.n_vocab) == EOG, self._eog_bias, 0.0).astype(np.float32)
        if self._force:
            path: list[int] = []
            while node >= 0:
                node, token = self._nodes[node][:2]
                path.append(token)
            whole = (*self.chain, *reversed(path))
            if whole in self._force:
                row[self._force[whole]] = 100.0
        return row

    def accept(self, path: Sequence[int], seq: int = 0) -> None:
        self.n_accepts += 1
        if self._fail["accept"] == self.n_accepts:
            self._nodes = []
            raise EngineError("accept failed")
        parent = -1
        for node in path:
            if self._nodes[node][0] != parent:
                raise AssertionError(f"{list(path)} is no path")
            parent = node
        tokens = [self._nodes[node][1] for node in path]
        self._nodes = []
        for token in tokens:
            self._push(token)

    def drop(self, seq: int = 0) -> None:
        self._nodes = []

    def trim(self, n: int, seq: int = 0) -> int:
        self._no_tree("trim")
        if not 0 <= n <= len(self.chain):
            raise AssertionError(f"trim to {n} of {len(self.chain)}")
        n = min(n, self._trim_to(n))
        del self.chain[n:], self._states[n:]
        return n

    def close(self) -> None:
        self.drop()


#: pieces that split an emoji, Thai and a joined family over tokens, beside plain letters
PIECES = [b"", *[bytes([c]) for c in b"abcdefghijklmnop"], b" ", b"\n", "é".encode(), b"\xf0\x9f", b"\x98\x80"]
PIECES += [b"\xe0\xb8", b"\x81\xe0", b"\xb8\x81", "👩‍👩‍👧".encode()[:5], "👩‍👩‍👧".encode()[5:]]
PIECES += [b"\xff", b"ab", b"bc", b"the", b"."]


class ToyVocab:
    """32 tokens; 0 ends a generation."""

    def __init__(self, eog: Iterable[int] = (EOG,), pieces: Sequence[bytes] = PIECES) -> None:
        self.eog = frozenset(eog)
        self._pieces = pieces

    def piece(self, token: int) -> bytes:
        return self._pieces[token]


class ToySampler:
    """Greedy at temperature 0, else seeded softmax; a penalty on recent tokens makes the history matter.

    `banned` tokens are never emitted.
    """

    def __init__(
        self, temperature: float = 0.0, seed: int = 0, penalty: float = 0.0, banned: Iterable[int] = ()
    ) -> None:
        self._temperature, self._penalty, self._banned = temperature, penalty, list(banned)
        self._rng = np.random.default_rng(seed)
        self.history: list[int] = []
        self.native_seconds = 0.0
        self.n_draws = 0

    def sample(self, rows: ToyRows, i: int) -> int:
        self.n_draws += 1
        logits = rows.logits(i).astype(np.float64)
        for token in self.history[-4:]:
            logits[token] -= self._penalty
        logits[self._banned] = -np.inf
        if self._temperature == 0:
            return int(logits.argmax())
        p = np.exp((logits - logits.max()) / self._temperature)
        return min(int(np.searchsorted(np.cumsum(p / p.sum()), self._rng.random(), side="right")), len(p) - 1)

    def accept(self, token: int) -> None:
        self.history.append(token)

    def allows(self, rows: ToyRows, i: int, token: int) -> bool:
        return token not in self._banned

    def fork(self) -> ToySampler:
        return copy.deepcopy(self)

    def adopt(self, fork: ToySampler) -> None:
        self.__dict__ = fork.__dict__


class Scripted:
    """A drafter that follows a rule: `grow(text, builder, max_nodes)` adds nodes below the root."""

    def __init__(self, grow: Callable[[list[int], TreeBuilder, int], None]) -> None:
        self._grow = grow
        self.text: list[int] = []

    def start(self, prompt: Sequence[int]) -> None:
        self.text = list(prompt)

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        builder = TreeBuilder(self.text[-1])
        self._grow(self.text, builder, max_nodes)
        return builder.build()

    def observe(self, tree: Tree, rows: ToyRows, walk: Walk) -> None:
        assert tree.tokens[0] == self.text[-1]
        self.text.extend(walk.tokens)


def random_drafter(seed: int, known: Sequence[int] = (), n_vocab: int = 32, hit: float = 0.7) -> Scripted:
    """Random trees. Where the text follows `known`, the right continuation hides among the nodes with chance `hit`."""
    rng = np.random.default_rng(seed)

    def grow(text: list[int], builder: TreeBuilder, max_nodes: int) -> None:
        right = list(known[len(text) :]) if list(known[: len(text)]) == text else []
        spine = 0
        for _ in range(int(rng.integers(0, max_nodes))):
            if right and rng.random() < hit:
                spine = builder.add(spine, right.pop(0), 0.9)
            else:
                builder.add(int(rng.integers(len(builder))), int(rng.integers(n_vocab)), 0.5)

    return Scripted(grow)


def chain_drafter(known: Sequence[int], depth: int = 8) -> Scripted:
    """Drafts what comes next in `known`, whatever the text really is: a chain of up to `depth` tokens."""

    def grow(text: list[int], builder: TreeBuilder, max_nodes: int) -> None:
        draft = known[len(text) : len(text) + min(depth, max_nodes - 1)]
        builder.add_path(0, draft, [0.9] * len(draft))

    return Scripted(grow)


def method_of(drafter: Scripted, n: int = 16) -> Method:
    return Method("scripted", drafter, Fixed(n), StrictVerifier())


def collect(events: Iterable[Event]) -> tuple[list[int], str, DoneEvent]:
    """(tokens, text, end) of a finished generation."""
    tokens: list[int] = []
    text = ""
    done = None
    for event in events:
        assert done is None, "an event after the end"
        if isinstance(event, StepEvent):
            tokens += event.tokens
            text += event.text
        elif isinstance(event, DoneEvent):
            done = event
            text += event.text
    assert done is not None
    return tokens, text, done
