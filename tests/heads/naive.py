"""Heads and prefix layer written down again as the papers describe them: concatenation, loops, no cache, float64."""

from __future__ import annotations

import numpy as np

from localspec.heads.tensors import Heads


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def logits(heads: Heads, head: int, g: np.ndarray, embeddings: list[np.ndarray]) -> np.ndarray:
    """Logits of a head for one path; `embeddings` are those of the root and the tokens below it."""
    spec = heads.spec

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        y = heads.tensors[f"{name}.weight"].astype(np.float64) @ x
        bias = heads.tensors.get(f"{name}.bias")
        return y if bias is None else y + bias

    x = np.concatenate([g, *embeddings]) if spec.grounded else g.astype(np.float64)
    for block in range(spec.n_layers):
        name = f"head.{head}.blk.{spec.stored_block(block)}"
        rest = linear(f"{name}.r", x) if spec.grounded and block == 0 else x
        x = rest + silu(linear(f"{name}.l", x))
    rows = linear("output" if spec.shared_output else f"head.{head}.output", x)
    return rows[: spec.n_later_vocab] if head > 0 and spec.n_later_vocab else rows


def softmax(row: np.ndarray) -> np.ndarray:
    p = np.exp(row - row.max())
    return p / p.sum()


def draft(heads: Heads, embed: np.ndarray, g: np.ndarray, root: int, parents: list[int], ranks: list[int]):
    """Tokens and their probabilities, one path after another."""
    paths: list[list[int]] = [[root]]
    q = [1.0]
    for parent, rank in zip(parents[1:], ranks[1:], strict=True):
        path = paths[parent]
        p = softmax(logits(heads, len(path) - 1, g, [embed[token] for token in path]))
        row = int(np.argsort(-p, kind="stable")[rank])
        paths.append([*path, row if heads.d2t is None else int(heads.d2t[row])])
        q.append(float(p[row]))
    return [path[-1] for path in paths], q


def prefix(heads: Heads, hidden: np.ndarray) -> np.ndarray:
    """g for every position of a text, position by position and head by head."""
    spec = heads.spec.prefix
    assert spec is not None
    w = {name: heads.tensors[f"prefix.{name}.weight"].astype(np.float64) for name in NAMES}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt(np.mean(x**2) + spec.rms_eps) * w[name]

    def rotated(x: np.ndarray, position: int) -> np.ndarray:
        y, half = x.copy(), spec.n_rope // 2
        for j in range(half):
            angle = position * spec.rope_theta ** (-2 * j / spec.n_rope)
            y[j] = x[j] * np.cos(angle) - x[j + half] * np.sin(angle)
            y[j + half] = x[j + half] * np.cos(angle) + x[j] * np.sin(angle)
        return y

    def part(x: np.ndarray, head: int) -> np.ndarray:
        return x[head * spec.d_head : (head + 1) * spec.d_head]

    normed = [norm(x, "attn_norm") for x in hidden.astype(np.float64)]
    out = []
    for t, x in enumerate(hidden.astype(np.float64)):
        mixed = []
        for head in range(spec.n_head):
            kv = head // (spec.n_head // spec.n_head_kv)
            query = rotated(part(w["attn_q"] @ normed[t], head), t)
            keys = [rotated(part(w["attn_k"] @ normed[s], kv), s) for s in range(t + 1)]
            p = softmax(np.array([query @ key for key in keys]) / np.sqrt(spec.d_head))
            mixed.append(sum(p[s] * part(w["attn_v"] @ normed[s], kv) for s in range(t + 1)))
        x = x + w["attn_output"] @ np.concatenate(mixed)
        y = norm(x, "ffn_norm")
        x = x + w["ffn_down"] @ (silu(w["ffn_gate"] @ y) * (w["ffn_up"] @ y))
        out.append(norm(x, "output_norm"))
    return np.array(out)


NAMES = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "output_norm",
)
