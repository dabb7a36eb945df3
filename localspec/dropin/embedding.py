"""Embeddings: texts to vectors, and the dict that llama_cpp makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localspec.dropin.errors import CallError, as_llama_cpp
from localspec.serving.api import Engine, Pooled


def embed(engine: Engine, texts: Sequence[str], *, normalize: bool, limit: int, truncate: bool) -> Pooled:
    """One vector a text, of at most `limit` tokens; longer ones are cut with `truncate`, else a `CallError`."""
    tokens = [engine.tokenize(text, parse_special=False) for text in texts]
    if truncate:
        tokens = [each[:limit] for each in tokens]
    longest = max(map(len, tokens), default=0)
    if longest > limit:
        raise CallError(f"a text has {longest} tokens, more than n_batch={limit}", "cut it, or raise n_ctx and n_batch")
    with as_llama_cpp():
        return engine.embed(tokens, normalize).result()


def response(pooled: Pooled, model: str) -> dict[str, Any]:
    """The embeddings as OpenAI's dict."""
    return {
        "object": "list",
        "data": [{"object": "embedding", "embedding": vector, "index": i} for i, vector in enumerate(pooled.vectors)],
        "model": model,
        "usage": {"prompt_tokens": pooled.n_tokens, "total_tokens": pooled.n_tokens},
    }
