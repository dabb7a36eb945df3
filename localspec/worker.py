"""The engine behind an interface: one thread that owns a `Session`, and does what it is told in turn.

The native library is imported in that thread too, since that takes a good part of a second. What a step makes goes
through a deque, which needs no lock; nothing here waits for the engine but `close`.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from localspec import opening
from localspec.answering import SessionAnswering, sampling_of
from localspec.engine.params import SamplingParams
from localspec.errors import EngineError, LocalspecError, UsageError
from localspec.events import DoneEvent, Event, Stats, StepEvent
from localspec.opening import describe, failed
from localspec.tui.backend import Failed, Loading, ModelInfo, ModelRow, OpenRequest, Question

if TYPE_CHECKING:
    from localspec.loading import Progress
    from localspec.methods.acceptance import Acceptance
    from localspec.session import Session

log = logging.getLogger(__name__)

#: seconds that `close` waits for a step, or a batch of a prompt, to end
CLOSE_SECONDS = 5.0
#: what stands for bytes that are no text by themselves
NO_TEXT = "·"


class _Stopped(Exception):
    """What is being done is not wanted any more."""


class SessionWorker:
    """The real `localspec.tui.backend.Backend`. Nothing is loaded before `open`, for which everything waits.

    `sampling` is what the command line says, which a question may change; `acceptance` makes of it the way of accepting
    drafts, in the thread of the engine; `stops` end every answer.

    `options` of an `OpenRequest` are arguments of `Session.open`, and `draft_n_ctx`, that of its `DraftRequest`.
    """

    def __init__(
        self,
        sampling: SamplingParams | None = None,
        acceptance: Callable[[SamplingParams], Acceptance] | None = None,
        stops: Sequence[str] = (),
    ) -> None:
        self._sampling = sampling or SamplingParams()
        self._acceptance = acceptance
        self._stops = tuple(stops)
        self._lock = threading.Lock()
        self._wanted = 0
        self._state: ModelInfo | Loading | Failed = Loading("starting", 0.0)
        self._troubles: deque[Failed] = deque()
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._answer: SessionAnswering | None = None
        self._closing = False
        self._pieces: dict[int, str] = {}
        # of the thread alone
        self._session: Session | None = None
        self._serving = 0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def state(self) -> ModelInfo | Loading | Failed:
        """What there is now."""
        return self._state

    def open(self, request: OpenRequest) -> None:
        """Load a model in place of the one there is; an answer under way is cancelled."""
        if self._answer is not None:
            self._answer.cancel()
        with self._lock:
            self._wanted += 1
            number = self._wanted
            self._state = Loading("starting", 0.0)
        self._commands.put(lambda: self._open(request, number))

    def set_method(self, name: str) -> None:
        """Use a method from now on."""
        self._commands.put(lambda: self._set_method(name))

    def trouble(self) -> Failed | None:
        """The oldest thing that failed without ending anything and was not told yet."""
        return self._troubles.popleft() if self._troubles else None

    def ask(self, question: Question) -> SessionAnswering:
        """Begin an answer. Raises `UsageError` while there is no model or an answer is under way."""
        if self._closing:
            raise UsageError("the engine was closed")
        if not isinstance(self._state, ModelInfo):
            raise UsageError("there is no model to ask", "wait until it is loaded, or choose one")
        if self._answer is not None and not self._answer.ended:
            raise UsageError("an answer is being written", "wait for its end, or stop it")
        answer = self._answer = SessionAnswering(question)
        self._commands.put(lambda: self._write(answer))
        return answer

    def piece(self, token: int) -> str:
        """The text of a token that an event had; special ones have none."""
        return self._pieces.get(token, NO_TEXT)

    def forget(self) -> None:
        """Begin a new conversation."""
        self._commands.put(self._forget)

    def models(self) -> list[ModelRow]:
        """What can be opened or pulled: the models on this machine first."""
        return opening.model_rows()

    def close(self) -> None:
        """End everything."""
        self._closing = True
        if self._answer is not None:
            self._answer.cancel()
        self._commands.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS)

    # What follows runs in the thread of the engine.

    def _run(self) -> None:
        try:
            while (command := self._commands.get()) is not None and not self._closing:
                try:
                    command()
                except _Stopped:
                    continue
                except Exception as error:
                    # whatever it is, the next command deserves its try
                    log.exception("the engine failed")
                    self._troubles.append(failed(error))
        finally:
            self._close_session()
            if self._answer is not None and not self._answer.ended:
                self._answer.end(EngineError("the engine was closed"))

    def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _publish(self, state: ModelInfo | Loading | Failed) -> None:
        """Tell what there is, unless another model is wanted by now."""
        with self._lock:
            if self._serving == self._wanted:
                self._state = state

    def _progress(self, answer: SessionAnswering | None = None) -> Progress:
        """What takes reports of progress; it ends what is not wanted any more."""

        def report(stage: str, share: float) -> None:
            self._publish(Loading(stage, share))
            if self._closing or self._serving != self._wanted or (answer is not None and answer.cancelled):
                raise _Stopped

        return report

    def _open(self, request: OpenRequest, number: int) -> None:
        self._serving = number
        if number != self._wanted:
            return
        self._close_session()
        try:
            self._session = opening.open_session(request, self._progress())
            info = describe(self._session)
        except _Stopped:
            raise
        except Exception as error:
            if not isinstance(error, LocalspecError):
                log.exception("the model cannot be opened")
            self._close_session()
            self._publish(failed(error))
            return
        self._pieces = {}
        self._publish(info)

    def _ready(self) -> Session:
        if self._session is None:
            raise UsageError("there is no model", "choose one")
        return self._session

    def _set_method(self, name: str) -> None:
        try:
            session = self._ready()
            self._make_method(session, name, None)
        except LocalspecError as error:
            self._troubles.append(failed(error))
        else:
            session.method_name = name
            self._publish(describe(session))

    def _make_method(self, session: Session, name: str, answer: SessionAnswering | None) -> None:
        """Have the method, which measures this machine the first time that this is needed."""
        known = self._state
        session.on_progress(self._progress(answer))
        try:
            session.method(name)
        finally:
            session.on_progress(None)
            if self._state is not known:
                self._publish(describe(session))

    def _write(self, answer: SessionAnswering) -> None:
        try:
            session = self._ready()
            for event in self._events(session, answer):
                if isinstance(event, StepEvent):
                    self._remember(session, event)
                answer.put(event)
        except _Stopped:
            answer.put(DoneEvent("cancelled", "", Stats()))
            answer.end()
        except LocalspecError as error:
            answer.end(error)
        except Exception as error:
            log.exception("an answer failed")
            answer.end(EngineError(failed(error).message))
        else:
            answer.end()

    def _events(self, session: Session, answer: SessionAnswering) -> Iterator[Event]:
        from localspec.decode import Limits

        question = answer.question
        sampling = sampling_of(self._sampling, question.sampling)
        method = question.method or session.method_name
        acceptance = self._accept(sampling, question.accept)
        prompt = session.chat_prompt(question.messages)
        limits = Limits(question.max_tokens, (*self._stops, *session.template.stops))
        self._make_method(session, method, answer)
        return session.generate(prompt, sampling, limits, method, lambda: answer.cancelled, acceptance=acceptance)

    def _accept(self, sampling: SamplingParams, rule: str | None) -> Acceptance:
        """How drafts are accepted: as the command line has it, but by `rule` if there is one."""
        from localspec.methods.acceptance import Accept, Acceptance

        base = Acceptance() if self._acceptance is None else self._acceptance(sampling)
        if rule is None:
            return base
        accept = next((known for known in get_args(Accept) if known == rule), None)
        if accept is None:
            raise UsageError(f"there is no rule {rule!r} to accept drafts by", ", ".join(get_args(Accept)))
        return replace(base, accept=accept)

    def _remember(self, session: Session, event: StepEvent) -> None:
        """Keep the texts of tokens here: the model's own table is not for two threads, and goes away with it."""
        pieces = self._pieces
        for tokens in (event.tree_tokens, event.tokens):
            for token in tokens:
                if token not in pieces:
                    text = session.model.piece(token).decode("utf-8", "replace")
                    pieces[token] = text.replace("\ufffd", NO_TEXT)

    def _forget(self) -> None:
        if self._session is not None:
            self._session.clear_pool()
