"""Log-probabilities in the two shapes of OpenAI: that of completions, and that of chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localspec.serving.api import TokenLogprob


def _text(piece: bytes) -> str:
    return piece.decode("utf-8", "ignore")


def of_completion(tokens: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
    """`offset` is the place in the text, in characters, where the first token begins."""
    offsets, length = [], 0
    written = b""
    for token in tokens:
        offsets.append(offset + length)
        written += token.piece
        length = len(_text(written))
    return {
        "tokens": [_text(token.piece) for token in tokens],
        "text_offset": offsets,
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [
            {**{_text(piece): logprob for _, piece, logprob in token.top}, _text(token.piece): token.logprob}
            for token in tokens
        ],
    }


def of_chat(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    """One entry a token, with the bytes that it is of."""
    return {
        "content": [
            {
                **_entry(token.piece, token.logprob),
                "top_logprobs": [_entry(piece, logprob) for _, piece, logprob in token.top],
            }
            for token in tokens
        ],
        "refusal": None,
    }


def _entry(piece: bytes, logprob: float) -> dict[str, Any]:
    return {"token": _text(piece), "logprob": logprob, "bytes": list(piece)}
