"""Completions: from the updates of an engine to the dicts of llama_cpp."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from localspec.dropin import logprobs
from localspec.dropin.report import report
from localspec.errors import EngineError
from localspec.serving.api import Ended, TokenLogprob, Update, Written


@dataclass(frozen=True, slots=True)
class Completion:
    """What all dicts of one completion share.

    `prompt` is its text, for `echo`, and where the offsets of log-probabilities begin. `requested` is the speculation
    that was asked for.
    """

    model: str
    prompt: str
    echo: bool
    with_logprobs: bool
    requested: str | None
    id: str = field(default_factory=lambda: f"cmpl-{uuid.uuid4()}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, updates: Iterable[Update]) -> dict[str, Any]:
        """The whole completion as one dict."""
        text = [self.prompt] if self.echo else []
        tokens: list[TokenLogprob] = []
        for update in updates:
            if isinstance(update, Written):
                text.append(update.text)
                tokens += update.logprobs
            elif isinstance(update, Ended):
                told = logprobs.of_completion(tokens, len(self.prompt)) if self.with_logprobs else None
                return self._dict("".join(text), told, update.reason, **report(update, self.requested))
        raise EngineError("the engine left the answer without an end")

    def stream(self, updates: Iterable[Update]) -> Iterator[dict[str, Any]]:
        """A dict whenever there is text, and one for the end."""
        offset = len(self.prompt)
        if self.echo:
            yield self._dict(self.prompt, None, None)
        for update in updates:
            if isinstance(update, Written):
                told = None
                if update.logprobs:
                    told = logprobs.of_completion(update.logprobs, offset)
                    offset += len(b"".join(each.piece for each in update.logprobs).decode("utf-8", "ignore"))
                if update.text or told:
                    yield self._dict(update.text, told, None)
            elif isinstance(update, Ended):
                yield self._dict("", None, update.reason, **report(update, self.requested))
                return
        raise EngineError("the engine left the answer without an end")

    def _dict(self, text: str, told: dict[str, Any] | None, reason: str | None, **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [{"text": text, "index": 0, "logprobs": told, "finish_reason": reason}],
            **more,
        }
