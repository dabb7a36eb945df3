"""The target's sampler: llama.cpp's own sampler chain, with grammars, behind the `Sampler` protocol."""

from __future__ import annotations

import copy
import ctypes
import math
import secrets
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as L

from localspec.engine.base import CANDIDATE, Law, Rows
from localspec.engine.constraint import Constraint
from localspec.engine.model import Model
from localspec.engine.native_sampler import NativeSampler
from localspec.engine.params import SamplingParams
from localspec.errors import EngineError, UsageError

# llama.cpp reads this seed as "pick one yourself", which could not be repeated.
_RANDOM_SEED = 0xFFFFFFFF

#: a logit this far below the best stands for a probability below 2e-35
_IMPOSSIBLE = 80.0

_DEAD_END = ("the grammar leaves no token to go on with", "check the grammar and logit_bias")


class ChainSampler:
    """Draws tokens as llama.cpp's common sampler does: logit bias, penalties, top-k, typical, top-p, min-p,
    temperature, then a seeded draw; at temperature 0 bias and penalties, then the best token.

    A draw that the grammar rejects is repeated over the tokens that the grammar allows. All is a function of the
    parameters, the seed and the history, so a text does not depend on how its tokens were drafted.

    `seed` is the seed in use. Raises `UsageError` for unusable parameters, a bad grammar or a bad schema. Not
    thread-safe. A context manager; `close` frees the native samplers.
    """

    def __init__(self, model: Model, params: SamplingParams) -> None:
        params.validate()
        self.params = params
        self.seed = _seed(params.seed)
        self._spent = [0.0]  # one number, shared with the forks
        self._model = model
        biases = self._biases()
        self._banned = frozenset(token for token, bias in biases.items() if bias == -math.inf)
        # With a grammar too, the first try needs no candidate array.
        self._argmax = params.temperature == 0.0 and not params.penalised and not biases
        self._grammar = Constraint(model, params) if params.constrained else None
        # Logits are edited by the head and chosen from by the tail.
        self._head = self._build_head(biases)
        self._tail = self._build_tail()
        # The tail without its draw, for `law`.
        self._shape = NativeSampler.chain(self._filters() if params.temperature > 0.0 else [])
        self._rng: np.random.Generator | None = None  # made when it is asked for, as few ask
        self._candidates = np.zeros(model.n_vocab, dtype=CANDIDATE)
        self._array = L.llama_token_data_array()
        self._array.data = self._candidates.ctypes.data_as(L.llama_token_data_p)

    @property
    def native_seconds(self) -> float:
        """Seconds spent in the chain since creation, by forks as well."""
        return self._spent[0]

    def _build_head(self, biases: dict[int, float]) -> NativeSampler:
        params, n_vocab = self.params, self._model.n_vocab
        samplers = []
        if biases:
            array = (L.llama_logit_bias * len(biases))(*biases.items())
            samplers.append(L.llama_sampler_init_logit_bias(n_vocab, len(biases), array))
        if params.penalised:
            last_n = params.repeat_last_n if params.repeat_last_n >= 0 else self._model.n_ctx_train
            penalties = L.llama_sampler_init_penalties(
                n_vocab, last_n, params.repeat_penalty, params.frequency_penalty, params.presence_penalty
            )
            samplers.append(penalties)
        return NativeSampler.chain(samplers)

    def _build_tail(self) -> NativeSampler:
        params = self.params
        if params.temperature == 0.0:
            return NativeSampler.chain([L.llama_sampler_init_greedy()])
        return NativeSampler.chain([*self._filters(), L.llama_sampler_init_dist(self.seed)])

    def _filters(self) -> list[Any]:
        params = self.params
        return [
            L.llama_sampler_init_top_k(params.top_k),
            L.llama_sampler_init_typical(params.typical_p, 1),
            L.llama_sampler_init_top_p(params.top_p, 1),
            L.llama_sampler_init_min_p(params.min_p, 1),
            L.llama_sampler_init_temp(params.temperature),
        ]

    def _biases(self) -> dict[int, float]:
        for token in self.params.logit_bias:
            if token >= self._model.n_vocab:
                raise UsageError(f"logit_bias names token {token}; this model has {self._model.n_vocab} tokens")
        return {**self.params.logit_bias, **dict.fromkeys(self._model.suppressed, -math.inf)}

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a text after `prompt`: the seed starts over, the penalties see the prompt if the parameters say so, the
        grammar does not."""
        if not self.params.penalise_prompt:
            prompt = ()
        L.llama_sampler_reset(self._head.pointer)
        L.llama_sampler_reset(self._tail.pointer)
        self._rng = None
        if self._grammar is not None:
            self._grammar.reset()
        if self.params.penalised:
            last_n, penalties = self.params.repeat_last_n, self._head.last()
            for token in prompt if last_n < 0 else prompt[-last_n:]:
                L.llama_sampler_accept(penalties, token)

    def sample(self, rows: Rows, i: int) -> int:
        """Draw one token from row `i`, given the history. One draw a call; the history does not change.

        Raises `EngineError` when no token continues the grammar.
        """
        token = rows.argmax(i) if self._argmax else self._draw(rows, i, constrained=False)
        if self.permits(token):
            return token
        token = self._draw(rows, i, constrained=True)
        if not self.permits(token):
            raise EngineError(*_DEAD_END)
        return token

    def permits(self, token: int) -> bool:
        """Whether the grammar allows `token` next; always true without a grammar."""
        return self._grammar is None or self._grammar.permits(token)

    def accept(self, token: int) -> None:
        """Append `token` to the history (penalties, grammar).

        Raises `EngineError` for a token that the grammar forbids; the history is then unchanged.
        """
        if self._grammar is not None:
            self._grammar.accept(token)
        if self.params.penalised:  # nothing else in the chain has a history
            L.llama_sampler_accept(self._head.last(), token)

    def allows(self, rows: Rows, i: int, token: int) -> bool:
        """Whether `token` could be emitted at row `i` at all, given the history. Draws nothing.

        Above temperature 0 that is a chance above zero in `law`; at 0, where the law knows one token, what the grammar
        permits and no bias of minus infinity forbids.
        """
        if self.params.temperature > 0.0:
            return token in self.law(rows, i).ids
        return token not in self._banned and self.permits(token)

    def fork(self) -> ChainSampler:
        """A sampler with the same history that will make the same draws, and goes its own way from here on."""
        fork = copy.copy(self)  # what has no memory is shared
        if self.params.penalised:
            fork._head = self._head.clone()
        if self.params.temperature > 0.0:
            fork._tail = self._tail.clone()
        if self._grammar is not None:
            fork._grammar = self._grammar.clone()
        fork._rng = copy.deepcopy(self._rng)
        return fork

    def adopt(self, fork: ChainSampler) -> None:
        """Go on where `fork`, made by this sampler or by a fork of it, stands. The fork is not used any more."""
        self._head, self._tail, self._grammar = fork._head, fork._tail, fork._grammar
        self._rng = fork._rng

    def law(self, rows: Rows, i: int) -> Law:
        """The distribution that `sample` draws from at row `i`, given the history. Draws nothing.

        With a grammar that is a mixture, as a draw that the grammar rejects is repeated over what it allows. Raises
        `EngineError` when no token continues the grammar.
        """
        if self.params.temperature == 0.0:
            return Law(np.array([self.sample(rows, i)], dtype=np.int32), np.ones(1))
        ids, p = self._shaped(rows, i, constrained=False)
        allowed = np.ones(len(ids), dtype=bool) if self._grammar is None else self._grammar.permitted(ids)
        rejected = float(p[~allowed].sum())
        if rejected == 0.0:
            return Law(ids, p)
        again = self._shaped(rows, i, constrained=True)
        ids, place = np.unique(np.concatenate([ids[allowed], again.ids]), return_inverse=True)
        mixed = np.concatenate([p[allowed], rejected * again.p])
        return Law(ids.astype(np.int32), np.bincount(place, mixed).astype(np.float64))

    def uniform(self) -> float:
        """A random number from [0, 1): the seed's, but of another stream than the draws of `sample`."""
        if self._rng is None:
            self._rng = np.random.default_rng(self.seed)
        return float(self._rng.random())

    def _shaped(self, rows: Rows, i: int, constrained: bool) -> Law:
        """The distribution that one draw of the chain follows."""
        n = self._apply(rows, i, constrained, self._shape)
        logits = self._candidates["logit"][:n].astype(np.float64)
        best = logits.max()
        if best == -math.inf:
            raise EngineError(*_DEAD_END)
        p = np.exp(logits - best)
        possible = p > 0.0
        p = p[possible]
        return Law(self._candidates["id"][:n][possible], p / p.sum())

    def _draw(self, rows: Rows, i: int, constrained: bool) -> int:
        self._apply(rows, i, constrained, self._tail)
        return int(self._array.data[self._array.selected].id)

    def _apply(self, rows: Rows, i: int, constrained: bool, tail: NativeSampler) -> int:
        """Run row `i` through the grammar, if wanted, the head and `tail`; returns how many candidates are left."""
        candidates, array = self._candidates, self._array
        rows.candidates(i, candidates)  # afresh: the samplers sort in place
        array.size, array.selected, array.sorted = len(candidates), -1, False
        begin = perf_counter()
        if constrained and self._grammar is not None:
            self._grammar.mask(array)
        L.llama_sampler_apply(self._head.pointer, ctypes.byref(array))
        if self.params.typical_p < 1.0:
            array.size = self._drop_impossible()
        L.llama_sampler_apply(tail.pointer, ctypes.byref(array))
        self._spent[0] += perf_counter() - begin
        return int(array.size)

    def _drop_impossible(self) -> int:
        """Move the candidates that have any chance to the front and return their number.

        llama.cpp's typical sampler computes an entropy, which one probability of zero turns into NaN.
        """
        logits = self._candidates["logit"]
        kept = self._candidates[logits > logits.max() - _IMPOSSIBLE]
        self._candidates[: len(kept)] = kept
        return len(kept) or len(self._candidates)

    def close(self) -> None:
        """Free the native samplers. Idempotent."""
        for sampler in (self._head, self._tail, self._shape, self._grammar):
            if sampler is not None:
                sampler.close()

    def __enter__(self) -> ChainSampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _seed(seed: int | None) -> int:
    if seed is None or seed < 0:
        return secrets.randbelow(_RANDOM_SEED)
    return seed % _RANDOM_SEED
