"""The grammar of one text: what may come next, given what was written."""

from __future__ import annotations

import copy
import ctypes
import math

import numpy as np
import numpy.typing as npt
from llama_cpp import llama_cpp as L

from localspec.engine.base import CANDIDATE, IntArray
from localspec.engine.grammar import new_grammar
from localspec.engine.model import Model
from localspec.engine.native_sampler import NativeSampler
from localspec.engine.params import GrammarStart, SamplingParams, Thoughts
from localspec.errors import EngineError, UsageError


class Constraint:
    """A grammar and where in it a text stands.

    A lazy grammar permits everything until it has begun, and during thoughts. Raises `UsageError` for a grammar that
    cannot be used. Not thread-safe; `close` frees it.
    """

    def __init__(self, model: Model, params: SamplingParams) -> None:
        self._model = model
        self._start = params.grammar_start or GrammarStart()
        self._grammar = NativeSampler(new_grammar(model, params))
        self._thinking = _Thinking(self._start.thoughts) if self._start.thoughts and self._start.triggers else None
        self._known: int | None = None  # a token that is known to be permitted
        self._single = L.llama_token_data()
        self._prefill()

    def reset(self) -> None:
        """Begin a text."""
        L.llama_sampler_reset(self._grammar.pointer)
        self._known = None
        if self._thinking is not None and self._start.thoughts is not None:
            self._thinking = _Thinking(self._start.thoughts)
        self._prefill()

    def permits(self, token: int) -> bool:
        """Whether `token` may come next."""
        if token == self._known or self._asleep:
            return True
        single = self._single
        single.id, single.logit, single.p = token, 1.0, 0.0
        array = L.llama_token_data_array(ctypes.pointer(single), 1, -1, False)
        L.llama_sampler_apply(self._grammar.pointer, ctypes.byref(array))
        if single.logit == -math.inf:
            return False
        self._known = token
        return True

    def permitted(self, ids: IntArray) -> npt.NDArray[np.bool_]:
        """Which of these tokens may come next."""
        asked = np.zeros(len(ids), dtype=CANDIDATE)
        asked["id"] = ids
        array = L.llama_token_data_array(asked.ctypes.data_as(L.llama_token_data_p), len(asked), -1, False)
        self.mask(array)
        allowed: npt.NDArray[np.bool_] = asked["logit"] != -math.inf
        return allowed

    def mask(self, candidates: L.llama_token_data_array) -> None:
        """Set the logits of tokens that may not come next to minus infinity."""
        if not self._asleep:
            L.llama_sampler_apply(self._grammar.pointer, ctypes.byref(candidates))

    def accept(self, token: int) -> None:
        """Append a token. Raises `EngineError` for one that is not permitted; nothing has changed then."""
        # The library ends the process when its grammar is fed what it forbids, so this must be asked first.
        if not self.permits(token):
            raise EngineError(f"token {token} breaks the grammar")
        self._known = None
        if self._thinking is None:
            L.llama_sampler_accept(self._grammar.pointer, token)
            return
        for fed in self._thinking.awake(token, self._model.special_text(token)):
            L.llama_sampler_accept(self._grammar.pointer, fed)

    def clone(self) -> Constraint:
        """One at the same place, which goes its own way from here on."""
        clone = copy.copy(self)
        clone._grammar = self._grammar.clone()
        clone._single = L.llama_token_data()
        clone._thinking = copy.copy(self._thinking)
        return clone

    def close(self) -> None:
        """Free it now. Idempotent."""
        self._grammar.close()

    @property
    def _asleep(self) -> bool:
        return self._thinking is not None and self._thinking.inside

    def _prefill(self) -> None:
        for token in self._start.prefill:
            if not self.permits(token):
                self.close()
                raise UsageError("the grammar does not begin with the end of the prompt")
            L.llama_sampler_accept(self._grammar.pointer, token)
            self._known = None


class _Thinking:
    """Whether a text is within the thoughts of the model. Copies go their own ways."""

    def __init__(self, thoughts: Thoughts) -> None:
        self._thoughts = thoughts
        self.inside = thoughts.begun
        longest = max(map(len, (thoughts.start, *thoughts.ends)))
        self._kept = longest + _LONGEST_TOKEN
        self._tail: tuple[tuple[int, str], ...] = ()

    def awake(self, token: int, text: str) -> list[int]:
        """Take a token in; returns those that a grammar is to see now: none within thoughts, and those of a mark that
        ends them, as it may begin a tool call."""
        was_inside = self.inside
        self._tail = (*self._tail, (token, text))
        written = "".join(text for _, text in self._tail)
        if not was_inside:
            if self._thoughts.start in written:
                self.inside, self._tail = True, ()
            else:
                self._forget(written)
            return [token]
        at = min((found for end in self._thoughts.ends if (found := written.find(end)) >= 0), default=-1)
        if at < 0:
            self._forget(written)
            return []
        fed = self._since(at)
        self.inside, self._tail = False, ()
        return fed

    def _since(self, at: int) -> list[int]:
        """The tokens with text after the first `at` characters."""
        tokens, end = [], 0
        for token, text in self._tail:
            end += len(text)
            if end > at:
                tokens.append(token)
        return tokens

    def _forget(self, written: str) -> None:
        """Drop tokens before all that could still become part of a mark."""
        size, first = len(written), 0
        while first < len(self._tail) - 1 and size - len(self._tail[first][1]) >= self._kept:
            size -= len(self._tail[first][1])
            first += 1
        self._tail = self._tail[first:]


#: characters, more than any token has that a mark ends in
_LONGEST_TOKEN = 64
