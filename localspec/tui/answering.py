"""Asking: a question from the prompt, the answer as it comes, and what can be done with both."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from localspec.errors import LocalspecError
from localspec.events import StepEvent
from localspec.tui import palette
from localspec.tui.backend import Answering, Failed, Loading, ModelInfo, Question
from localspec.tui.pace import Pace
from localspec.tui.turn import Turn

if TYPE_CHECKING:
    from localspec.tui.app import ChatApp

#: seconds after which what was written so far is saved
KEEP_SECONDS = 10.0


class Answers:
    """The answer that is being written in `app`, if one is, and the question that waits for a model."""

    def __init__(self, app: ChatApp) -> None:
        self._app = app
        self._answering: Answering | None = None
        self._turn = Turn()
        self._pace = Pace()
        self._waiting = False
        self._kept = 0.0
        #: which question is being edited, by the index of its message
        self._editing: int | None = None

    @property
    def writing(self) -> bool:
        """Whether an answer is being written, or its question waits."""
        return self._answering is not None or self._waiting

    def busy(self) -> bool:
        """Whether an answer has to be stopped first; then that is told."""
        if self.writing:
            self._app.notify("an answer is being written: esc stops it", severity="warning")
        return self.writing

    def send(self) -> None:
        """Ask what is in the prompt."""
        app = self._app
        text = app.prompt.text
        if not text.strip() or app.obey(text) or self.busy():
            return
        if self._editing is not None:
            app.talk.take_back(self._editing)
            self._stop_editing()
        app.prompt.take()
        app.talk.ask(text)
        self._ask()

    def cancel(self) -> None:
        """Stop the answer, or give up what waits or is edited."""
        if self._answering is not None:
            self._answering.cancel()
        elif self._waiting:
            self._give_back()
        elif self._editing is not None:
            self._stop_editing()
            self._app.prompt.put("")

    def regenerate(self) -> None:
        """Write the last answer anew."""
        if not self.busy() and self._app.talk.drop_answer():
            self._app.view.follow()
            self._ask()

    def edit(self) -> None:
        """Put the last question into the prompt, to be asked differently; again for the one before."""
        app = self._app
        if self.busy():
            return
        messages = app.talk.conversation.messages
        asked = [index for index, message in enumerate(messages) if message.role == "user"]
        earlier = [index for index in asked if self._editing is None or index < self._editing] or asked[-1:]
        if earlier:
            self._editing = earlier[-1]
            app.prompt.put(messages[self._editing].content)
            app.prompt.border_subtitle = (
                f"editing question {asked.index(self._editing) + 1} of {len(asked)}, esc: leave"
            )
            app.prompt.focus()

    def last_text(self) -> str | None:
        """The text of the latest answer, which may not be whole yet."""
        if self._answering is not None:
            return self._turn.text
        return self._app.talk.conversation.last_answer()

    def opened(self) -> None:
        """Another conversation is shown."""
        self._stop_editing()
        self._app.prompt.remember(self._app.talk.questions)
        self._app.view.follow()

    def loaded(self, state: ModelInfo | Failed | Loading) -> None:
        """The engine has stopped loading."""
        if not self._waiting:
            return
        if isinstance(state, Failed):
            self._give_back()
        else:
            self._ask()

    def _ask(self) -> None:
        """Ask the last question, now or when there is a model."""
        app = self._app
        state = app.backend.state
        self._waiting = isinstance(state, Loading)
        if self._waiting:
            app.watch_engine()
            return
        talk = app.talk.conversation
        if isinstance(state, ModelInfo):
            talk.model, talk.method = state.name, state.method
        question = Question(
            talk.request(), sampling=dict(talk.sampling), max_tokens=talk.max_tokens, accept=talk.accept
        )
        try:
            self._answering = app.backend.ask(question)
        except LocalspecError as error:
            self._failed(error)
            return
        app.board.begin(talk.method or "", talk.accept)
        self._turn = app.talk.begin()
        self._pace = Pace(app.most_updates)
        self._kept = time.monotonic()
        self._look()

    def _look(self) -> None:
        """Show what the engine has made since the last look, and look again in a while."""
        app, answering = self._app, self._answering
        if answering is None:
            return
        text, n_tokens = "", 0
        done = answering.done
        for event in answering.take():
            app.board.feed(event)
            text += self._turn.feed(event)
            if isinstance(event, StepEvent):
                n_tokens += len(event.tokens)
        done = done or answering.done
        app.talk.grow(text, n_tokens)
        now = time.monotonic()
        wait = self._pace.update(now, time.thread_time())
        if done:
            self._end(answering.error)
        else:
            if now - self._kept > KEEP_SECONDS:
                self._kept = now
                app.talk.checkpoint()
            if self._pace.panel_due(now):
                app.draw_figures()
            app.set_timer(wait, self._look)

    def _end(self, error: LocalspecError | None) -> None:
        app = self._app
        self._answering = None
        kept = app.talk.end()
        app.draw_figures()
        if error is not None and kept:
            app.view.remark(f"error: {error.message}", palette.BAD, error.hint)
        elif error is not None:
            self._failed(error)
        elif not kept:
            self._give_back()

    def _failed(self, error: LocalspecError) -> None:
        self._give_back()
        self._app.view.remark(f"error: {error.message}", palette.BAD, error.hint)

    def _give_back(self) -> None:
        """Take the last question off the page, and give its text back to the prompt unless something is there."""
        app = self._app
        self._waiting = False
        messages = app.talk.conversation.messages
        if messages and messages[-1].role == "user":
            text = app.talk.take_back(len(messages) - 1)
            if not app.prompt.text:
                app.prompt.put(text)

    def _stop_editing(self) -> None:
        self._editing = None
        self._app.prompt.border_subtitle = ""
