"""The target's sampler: llama.cpp's own sampler chain, with grammars, behind the `Sampler` protocol."""

from __future__ import annotations

import ctypes
import json
import math
import re
import secrets
import weakref
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as L

from localspec.engine import logs
from localspec.engine.base import CANDIDATE, Rows
from localspec.engine.model import Model
from localspec.engine.params import SamplingParams
from localspec.errors import EngineError, UsageError

# llama.cpp reads this seed as "pick one yourself", which could not be repeated.
_RANDOM_SEED = 0xFFFFFFFF

#: a logit this far below the best stands for a probability below 2e-35
_IMPOSSIBLE = 80.0

_MAX_GRAMMAR_SIZE = 1 << 20
_MAX_GRAMMAR_RULES = 8192
_MAX_GRAMMAR_DEPTH = 256
#: literals, character classes and comments of GBNF: parentheses there are plain characters
_GRAMMAR_ATOMS = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*', re.DOTALL)


class ChainSampler:
    """Draws tokens as llama.cpp's common sampler does: logit bias, penalties, top-k, typical, top-p, min-p,
    temperature, then a seeded draw; at temperature 0 bias and penalties, then the best token.

    A draw that the grammar rejects is repeated over the tokens that the grammar allows. All is a function of the
    parameters, the seed and the history, so a text does not depend on how its tokens were drafted.

    `seed` is the seed in use; `native_seconds` counts the time spent in the chain. Raises `UsageError` for unusable
    parameters, a bad grammar or a bad schema. Not thread-safe. A context manager; `close` frees the native samplers.
    """

    def __init__(self, model: Model, params: SamplingParams) -> None:
        params.validate()
        self.params = params
        self.seed = _seed(params.seed)
        self.native_seconds = 0.0
        self._model = model
        biases = self._biases()
        # With a grammar too, the first try needs no candidate array.
        self._argmax = params.temperature == 0.0 and not params.penalised and not biases
        self._grammar = _grammar(model, params)
        self._checked: int | None = None  # a token that the grammar is known to allow next
        self._penalties: Any = None
        # Logits are edited by the head and chosen from by the tail.
        self._head = self._build_head(biases)
        self._tail = self._build_tail()
        self._free = weakref.finalize(self, _free_samplers, self._head, self._tail, self._grammar)
        self._candidates = np.zeros(model.n_vocab, dtype=CANDIDATE)
        self._array = L.llama_token_data_array()
        self._array.data = self._candidates.ctypes.data_as(L.llama_token_data_p)
        self._single = L.llama_token_data()

    def _build_head(self, biases: dict[int, float]) -> Any:
        params, n_vocab = self.params, self._model.n_vocab
        samplers = []
        if biases:
            array = (L.llama_logit_bias * len(biases))(*biases.items())
            samplers.append(L.llama_sampler_init_logit_bias(n_vocab, len(biases), array))
        if params.penalised:
            last_n = params.repeat_last_n if params.repeat_last_n >= 0 else self._model.n_ctx_train
            self._penalties = L.llama_sampler_init_penalties(
                n_vocab, last_n, params.repeat_penalty, params.frequency_penalty, params.presence_penalty
            )
            samplers.append(self._penalties)
        return _chain(samplers)

    def _build_tail(self) -> Any:
        params = self.params
        if params.temperature == 0.0:
            return _chain([L.llama_sampler_init_greedy()])
        return _chain(
            [
                L.llama_sampler_init_top_k(params.top_k),
                L.llama_sampler_init_typical(params.typical_p, 1),
                L.llama_sampler_init_top_p(params.top_p, 1),
                L.llama_sampler_init_min_p(params.min_p, 1),
                L.llama_sampler_init_temp(params.temperature),
                L.llama_sampler_init_dist(self.seed),
            ]
        )

    def _biases(self) -> dict[int, float]:
        for token in self.params.logit_bias:
            if token >= self._model.n_vocab:
                raise UsageError(f"logit_bias names token {token}; this model has {self._model.n_vocab} tokens")
        return {**self.params.logit_bias, **dict.fromkeys(self._model.suppressed, -math.inf)}

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a text after `prompt`: the seed starts over, the penalties see the prompt, the grammar does not."""
        L.llama_sampler_reset(self._head)
        L.llama_sampler_reset(self._tail)
        self._checked = None
        if self._grammar is not None:
            L.llama_sampler_reset(self._grammar)
        if self._penalties is not None:
            last_n = self.params.repeat_last_n
            for token in prompt if last_n < 0 else prompt[-last_n:]:
                L.llama_sampler_accept(self._penalties, token)

    def sample(self, rows: Rows, i: int) -> int:
        """Draw one token from row `i`, given the history. One draw a call; the history does not change.

        Raises `EngineError` when no token continues the grammar.
        """
        token = rows.argmax(i) if self._argmax else self._draw(rows, i, constrained=False)
        if self.permits(token):
            return token
        token = self._draw(rows, i, constrained=True)
        if not self.permits(token):
            raise EngineError("the grammar leaves no token to go on with", "check the grammar and logit_bias")
        return token

    def permits(self, token: int) -> bool:
        """Whether the grammar allows `token` next; always true without a grammar."""
        if self._grammar is None or token == self._checked:
            return True
        single = self._single
        single.id, single.logit, single.p = token, 1.0, 0.0
        array = L.llama_token_data_array(ctypes.pointer(single), 1, -1, False)
        L.llama_sampler_apply(self._grammar, ctypes.byref(array))
        if single.logit == -math.inf:
            return False
        self._checked = token
        return True

    def accept(self, token: int) -> None:
        """Append `token` to the history (penalties, grammar).

        Raises `EngineError` for a token that the grammar forbids; the history is then unchanged.
        """
        if self._grammar is not None:
            # The library ends the process when its grammar is fed what it forbids, so this must be asked first.
            if not self.permits(token):
                raise EngineError(f"token {token} breaks the grammar")
            L.llama_sampler_accept(self._grammar, token)
            self._checked = None
        if self._penalties is not None:  # nothing else in the chain has a history
            L.llama_sampler_accept(self._penalties, token)

    def _draw(self, rows: Rows, i: int, constrained: bool) -> int:
        candidates, array = self._candidates, self._array
        rows.candidates(i, candidates)  # afresh: the samplers sort in place
        array.size, array.selected, array.sorted = len(candidates), -1, False
        begin = perf_counter()
        if constrained:
            L.llama_sampler_apply(self._grammar, ctypes.byref(array))
        L.llama_sampler_apply(self._head, ctypes.byref(array))
        if self.params.typical_p < 1.0:
            array.size = self._drop_impossible()
        L.llama_sampler_apply(self._tail, ctypes.byref(array))
        self.native_seconds += perf_counter() - begin
        return int(array.data[array.selected].id)

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
        self._free()

    def __enter__(self) -> ChainSampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _seed(seed: int | None) -> int:
    if seed is None or seed < 0:
        return secrets.randbelow(_RANDOM_SEED)
    return seed % _RANDOM_SEED


def _chain(samplers: list[Any]) -> Any:
    chain = L.llama_sampler_chain_init(L.llama_sampler_chain_default_params())
    for sampler in samplers:
        L.llama_sampler_chain_add(chain, sampler)
    return chain


def _free_samplers(*samplers: Any) -> None:
    for sampler in samplers:
        if sampler is not None:
            L.llama_sampler_free(sampler)


def _grammar(model: Model, params: SamplingParams) -> Any | None:
    if params.json_schema is not None:
        source, what = schema_to_gbnf(params.json_schema), "json_schema"
    elif params.grammar is not None:
        source, what = params.grammar, "grammar"
    else:
        return None
    if not source.strip():
        raise UsageError("grammar is empty", "leave it out to sample without one")
    _refuse_unparsable(source, what)
    # The parser reports to stderr, the checks after it to the log.
    mark = logs.n_errors()
    with logs.captured_stderr() as printed:
        sampler = L.llama_sampler_init_grammar(model.vocab, source.encode("utf-8", "replace"), b"root")
    if not sampler:
        parsed = next((line for line in printed if "error parsing grammar: " in line), None)
        reason = parsed.partition("error parsing grammar: ")[2] if parsed else logs.reason(mark, "unknown reason")
        raise UsageError(f"{what} cannot be used: {_shorten(reason)}")
    return sampler


def _refuse_unparsable(source: str, what: str) -> None:
    """Refuse what would overflow the stack of the library's recursive parser."""
    if "\0" in source:
        raise UsageError(f"{what} holds a NUL character")
    if len(source) > _MAX_GRAMMAR_SIZE or source.count("::=") > _MAX_GRAMMAR_RULES:
        raise UsageError(
            f"{what} is too large: {len(source)} characters, {source.count('::=')} rules",
            f"at most {_MAX_GRAMMAR_SIZE} characters and {_MAX_GRAMMAR_RULES} rules",
        )
    depth = 0
    for bracket in re.findall(r"[()]", _GRAMMAR_ATOMS.sub("", source)):
        depth += 1 if bracket == "(" else -1
        if depth > _MAX_GRAMMAR_DEPTH:
            raise UsageError(f"{what} nests more than {_MAX_GRAMMAR_DEPTH} groups")


def schema_to_gbnf(schema: dict[str, Any] | str) -> str:
    """The GBNF of a JSON schema. Raises `UsageError` for what is not one, or uses what GBNF cannot say."""
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        if not isinstance(json.loads(text), dict):
            raise ValueError("a schema is an object")
        return str(json_schema_to_gbnf(text))
    except Exception as error:  # the converter raises whatever its Python happens to hit
        raise UsageError(f"json_schema cannot be used: {_shorten(str(error) or type(error).__name__)}") from None


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:197] + "..."
