"""Draft heads evaluated with NumPy in float32: what native kernels are held against, and the way of stock mode.

The first block of a grounded head is linear in its inputs before the activation, so
L[g; e1 .. ek] = L_g g + L_1 e1 + ... + L_k ek (papers.md 1.4). L_g g is computed once a step, every node carries the
sums of its path for all deeper heads, and a child adds the products with its own embedding alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from localspec.errors import UsageError
from localspec.heads.draws import SampledDraft, draw, softened
from localspec.heads.spec import FloatArray, HeadSpec, IntArray
from localspec.heads.tensors import Heads, check_d2t, check_shapes
from localspec.static_tree import Level, StaticTree

#: the base model's input embeddings: a table [n_vocab, n_embd], or a look-up of ids [n] that returns [n, n_embd]
Embedding = FloatArray | Callable[[IntArray], FloatArray]
#: siblings, and the rows of the vocabulary heads that they get
Picks = Iterable[tuple[Sequence[int], IntArray]]


@dataclass(frozen=True)
class HeadDraft:
    """A drafted tree, one entry a node: `tokens`, and `q`, a token's probability under its head (softmax over the
    tokens that can be drafted); the root's is 1.

    `top1` has the largest probability of each head along the path of most likely tokens, as far as the tree goes on
    below it. `n_levels` is the depth that was drafted: deeper nodes have the token -1 and q 0, and their top1 is 0.
    """

    tokens: IntArray
    q: FloatArray
    top1: tuple[float, ...]
    n_levels: int


class ReferenceHeads:
    """Heads of one file, ready to draft. `embed` gives the base model's input embeddings.

    Raises `ModelError` for tensors that do not fit the spec, and `UsageError` for a table of another shape.
    """

    def __init__(self, heads: Heads, embed: Embedding) -> None:
        spec = heads.spec
        tensors = {name: np.asarray(heads.tensors[name], dtype=np.float32) for name in heads.tensors}
        check_shapes(spec, {name: tensor.shape for name, tensor in tensors.items()}, "the heads")
        check_d2t(spec, heads.d2t, "the heads")
        if isinstance(embed, np.ndarray) and embed.shape != (spec.n_vocab, spec.n_embd):
            raise UsageError(
                f"the embeddings have the shape {list(embed.shape)}, not {[spec.n_vocab, spec.n_embd]}",
                "give the table of the base model that the heads were made for",
            )
        self.spec = spec
        self.depth = spec.n_heads
        self._tensors = tensors
        self._d2t = heads.d2t
        self._embed = embed
        if spec.grounded:
            self._slots = [_slot(spec, tensors, slot) for slot in range(spec.n_heads + 1)]
            biases = [tensors[f"head.{i}.blk.0.{part}.bias"] for i in range(spec.n_heads) for part in "lr"]
            self._biases = np.concatenate(biases)
            for head in range(spec.n_heads):  # the slots hold these weights in another order
                for part in "lr":
                    del tensors[f"head.{head}.blk.0.{part}.weight"]

    @property
    def ids(self) -> IntArray:
        """The token that each row of the vocabulary heads stands for, int32 [n_rows]."""
        return np.arange(self.spec.n_vocab, dtype=np.int32) if self._d2t is None else self._d2t

    @cached_property
    def rows(self) -> IntArray:
        """The row of each token in the vocabulary heads, int32 [n_vocab]; -1 for a token that cannot be drafted."""
        rows = np.full(self.spec.n_vocab, -1, dtype=np.int32)
        rows[self.ids] = np.arange(len(self.ids), dtype=np.int32)
        return rows

    def draft(self, g: FloatArray, root: int, tree: StaticTree, least_p: float = 0.0) -> HeadDraft:
        """Draft a tree below the token `root`, with one batched product a depth.

        A level is left out, and all below it, when no node that it hangs below has a p of `least_p`, the product of q
        along its path; the first never is.

        `g` is the base model's last hidden state [n_embd], after its final norm, where it predicted `root`; behind a
        prefix layer it is that layer's output. Raises `UsageError` for inputs that do not fit the heads.
        """
        ranks, top1, n_levels = tree.ranks, [0.0] * sum(level.greedy is not None for level in tree.levels), 0
        q, path_p = np.zeros((2, tree.n_nodes), dtype=np.float32)
        q[0] = path_p[0] = 1

        def pick(level: Level, logits: FloatArray, rows: Sequence[int]) -> Picks:
            nonlocal n_levels
            p = _softmax(logits)
            if level.greedy is not None:
                top1[n_levels] = float(p[rows[level.greedy]].max())
            n_levels += 1
            for row, node, width in zip(rows, level.parents, level.widths, strict=True):
                children = list(tree.topology.children[node])
                best = _best(logits[row], width)[[ranks[child] for child in children]]
                q[children] = p[row, best]
                path_p[children] = path_p[node] * q[children]
                yield children, best

        def wanted(level: Level) -> bool:
            return least_p <= 0 or bool(path_p[list(level.parents)].max() >= np.float32(least_p))

        tokens = self._fill(g, root, tree, pick, wanted)
        return HeadDraft(tokens, q, tuple(top1), n_levels)

    def draft_sampled(
        self, g: FloatArray, root: int, tree: StaticTree, temperature: float, rng: np.random.Generator
    ) -> SampledDraft:
        """The same tree, but a node's children are drawn from softmax(logits / temperature) without replacement.

        A child's rank is its place in the order of the draws; ranks that are left out are not drawn. Raises as `draft`.
        """
        children, laws = tree.topology.children, {}

        def pick(level: Level, logits: FloatArray, rows: Sequence[int]) -> Picks:
            softmax = softened(logits, temperature)
            for row, node in zip(rows, level.parents, strict=True):
                law = softmax[row]
                laws[node] = np.pad(law, (0, self.spec.n_rows - len(law)))  # tokens of later rows are not drawn
                yield children[node], draw(law, len(children[node]), rng)

        return SampledDraft(self._fill(g, root, tree, pick), children, laws, self.rows)

    def _fill(
        self,
        g: FloatArray,
        root: int,
        tree: StaticTree,
        pick: Callable[[Level, FloatArray, Sequence[int]], Picks],
        wanted: Callable[[Level], bool] = lambda level: True,
    ) -> IntArray:
        """The token of each node, -1 below the first level (but the root's) that is not `wanted`. `pick` gets a level,
        logits, and which row of them belongs to each of its nodes."""
        spec = self.spec
        check_tree(spec, tree)
        g = checked_state(spec, g, root)
        tokens = np.full(tree.n_nodes, -1, dtype=np.int32)
        tokens[0] = root
        sums = self._first_sums(g)
        for head, level in enumerate(tree.levels):
            if head > 0 and not wanted(level):
                break
            if spec.grounded:
                # the sums of the nodes above, but for the head that these have answered
                sums = sums[list(level.above), min(head, 1) :] + self._products(head + 1, tokens[list(level.parents)])
            logits = self._logits(head, self._first_block(sums[:, 0]) if spec.grounded else g)
            rows = range(len(level.parents)) if spec.grounded else [0] * len(level.parents)
            for children, picked in pick(level, logits, rows):
                tokens[list(children)] = picked if self._d2t is None else self._d2t[picked]
        return tokens

    def greedy(self, g: FloatArray, root: int, depth: int | None = None) -> HeadDraft:
        """The chain of the most likely tokens, by default as deep as there are heads; see `draft`."""
        return self.draft(g, root, StaticTree.greedy(self.spec.n_heads if depth is None else depth))

    def logits(self, head: int, g: FloatArray, tokens: Sequence[Sequence[int]] | IntArray) -> FloatArray:
        """Logits [n, n_rows_of(head)] of a head for `n` paths: hidden states `g` [n, n_embd], and each path's tokens
        from the root on, [n, head + 1]. Heads that are not grounded do not look at the tokens.

        Raises `UsageError` for inputs that do not fit the heads.
        """
        spec = self.spec
        if not 0 <= head < spec.n_heads:
            raise UsageError(f"there is no head {head}: the heads are 0 to {spec.n_heads - 1}")
        g = _rows(g, spec.n_embd)
        if not spec.grounded:
            return self._logits(head, g)
        paths = np.asarray(tokens, dtype=np.int32)
        if paths.shape != (len(g), head + 1):
            raise UsageError(f"paths of the shape {list(paths.shape)} do not fit head {head}: [{len(g)}, {head + 1}]")
        sums = self._first_sums(g)[:, head]
        for depth in range(head + 1):
            sums = sums + self._products(depth + 1, paths[:, depth])[:, head - depth]
        return self._logits(head, self._first_block(sums))

    def _first_sums(self, g: FloatArray) -> FloatArray:
        """What hidden states [n, n_embd] and biases add to L u and R u of every head: [n, n_heads, 2, n_embd].

        Heads that are not grounded have no such sums: `g` itself.
        """
        if not self.spec.grounded:
            return g
        return (g @ self._slots[0].T + self._biases).reshape(len(g), self.spec.n_heads, 2, -1)

    def _products(self, slot: int, tokens: IntArray) -> FloatArray:
        """What tokens at depth slot - 1 add to L u and R u of the heads from slot - 1 on: [n, n_later, 2, n_embd]."""
        outside = np.flatnonzero((tokens < 0) | (tokens >= self.spec.n_vocab))
        if len(outside):
            raise UsageError(f"the token {tokens[outside[0]]} is outside the vocabulary of {self.spec.n_vocab}")
        embed = self._embed
        rows = embed[tokens] if isinstance(embed, np.ndarray) else embed(tokens)
        rows = _rows(rows, self.spec.n_embd)
        return (rows @ self._slots[slot].T).reshape(len(tokens), self.spec.n_heads - slot + 1, 2, -1)

    def _first_block(self, sums: FloatArray) -> FloatArray:
        """y = R u + SiLU(L u) from the sums [n, 2, n_embd]."""
        return sums[:, 1] + silu(sums[:, 0])

    def _logits(self, head: int, x: FloatArray) -> FloatArray:
        """The blocks of a head that are left, and its vocabulary head: [n, n_embd] -> [n, n_rows_of(head)]."""
        spec, tensors = self.spec, self._tensors
        n_rows = spec.n_rows_of(head)
        for block in range(1 if spec.grounded else 0, spec.n_layers):
            name = f"head.{head}.blk.{spec.stored_block(block)}.l"
            x = x + silu(x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"])
        output = spec.output_name(head)
        logits = x @ tensors[f"{output}.weight"][:n_rows].T
        if spec.output_bias:
            logits += tensors[f"{output}.bias"][:n_rows]
        return logits


def check_tree(spec: HeadSpec, tree: StaticTree) -> None:
    """Refuse a tree that the heads cannot draft. Raises `UsageError`."""
    if tree.depth > spec.n_heads:
        raise UsageError(f"a tree of depth {tree.depth} is too deep for {spec.n_heads} heads")
    for head, level in enumerate(tree.levels):
        if (width := max(level.widths)) > (n_rows := spec.n_rows_of(head)):
            raise UsageError(f"rank {width - 1} is asked of a head that knows {n_rows} tokens")


def checked_state(spec: HeadSpec, g: FloatArray, root: int) -> FloatArray:
    """The hidden state that a tree below the token `root` grows from, float32 [1, n_embd]. Raises `UsageError`."""
    if not 0 <= root < spec.n_vocab:
        raise UsageError(f"the token {root} is outside the vocabulary of {spec.n_vocab}")
    g = _rows(g, spec.n_embd)
    if len(g) != 1:
        raise UsageError(f"{len(g)} hidden states are given, but a tree grows from one")
    return g


def _best(logits: FloatArray, n: int) -> IntArray:
    """The `n` largest of a row, the largest first, the lower index among equals."""
    least = np.partition(logits, len(logits) - n)[len(logits) - n]
    found = np.flatnonzero(logits >= least)
    return found[np.argsort(-logits[found], kind="stable")[:n]].astype(np.int32)


def _slot(spec: HeadSpec, tensors: dict[str, FloatArray], slot: int) -> FloatArray:
    """The columns of L and R, of all heads that have it, that belong to one input: [n_later * 2 * n_embd, n_embd]."""
    n = spec.n_embd
    columns = slice(slot * n, (slot + 1) * n)
    later = range(max(0, slot - 1), spec.n_heads)
    return np.concatenate([tensors[f"head.{i}.blk.0.{part}.weight"][:, columns] for i in later for part in "lr"])


def _rows(values: FloatArray, n_embd: int) -> FloatArray:
    """Vectors as float32 [n, n_embd]. Raises `UsageError`."""
    rows = np.atleast_2d(np.asarray(values, dtype=np.float32))
    if rows.ndim != 2 or rows.shape[1] != n_embd:
        raise UsageError(f"vectors of the shape {list(np.shape(values))} do not fit heads of width {n_embd}")
    return rows


def silu(x: FloatArray) -> FloatArray:
    """x / (1 + e^-x), elementwise."""
    # e^-x may overflow to infinity, and the quotient is 0 then, as it should be
    with np.errstate(over="ignore"):
        y: FloatArray = x / (1 + np.exp(-x))
    return y


def _softmax(logits: FloatArray) -> FloatArray:
    p: FloatArray = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p
