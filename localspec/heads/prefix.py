"""The prefix layer of Hydra++ with NumPy in float32: one Llama decoder layer over the verified hidden states.

Its input is the base model's hidden states in place of embeddings; it has a K/V cache and a final norm of its own
(papers.md 1.3). Only verified positions enter, so nothing in the cache ever needs to be undone but by `trim`.
"""

from __future__ import annotations

import numpy as np

from localspec.errors import UsageError
from localspec.heads.reference import silu
from localspec.heads.spec import FloatArray
from localspec.heads.tensors import Heads

#: rows that are attended at once: the scores of a long prompt would else take gigabytes
MAX_ROWS = 256
_FIRST_CAPACITY = 256


class PrefixLayer:
    """The layer of `heads` and its cache of one text. Raises `UsageError` for heads without one."""

    def __init__(self, heads: Heads) -> None:
        if heads.spec.prefix is None:
            raise UsageError(f"{heads.spec.arch} heads have no prefix layer")
        self.spec = spec = heads.spec.prefix
        self.n_embd = heads.spec.n_embd
        self._w = {
            name.removeprefix("prefix.").removesuffix(".weight"): np.asarray(heads.tensors[name], dtype=np.float32)
            for name in heads.tensors
            if name.startswith("prefix.")
        }
        pairs = np.arange(0, spec.n_rope, 2, dtype=np.float64)
        self._frequencies = spec.rope_theta ** -(pairs / spec.n_rope)
        self._n = 0
        shape = (spec.n_head_kv, _FIRST_CAPACITY, spec.d_head)
        self._k, self._v = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32)

    def __len__(self) -> int:
        return self._n

    def append(self, rows: FloatArray) -> FloatArray:
        """Add the hidden states [n, n_embd] of newly verified positions; returns g for each of them, [n, n_embd].

        Raises `UsageError` for rows of another width.
        """
        rows = np.asarray(rows, dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != self.n_embd:
            raise UsageError(f"hidden states of the shape {list(rows.shape)} do not fit heads of width {self.n_embd}")
        parts = [self._append(rows[i : i + MAX_ROWS]) for i in range(0, len(rows), MAX_ROWS)]
        return np.concatenate(parts) if parts else rows

    def trim(self, n: int) -> None:
        """Keep the first `n` positions, as when the text goes on from an earlier place. Raises `UsageError`."""
        if not 0 <= n <= self._n:
            raise UsageError(f"{n} positions cannot be kept of {self._n}")
        self._n = n

    def _append(self, rows: FloatArray) -> FloatArray:
        w = self._w
        x = rows + self._attention(self._norm(rows, "attn_norm"))
        h = self._norm(x, "ffn_norm")
        x = x + (silu(h @ w["ffn_gate"].T) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T
        return self._norm(x, "output_norm")

    def _norm(self, x: FloatArray, name: str) -> FloatArray:
        scale = 1 / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + np.float32(self.spec.rms_eps))
        return np.asarray(x * scale * self._w[name], dtype=np.float32)

    def _attention(self, x: FloatArray) -> FloatArray:
        """Causal attention of the rows to all positions up to their own; they enter the cache."""
        spec, n, past = self.spec, len(x), self._n
        q = self._rotate(self._heads(x, "attn_q"), past)
        self._reserve(past + n)
        self._k[:, past : past + n] = self._rotate(self._heads(x, "attn_k"), past)
        self._v[:, past : past + n] = self._heads(x, "attn_v")
        self._n = past + n
        k, v = self._k[:, : self._n], self._v[:, : self._n]
        # a K/V head serves as many neighbouring heads
        q = q.reshape(spec.n_head_kv, -1, n, spec.d_head)
        scores = q @ k[:, None].swapaxes(-1, -2) / np.float32(np.sqrt(spec.d_head))
        hidden = np.arange(self._n) > past + np.arange(n)[:, None]
        scores[..., hidden] = -np.inf
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        mixed = (p @ v[:, None]).reshape(spec.n_head, n, spec.d_head)
        return np.asarray(mixed.swapaxes(0, 1).reshape(n, -1) @ self._w["attn_output"].T, dtype=np.float32)

    def _heads(self, x: FloatArray, name: str) -> FloatArray:
        """A projection of the rows, split by head: [n_head, n, d_head]."""
        return (x @ self._w[name].T).reshape(len(x), -1, self.spec.d_head).swapaxes(0, 1)

    def _rotate(self, x: FloatArray, first: int) -> FloatArray:
        """Rotary positions from `first` on: element j is paired with j + n_rope / 2, the rest stays."""
        half = self.spec.n_rope // 2
        angles = np.arange(first, first + x.shape[1])[:, None] * self._frequencies
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)

    def _reserve(self, n: int) -> None:
        """Room for `n` positions, doubled when there is none, so that a row costs amortised constant time."""
        capacity = self._k.shape[1]
        if n <= capacity:
            return
        more = ((0, 0), (0, max(capacity, n - capacity)), (0, 0))
        self._k, self._v = np.pad(self._k, more), np.pad(self._v, more)
