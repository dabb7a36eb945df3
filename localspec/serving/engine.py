"""The engine of a loaded model: a thread that owns its session and does what requests ask for, several at once."""

from __future__ import annotations

import atexit
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from time import monotonic

from localspec.chat_format.api import ChatFormat
from localspec.engine.fim import fim_ids
from localspec.errors import ContextLengthError, EngineError, LocalspecError, UsageError
from localspec.events import Event
from localspec.serving.answer import Answer
from localspec.serving.api import MAX_TOP_LOGPROBS, Facts, FimTokens, Pooled, Request, SlotState
from localspec.serving.batch import Batch
from localspec.serving.embedding import Embedder
from localspec.serving.embeddings import Embeddings
from localspec.serving.pieces import Pieces
from localspec.serving.queue import FairQueue
from localspec.serving.slot import Slot
from localspec.serving.turns import TURNS
from localspec.serving.watch import Watcher
from localspec.session import Session

log = logging.getLogger(__name__)

#: requests that wait for a slot at most
QUEUE = 64
#: seconds of one turn after which the engine counts as stuck: a step, or a piece of a prompt, takes far less
STUCK = 120.0
#: seconds that the thread sleeps at most when there is nothing to do, and that `close` waits for it
IDLE, CLOSE = 1.0, 10.0


class BatchEngine:
    """`api.Engine` over `session`, which it closes with itself. `facts` and `chat` are those of its model; `embedder`
    makes what embeds texts, in the engine's thread, when it is first asked for."""

    def __init__(
        self,
        session: Session,
        facts: Facts,
        chat: ChatFormat,
        *,
        n_queue: int = QUEUE,
        embedder: Callable[[], Embedder] | None = None,
    ) -> None:
        self.facts, self.chat = facts, chat
        self.session = session
        self._pieces = Pieces(session.model)
        self._queue = FairQueue(n_queue)
        self._watcher = Watcher(session, self._pieces)
        self._batch = Batch(session, self._queue, self._pieces, self._watch)
        self._embeddings = Embeddings(embedder, n_queue)
        self._wake = threading.Event()
        self._numbers = itertools.count(1)
        self._turn_began: float | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"engine of {facts.name}", daemon=True)
        # before the finalizers of what this thread uses
        atexit.register(self.close)
        self._thread.start()

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of `text`; see `Model.tokenize`."""
        return self.session.model.tokenize(text, add_special, parse_special)

    def piece(self, token: int, special: bool = True) -> bytes:
        """Bytes of a token. Raises `UsageError` for an id that there is not."""
        return self._pieces(token, special)

    def fim(self) -> FimTokens | None:
        """The tokens for writing between two texts, if the model has them."""
        prefix, suffix, middle, repo, file = fim_ids(self.session.model)
        if prefix is None or suffix is None or middle is None:
            return None
        return FimTokens(prefix, suffix, middle, repo, file)

    def submit(self, request: Request) -> Answer:
        """See `api.Engine`."""
        self._check(request)
        answer = Answer(next(self._numbers), request, self._dead)
        self._queue.push(answer, self._batch.n_free)
        self._wake.set()
        return answer

    def _check(self, request: Request) -> None:
        if self._closing:
            raise EngineError("the engine is being closed")
        facts, n_prompt = self.facts, len(request.prompt)
        if not n_prompt:
            raise UsageError("the prompt is empty", "give at least one token")
        if n_prompt >= facts.n_ctx:
            raise ContextLengthError(
                f"the prompt has {n_prompt} tokens, which leaves no room in the context of {facts.n_ctx}",
                "shorten the prompt or enlarge the context",
            )
        if not all(0 <= token < facts.n_vocab for token in request.prompt):
            raise UsageError(f"the prompt has an id that is no token: this model has {facts.n_vocab}")
        if request.max_tokens is not None and request.max_tokens < 0:
            raise UsageError(f"max_tokens is at least 0, not {request.max_tokens}")
        if not 0 <= (request.top_logprobs or 0) <= MAX_TOP_LOGPROBS:
            raise UsageError(f"top_logprobs is {request.top_logprobs}; it is from 0 to {MAX_TOP_LOGPROBS}")
        if not all(request.stops):
            raise UsageError("a stop string is empty", "leave it out")
        if request.method is not None and request.method not in facts.methods:
            raise UsageError(f"the method {request.method} cannot be used here", f"one of {', '.join(facts.methods)}")
        request.sampling.validate()

    def embed(self, inputs: Sequence[Sequence[int]], normalize: bool = True) -> Future[Pooled]:
        """See `api.Engine`."""
        if self._closing:
            raise EngineError("the engine is being closed")
        future = self._embeddings.put(inputs, normalize)
        self._wake.set()
        return future

    def slots(self) -> list[SlotState]:
        """What people see of the slots."""
        return [slot.state for slot in self._batch.slots]

    def n_waiting(self) -> int:
        """Requests that wait for a slot."""
        return len(self._queue)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not len(self._queue) and self._batch.n_free == len(self._batch.slots) and not len(self._embeddings)

    def stuck(self) -> float | None:
        """See `api.Engine`."""
        began = self._turn_began
        seconds = 0.0 if began is None else monotonic() - began
        return seconds if seconds > STUCK else None

    def live(self) -> bytes:
        """See `api.Engine`."""
        return self._watcher.body()

    def close(self) -> None:
        """End all requests with an error, and close the session. Idempotent; waits for the step under way."""
        self._closing = True
        self._wake.set()
        atexit.unregister(self.close)
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE)
            if self._thread.is_alive():
                log.warning("the engine of %s does not end: its memory stays taken", self.facts.name)

    def _dead(self) -> LocalspecError | None:
        """Why nothing more will come of this engine."""
        if not self._thread.is_alive():
            return EngineError("the engine has ended")
        if (seconds := self.stuck()) is not None:
            return EngineError(f"the engine gave no sign of life for {seconds:.0f} s", "see the log of the server")
        return None

    def _watch(self, slot: Slot, event: Event) -> None:
        self._watcher.feed(slot, event)

    def _turn(self) -> bool:
        """Do a little of all there is to do; False when there was nothing."""
        with TURNS:
            self._turn_began = monotonic()
            embedding = self._embeddings.step()
            busy = self._batch.turn() or embedding
            self._turn_began = None
        return busy

    def _run(self) -> None:
        try:
            while not self._closing:
                self._wake.clear()
                busy = not self.idle and self._turn()
                if not busy:
                    self._embeddings.rest()
                    self._wake.wait(IDLE)
        except Exception:
            log.exception("the engine of %s failed", self.facts.name)
        finally:
            self._closing = True
            closed = EngineError("the engine was closed", "try again when the model is loaded")
            self._batch.end(closed)
            self._embeddings.end(closed)
            self.session.close()
