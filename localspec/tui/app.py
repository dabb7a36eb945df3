"""The chat: a conversation beside the figures of its engine.

Everything is done in one thread. While the engine works, a timer looks at what it made, as often as `pace` allows;
while nothing goes on, nothing runs.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.constants import MAX_FPS
from textual.containers import Container, Horizontal
from textual.geometry import Size
from textual.timer import Timer
from textual.widgets import Footer

from localspec.errors import LocalspecError
from localspec.tui import keys, palette, terminal, themes
from localspec.tui.answering import Answers
from localspec.tui.backend import Backend, Failed, Loading, ModelInfo
from localspec.tui.blocks import code_of
from localspec.tui.board import Board
from localspec.tui.commands import ActionsProvider
from localspec.tui.config import Config, Panel
from localspec.tui.dialogs import Dialogs
from localspec.tui.drawing import Look
from localspec.tui.pace import TEXT_RATE
from localspec.tui.start import COMMANDS, Start, welcome
from localspec.tui.store import Store
from localspec.tui.talk import Talk
from localspec.tui.widgets.conversation import ConversationView
from localspec.tui.widgets.figures import Figures
from localspec.tui.widgets.prompt import Prompt

#: the width from which the panel stands beside the chat without being asked for, and from which it can
WIDE, NARROW = 100, 60
#: seconds between two looks at an engine that loads
_LOADING = 0.1
#: seconds in which a second ctrl+c quits
_TWICE = 2.0
#: how long the interpreter lets one thread run while another waits: the engine's steps come first
_SWITCH_SECONDS = 0.00005


class ChatApp(Dialogs):
    """`localspec chat` in a terminal of 60 columns or more."""

    CSS_PATH = "app.tcss"
    TITLE = "localspec"
    BINDINGS: ClassVar[list[BindingType]] = []
    COMMANDS = {ActionsProvider}  # noqa: RUF012 - a set in Textual

    def __init__(self, backend: Backend, config: Config, store: Store | None, start: Start | None = None) -> None:
        super().__init__(ansi_color=themes.ansi_color())
        themes.install(self)
        self.backend, self.config, self.store = backend, config, store
        self.start = start or Start()
        self.request, self.ascii_only = self.start.request, self.start.ascii_only
        self.log_lines = self.start.log_lines
        self.chosen_keys = config.keys
        for binding in keys.bindings(config.keys, "anywhere"):
            self._bindings.key_to_bindings.setdefault(binding.key, []).append(binding)
        self.board = Board(backend.piece, ascii_only=self.start.ascii_only)
        self.panel_mode: Panel = config.panel
        #: whether the panel was asked for, so that it is shown in a terminal that is not wide
        self._panel_wanted = False
        self._interrupted = float("-inf")
        self._watch: Timer | None = None
        self._drawn_as = Look()
        self.view = ConversationView(id="chat")
        self.prompt = Prompt(id="prompt", actions=keys.bindings(config.keys, "prompt"))
        self.panel, self.status = Figures(id="panel"), Figures(id="status")
        self.side, self.foot = Container(self.panel, id="side"), Container(self.status, id="foot")
        self.talk = Talk(self.view, store, backend.piece, self.tell, raw=not config.markdown, tint=config.tint)
        self.answers = Answers(self)

    def compose(self) -> ComposeResult:
        with Horizontal(id="main"):
            yield self.view
            yield self.side
        yield self.foot
        yield self.prompt
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self._switch_seconds = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        wanted = self.start.theme or self.config.theme or themes.DEFAULT
        self.theme = wanted if wanted in self.available_themes else themes.DEFAULT
        self.new_conversation()
        self.watch(self, "theme", self._look, init=True)
        self.talk.welcome(welcome(self.config.keys))
        self.prompt.focus()
        for line in self.start.problems:
            self.view.remark(line, palette.WARN)
        self.call_after_refresh(self.open_model, self.start.request)

    def on_unmount(self) -> None:
        sys.setswitchinterval(self._switch_seconds)

    # the engine

    def watch_engine(self, method: str | None = None) -> None:
        """Look at the engine until it has stopped loading, and uses `method` if that was asked for; then ask what
        waits."""
        if self._watch is not None:
            self._watch.stop()
        state, trouble = self.backend.state, self.backend.trouble()
        self.draw_figures()
        if trouble is not None:
            self.tell(LocalspecError(trouble.message, trouble.hint))
        changing = method is not None and trouble is None and isinstance(state, ModelInfo) and state.method != method
        if changing or isinstance(state, Loading):
            self._watch = self.set_timer(_LOADING, partial(self.watch_engine, None if trouble else method))
            return
        self.answers.loaded(state)
        if isinstance(state, Failed):
            self.view.remark(f"error: {state.message}", palette.BAD, state.hint)

    # what is shown

    def tell(self, error: LocalspecError) -> None:
        """Tell of a failure that ends nothing."""
        self.notify(f"{error.message}\n{error.hint}" if error.hint else error.message, severity="error", markup=False)

    def draw_figures(self) -> None:
        """Draw the status line and the panel, where they are shown."""
        self.board.engine(self.backend.state)
        if self.foot.display:
            self.status.show(self.board.status, self._drawn_as)
        if self.side.display:
            self.panel.show(self.board.panel, self._drawn_as)

    @property
    def most_updates(self) -> float:
        """Updates of the screen a second, as far as a person or TEXTUAL_FPS has a say."""
        return float(self.start.fps or self.config.fps or min(TEXT_RATE, MAX_FPS))

    def on_resize(self, event: events.Resize) -> None:
        self._arrange(event.size)

    def _arrange(self, size: Size) -> None:
        """Show what the mode and the size of the terminal allow."""
        width = size.width
        wide = width >= WIDE and not self.is_inline
        beside = self.panel_mode == "panel" and (wide or (self._panel_wanted and width >= NARROW))
        self.side.display = beside
        self.foot.display = self.panel_mode != "off"
        for footer in self.query(Footer):
            footer.display = size.height >= 20 and not self.is_inline
        self.call_after_refresh(self.draw_figures)

    def _look(self) -> None:
        tone = "none" if "NO_COLOR" in os.environ else themes.tone_of(self.current_theme)
        background = self.get_css_variables()["surface"] if tone in ("dark", "light") else None
        self._drawn_as = Look(tone, background)
        self.view.look_like(self._drawn_as)
        self.draw_figures()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Actions of the chat are for its own screen, and some for the prompt alone."""
        known = keys.BY_ID.get(action)
        if known is None:
            return True
        if len(self.screen_stack) > 1:
            return False
        return known.scope != "prompt" or isinstance(self.focused, Prompt)

    # writing

    def obey(self, text: str) -> bool:
        """Do what a message asks for that is a command of the plain chat; returns whether it was one."""
        action = COMMANDS.get(text.strip())
        if action is not None:
            self.prompt.put("")
            self.call_later(self.run_action, action)
        return action is not None

    def new_conversation(self) -> None:
        """Show an empty conversation, with the settings to begin with."""
        self.talk.show(self.start.conversation(self.config))

    def action_send(self) -> None:
        self.answers.send()

    def action_newline(self) -> None:
        self.prompt.insert_line()

    def action_focus_prompt(self) -> None:
        self.prompt.focus()

    def action_edit_last(self) -> None:
        self.answers.edit()

    def action_cancel(self) -> None:
        self.answers.cancel()

    def action_regenerate(self) -> None:
        self.answers.regenerate()

    def action_copy_answer(self) -> None:
        terminal.copy(self, self.answers.last_text(), "answer")

    def action_copy_code(self) -> None:
        code = code_of(self.answers.last_text() or "")
        terminal.copy(self, code[-1] if code else None, "block of code")

    def exit(self, *args: Any, **options: Any) -> None:
        """Leave; what is being written is kept as far as it is there."""
        self.talk.checkpoint()
        super().exit(*args, **options)

    def action_help_quit(self) -> None:
        """ctrl+c where nothing is selected: twice in a row it quits."""
        now = time.monotonic()
        if now - self._interrupted < _TWICE:
            self.exit()
            return
        self._interrupted = now
        self.notify("ctrl+c again quits; esc stops an answer")

    def action_clear(self) -> None:
        if self.answers.busy():
            return
        self.backend.forget()
        self.new_conversation()
        self.prompt.focus()

    # figures

    def action_panel(self) -> None:
        order: list[Panel] = ["off", "line", "panel"]
        shown: Panel = self.panel_mode if self.panel_mode != "panel" or self.side.display else "line"
        self.panel_mode = order[(order.index(shown) + 1) % len(order)]
        self._panel_wanted = self.panel_mode == "panel"
        self._arrange(self.size)

    def action_tint(self) -> None:
        self.talk.tint = not self.talk.tint
        self.talk.show(self.talk.conversation)

    def action_pause(self) -> None:
        self.board.pause()
        self.draw_figures()

    def action_step_back(self) -> None:
        self.board.step(1)
        self.draw_figures()

    def action_step_on(self) -> None:
        self.board.step(-1)
        self.draw_figures()

    def action_mouse(self) -> None:
        self.config = replace(self.config, mouse=not self.config.mouse)
        terminal.use_mouse(self, self.config.mouse)
        self.notify("the mouse scrolls and selects here" if self.config.mouse else "the mouse is the terminal's")

    def apply_settings(self, config: Config) -> None:
        self.theme = config.theme or themes.DEFAULT
        self.panel_mode = config.panel
        self.talk.raw, self.talk.tint = not config.markdown, config.tint
        self.talk.show(self.talk.conversation)
        terminal.use_mouse(self, config.mouse)
        self._arrange(self.size)

    def action_scroll_up(self) -> None:
        self.view.scroll_page_up(animate=False)

    def action_scroll_down(self) -> None:
        self.view.scroll_page_down(animate=False)
