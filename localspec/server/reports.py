"""What replies tell beside their text: usage as OpenAI counts it, timings as llama.cpp does, and speculation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localspec.serving.api import Ended, Speculation


def usage(ended: Sequence[Ended], prompts: int = 1) -> dict[str, Any]:
    """Tokens of a request with these answers, of which each `len(ended) / prompts` have one prompt in common."""
    a_prompt = max(1, len(ended) // prompts)
    n_prompt = sum(each.stats.n_prompt for each in ended[::a_prompt])
    n_cached = sum(each.stats.n_cached for each in ended[::a_prompt])
    n_tokens = sum(each.stats.n_tokens for each in ended)
    accepted = sum(each.speculation.accepted for each in ended)
    drafted = sum(each.speculation.drafted for each in ended)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_tokens,
        "total_tokens": n_prompt + n_tokens,
        "prompt_tokens_details": {"cached_tokens": n_cached},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": max(0, drafted - accepted),
        },
    }


def timings(ended: Ended) -> dict[str, Any]:
    """How long an answer took: llama.cpp's object. Tokens from the cache are not among those of the prompt."""
    stats = ended.stats
    n_read = max(0, stats.n_prompt - stats.n_cached)
    return {
        "cache_n": stats.n_cached,
        **_pace("prompt", n_read, stats.prompt_seconds),
        **_pace("predicted", stats.n_tokens, stats.seconds),
        "draft_n": ended.speculation.drafted,
        "draft_n_accepted": ended.speculation.accepted,
    }


def _pace(what: str, n: int, seconds: float) -> dict[str, Any]:
    return {
        f"{what}_n": n,
        f"{what}_ms": round(seconds * 1000, 3),
        f"{what}_per_token_ms": round(seconds * 1000 / n, 3) if n else 0.0,
        f"{what}_per_second": round(n / seconds, 3) if seconds else 0.0,
    }


def told(speculation: Speculation, requested: str | None) -> dict[str, Any]:
    """What a reply tells of its speculation."""
    speedup = speculation.speedup
    return {
        "method": "off" if speculation.method == "plain" else speculation.method,
        "requested": requested or "auto",
        "lossless": speculation.lossless,
        "forgiven": speculation.forgiven,
        "tokens_per_step": round(speculation.tokens_per_step, 3),
        "speedup_vs_plain": None if speedup is None else round(speedup, 3),
        "reason": speculation.reason,
        "drafted": speculation.drafted,
        "accepted": speculation.accepted,
    }
