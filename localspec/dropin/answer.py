"""One answer of an engine: submitted, read, cut where the caller's criteria say, and cancelled when it is dropped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from localspec.dropin.calls import Criteria
from localspec.dropin.errors import as_llama_cpp
from localspec.errors import EngineError
from localspec.serving.api import BusyError, Ended, Engine, Generation, Request, Update, Written

#: seconds between two tries to get into a queue that is full
_WAIT = 0.05
#: what criteria get for logits: none, as those of drafted tokens stay in the library
_NO_LOGITS = np.zeros(0, dtype=np.float32)


def updates(engine: Engine, request: Request, criteria: Criteria | None = None) -> Iterator[Update]:
    """The updates of an answer, up to the first token that `criteria` stop at. Cancels it when closed early.

    Raises what `Engine.submit` does but `BusyError`: threads wait for each other. Raises `EngineError` when somebody
    else cancelled the answer.
    """
    with as_llama_cpp():
        generation = _submit(engine, request)
        cut = None if criteria is None else _Cut(engine, request, criteria)
        try:
            for update in generation:
                if isinstance(update, Written) and cut is not None:
                    if cut.done:
                        continue
                    update = cut(update)
                    if cut.done:
                        generation.cancel()
                elif isinstance(update, Ended) and update.reason == "cancelled":
                    if cut is None or not cut.done:
                        raise EngineError("the answer was cancelled before its end")
                    update = replace(update, reason="stop")
                yield update
        finally:
            generation.cancel()


def _submit(engine: Engine, request: Request) -> Generation:
    while True:
        try:
            return engine.submit(request)
        except BusyError:
            time.sleep(_WAIT)


class _Cut:
    """Ends an answer before the first token that the criteria stop at, which they see as the last one of all ids."""

    def __init__(self, engine: Engine, request: Request, criteria: Criteria) -> None:
        self.done = False
        self._engine, self._criteria = engine, criteria
        self._ids = list(request.prompt)
        self._text = b""
        self._told = 0

    def __call__(self, update: Written) -> Written:
        told, self._told = self._told, self._told + len(update.text)
        for i, token in enumerate(update.tokens):
            self._ids.append(token)
            if self._criteria(np.array(self._ids, dtype=np.intc), _NO_LOGITS):
                self.done = True
                text = self._text.decode("utf-8", "ignore")[told:]
                return Written(text, update.tokens[:i], update.logprobs[:i])
            self._text += self._engine.piece(token, special=False)
        return update
