"""An engine of a model that only embeds texts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

from localspec.chat_format.api import ChatFormat, ChatPrompt, ChatRequest, ReplyReader
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.errors import EngineError, UsageError
from localspec.serving.api import FimTokens, Generation, Pooled, Request, SlotState
from localspec.serving.embedding import Embedder
from localspec.serving.embeddings import Embeddings
from localspec.serving.engine import CLOSE, IDLE, STUCK
from localspec.serving.facts import facts_of_encoder

if TYPE_CHECKING:
    from localspec.loading import Progress


class NoChat:
    """The chat format of a model that does not chat."""

    def __init__(self, name: str) -> None:
        self._name = name

    def apply(self, request: ChatRequest) -> ChatPrompt:
        """Refuses."""
        refuse(self._name)

    def reader(self, prompt: ChatPrompt) -> ReplyReader:
        """Refuses."""
        refuse(self._name)


def refuse(name: str) -> NoReturn:
    """Raise that a model writes no text."""
    raise UsageError(f"the model {name} embeds texts and writes none", "choose another model, or ask for embeddings")


class EncoderEngine:
    """`api.Engine` over `model`, which it closes with itself. Texts are embedded one request after the other."""

    def __init__(self, model: Model, params: ContextParams, n_gpu_layers: int = -1, n_queue: int = 64) -> None:
        self._model = model
        embedder = Embedder(model, params, model.n_ctx_train)
        self._embeddings = Embeddings(lambda: embedder, n_queue)
        self.facts = facts_of_encoder(model, embedder.n_ctx, n_gpu_layers)
        self.chat: ChatFormat = NoChat(self.facts.name)
        self._wake = threading.Event()
        self._step_began: float | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"engine of {self.facts.name}", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls, path: Path, params: ContextParams, n_gpu_layers: int, n_queue: int, progress: Progress
    ) -> EncoderEngine:
        """Load the model in `path`. Raises what `Model.load` does, and `ModelError` for a model that ranks texts."""

        def watch(share: float) -> bool:
            progress("loading the model", share)
            return True

        model = Model.load(path, n_gpu_layers=n_gpu_layers, progress=watch, encoder=True)
        try:
            return cls(model, params, n_gpu_layers, n_queue)
        except BaseException:
            model.close()
            raise

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of `text`; see `Model.tokenize`."""
        return self._model.tokenize(text, add_special, parse_special)

    def piece(self, token: int, special: bool = True) -> bytes:
        """Bytes of a token. Raises `UsageError` for an id that there is not."""
        if not 0 <= token < self.facts.n_vocab:
            raise UsageError(f"{token} is no token: this model has {self.facts.n_vocab}")
        return self._model.special_text(token).encode() if special else self._model.piece(token)

    def fim(self) -> FimTokens | None:
        """None."""
        return None

    def submit(self, request: Request) -> Generation:
        """Refuses with `UsageError`."""
        refuse(self.facts.name)

    def embed(self, inputs: Sequence[Sequence[int]], normalize: bool = True) -> Future[Pooled]:
        """See `api.Engine`. Raises `BusyError` when too many wait."""
        if self._closing:
            raise EngineError("the engine is being closed")
        future = self._embeddings.put(inputs, normalize)
        self._wake.set()
        return future

    def slots(self) -> list[SlotState]:
        """None: there are none."""
        return []

    def n_waiting(self) -> int:
        """Requests that wait."""
        return len(self._embeddings)

    def stuck(self) -> float | None:
        """See `api.Engine`."""
        began = self._step_began
        seconds = 0.0 if began is None else monotonic() - began
        return seconds if seconds > STUCK else None

    def live(self) -> bytes:
        """Nothing: there are no answers to watch."""
        return b"{}"

    def close(self) -> None:
        """End what is asked for with an error, and free the model. Idempotent; waits for the pass under way."""
        self._closing = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE)

    def _run(self) -> None:
        try:
            while not self._closing:
                self._wake.clear()
                self._step_began = monotonic()
                busy = self._embeddings.step()
                self._step_began = None
                if not busy:
                    self._embeddings.rest()
                    self._wake.wait(IDLE)
        finally:
            self._closing = True
            self._embeddings.end(EngineError("the engine was closed"))
            self._model.close()
