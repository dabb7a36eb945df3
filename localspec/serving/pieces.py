"""The bytes of tokens for many threads, and what of a request depends on the vocabulary."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import replace

from llama_cpp import llama_cpp as L

from localspec.engine.model import Model
from localspec.engine.params import SamplingParams
from localspec.errors import UsageError
from localspec.serving.api import Request


class Pieces:
    """The texts of the tokens of a model. Unlike `Model.piece` it may be asked from any thread."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._known: dict[tuple[int, bool], bytes] = {}

    def __call__(self, token: int, special: bool = True) -> bytes:
        """Bytes of a token, with `special` also of a special one. Raises `UsageError` for an id that there is not."""
        known = self._known.get((token, special))
        if known is not None:
            return known
        if not 0 <= token < self._model.n_vocab:
            raise UsageError(f"there is no token {token}: this model has {self._model.n_vocab}")
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = L.llama_token_to_piece(self._model.vocab, token, buffer, size, 0, special)
            if n >= 0:
                break
            size = -n
        piece = self._known[(token, special)] = buffer.raw[:n]
        return piece

    def shown(self, token: int) -> bytes:
        """Bytes of a token, as lists of alternatives show it."""
        return self(token)

    def of(self, request: Request) -> Callable[[int], bytes]:
        """The bytes that tokens have in the answer to `request`."""
        preserved = request.preserved
        if not preserved:
            return self._model.piece
        return lambda token: self(token) if token in preserved else self._model.piece(token)

    def sampling(self, request: Request) -> SamplingParams:
        """The sampling of a request; tokens that end a text are out of the question if it ignores them."""
        if not request.ignore_eos:
            return request.sampling
        banned = dict.fromkeys(self._model.eog, -math.inf)
        return replace(request.sampling, logit_bias={**request.sampling.logit_bias, **banned})
