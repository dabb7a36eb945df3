"""The part of `localspec.Llama` that tells of the model and its tokens, and generates nothing."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.dropin.opening import Card
from localspec.dropin.options import LlamaOptions
from localspec.dropin.tokenizer import Tokenizer
from localspec.serving.api import Engine

_POOLING_MEAN = 1


class Described:
    """Facts by the names of llama_cpp, from an engine, a card and the options."""

    options: LlamaOptions
    tokenizer_: Tokenizer
    _engine: Engine
    _card: Card

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """The tokens of UTF-8 bytes; with `special` the text of special tokens is read as those."""
        return self.tokenizer_.tokenize(text, add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """The bytes of tokens; those of special ones with `special`."""
        return self.tokenizer_.detokenize(tokens, prev_tokens, special)

    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return self.tokenizer_

    def token_eos(self) -> int:
        """The token that ends a text, -1 for none."""
        return self._card.eos

    def token_bos(self) -> int:
        """The token that begins a text, -1 for none."""
        return self._card.bos

    def token_nl(self) -> int:
        """The token of a line break, -1 for none."""
        return self._card.nl

    @property
    def metadata(self) -> dict[str, str]:
        """What the model file says of itself, by key; no lists."""
        return self._card.metadata

    def n_ctx(self) -> int:
        """Tokens of a prompt and its answer, at most."""
        return self._engine.facts.n_ctx

    def n_vocab(self) -> int:
        """How many tokens there are."""
        return self._engine.facts.n_vocab

    def n_embd(self) -> int:
        """The length of an embedding."""
        return self._engine.facts.n_embd

    @property
    def n_batch(self) -> int:
        """Tokens of a text that count for its embedding, at most."""
        return min(self.n_ctx(), self.options.n_batch)

    def pooling_type(self) -> int:
        """How embeddings are made of those of the tokens: `LLAMA_POOLING_TYPE_MEAN`."""
        return _POOLING_MEAN

    @property
    def context_params(self) -> SimpleNamespace:
        """The parameters of the context, to be read."""
        options = self.options
        return SimpleNamespace(
            n_ctx=self.n_ctx(),
            n_batch=self.n_batch,
            n_ubatch=min(self.n_batch, options.n_ubatch),
            n_seq_max=self._engine.facts.n_slots,
            n_threads=options.n_threads,
            n_threads_batch=options.n_threads_batch,
            embeddings=True,
        )

    @property
    def model_params(self) -> SimpleNamespace:
        """The parameters of the model, to be read."""
        return SimpleNamespace(n_gpu_layers=self.options.n_gpu_layers, vocab_only=False)

    @staticmethod
    def logits_to_logprobs(logits: Any, axis: int = -1) -> npt.NDArray[np.single]:
        """The logarithm of the softmax of logits."""
        shifted = np.asarray(logits, dtype=np.single)
        best = np.max(shifted, axis=axis, keepdims=True)
        shifted = shifted - np.where(np.isfinite(best), best, 0)
        with np.errstate(divide="ignore"):
            result: npt.NDArray[np.single] = shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))
        return result

    @staticmethod
    def longest_token_prefix(a: Sequence[int], b: Sequence[int]) -> int:
        """How many tokens two texts begin with alike."""
        return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
