"""Log-probabilities in the two shapes that OpenAI's API has for them."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Any

from localspec.serving.api import TokenLogprob

#: stands for minus infinity, which JSON has not
_LEAST = -9999.0


def token_text(piece: bytes) -> str:
    """The text of a token; bytes that are no text by themselves as `bytes:\\xe2\\x9c`."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join([f"\\x{byte:02x}" for byte in piece])


def _finite(logprob: float) -> float:
    # of minus zero, too, clients make something odd
    return max(logprob, _LEAST) + 0.0


def _entry(piece: bytes, logprob: float) -> dict[str, Any]:
    return {"token": token_text(piece), "bytes": list(piece), "logprob": _finite(logprob)}


def of_chat(logprobs: Iterable[TokenLogprob]) -> dict[str, Any]:
    """The `logprobs` of a chat choice."""
    content = [
        {**_entry(each.piece, each.logprob), "top_logprobs": [_entry(piece, value) for _, piece, value in each.top]}
        for each in logprobs
    ]
    return {"content": content, "refusal": None}


class CompletionLogprobs:
    """The `logprobs` of plain completions, piece by piece: offsets count characters of the text, from `start`."""

    def __init__(self, start: int = 0) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = start

    def add(self, logprobs: Iterable[TokenLogprob]) -> dict[str, Any]:
        made: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for each in logprobs:
            made["tokens"].append(token_text(each.piece))
            made["token_logprobs"].append(_finite(each.logprob))
            top = {token_text(piece): _finite(value) for _, piece, value in each.top}
            made["top_logprobs"].append(top)
            made["text_offset"].append(self._offset)
            self._offset += len(self._decoder.decode(each.piece))
        return made
