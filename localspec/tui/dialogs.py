"""The actions of the chat that open a screen on top of it. Screens are imported when they are opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App

from localspec.errors import LocalspecError
from localspec.tui import themes
from localspec.tui.backend import ModelInfo, OpenRequest
from localspec.tui.config import Config, config_path

if TYPE_CHECKING:
    from localspec.tui.answering import Answers
    from localspec.tui.backend import Backend
    from localspec.tui.logbook import LogLine
    from localspec.tui.screens.models import ModelRow
    from localspec.tui.screens.save import SaveRequest
    from localspec.tui.store import Store
    from localspec.tui.talk import Talk


class Dialogs(App[None]):
    """What dialogs need of the chat, and the actions that open them."""

    backend: Backend
    config: Config
    store: Store | None
    talk: Talk
    answers: Answers
    request: OpenRequest
    ascii_only: bool
    log_lines: Callable[[], Sequence[LogLine]]

    def tell(self, error: LocalspecError) -> None:
        """Tell of a failure that ends nothing."""
        raise NotImplementedError

    def watch_engine(self, method: str | None = None) -> None:
        """Look at the engine until it has stopped loading, and uses `method` if that was asked for."""
        raise NotImplementedError

    def apply_settings(self, config: Config) -> None:
        """Show everything as the configuration has it."""
        raise NotImplementedError

    # the engine

    def action_model(self) -> None:
        from localspec.tui.screens.models import ModelPicker

        def chosen(row: ModelRow | None) -> None:
            if row is not None and row.path is not None:
                # heads, the draft model and the method were asked for with another model
                options = {name: value for name, value in self.request.options.items() if name in _KEPT}
                self.open_model(OpenRequest(str(row.path), None, None, options))

        state = self.backend.state
        try:
            rows = self.backend.models()
        except LocalspecError as error:
            self.tell(error)
            return
        self.push_screen(ModelPicker(rows, state.name if isinstance(state, ModelInfo) else None), chosen)

    def open_model(self, request: OpenRequest) -> None:
        """Load a model; an answer under way ends."""
        self.request = request
        self.backend.open(request)
        self.watch_engine()

    def action_method(self) -> None:
        from localspec.tui.screens.methods import MethodPicker, method_rows

        if self.answers.busy():
            return
        state = self.backend.state
        info = state if isinstance(state, ModelInfo) else None

        def chosen(name: str | None) -> None:
            if name is not None and not self.answers.busy():
                self.backend.set_method(name)
                self.watch_engine(name)

        rows = method_rows(info.methods if info else ())
        self.push_screen(MethodPicker(rows, info.method if info else None), chosen)

    def action_sampling(self) -> None:
        from localspec.tui.screens.sampling import SamplingScreen

        talk = self.talk.conversation

        def chosen(values: dict[str, Any] | None) -> None:
            if values is not None:
                talk.max_tokens = values.pop("max_tokens", None)
                talk.accept = values.pop("accept", None)
                talk.sampling = {**talk.sampling, **values}
                self.talk.keep()

        given = {**talk.sampling, "max_tokens": talk.max_tokens, "accept": talk.accept}
        self.push_screen(SamplingScreen(given), chosen)

    def action_system(self) -> None:
        from localspec.tui.screens.system import SystemScreen

        def chosen(text: str | None) -> None:
            if text is not None:
                self.talk.conversation.system = text or None
                self.talk.keep()
                self.notify("the system message is set" if text else "there is no system message now")

        self.push_screen(SystemScreen(self.talk.conversation.system or ""), chosen)

    # conversations

    def action_open_conversation(self) -> None:
        from localspec.tui.screens.conversations import ConversationsScreen

        store = self.store
        if store is None or self.answers.busy():
            return

        current = self.talk.conversation

        def chosen(id: str | None) -> None:
            if any(entry.id == current.id for entry in store.entries()[0]):
                current.name = store.load(current.id).name  # it may have been renamed there
            if id is not None and id != current.id and not self.answers.busy():
                self._open(store, id)

        def export(id: str, request: SaveRequest) -> None:
            _export(store.load(id), request)

        self.push_screen(ConversationsScreen(store, export, current.id, Path.cwd()), chosen)

    def _open(self, store: Store, id: str) -> None:
        try:
            conversation = store.load(id)
        except LocalspecError as error:
            self.tell(error)
            return
        self.backend.forget()
        self.talk.show(conversation)
        self.answers.opened()

    def action_save_as(self) -> None:
        from localspec.tui.screens.conversations import file_name
        from localspec.tui.screens.save import SaveScreen

        conversation = self.talk.conversation

        def chosen(request: SaveRequest | None) -> None:
            if request is None:
                return
            try:
                _export(conversation, request)
            except LocalspecError as error:
                self.tell(error)
            else:
                self.notify(f"written to {request.path}", markup=False)

        self.push_screen(SaveScreen(file_name(conversation.title), Path.cwd()), chosen)

    # the app

    def action_theme(self) -> None:
        from localspec.tui.screens.settings import ThemePicker

        def chosen(name: str | None) -> None:
            if name is not None:
                self._keep(replace(self.config, theme=name))

        self.push_screen(ThemePicker(themes.theme_names(self.available_themes)), chosen)

    def action_settings(self) -> None:
        from localspec.tui.screens.settings import SettingsScreen

        config = self.config
        names = ("panel", "tint", "markdown", "mouse", "fps")
        values = {"theme": self.theme, **{name: getattr(config, name) for name in names}}

        def chosen(changed: Mapping[str, Any] | None) -> None:
            if changed is not None:
                self._keep(replace(self.config, **changed))

        self.push_screen(SettingsScreen(values, themes.theme_names(self.available_themes)), chosen)

    def action_help(self) -> None:
        from localspec.tui.screens.help import HelpScreen

        self.push_screen(HelpScreen(self.config.keys, ascii_only=self.ascii_only))

    def action_logs(self) -> None:
        from localspec.tui.screens.logs import LogScreen

        self.push_screen(LogScreen(self.log_lines))

    def _keep(self, config: Config) -> None:
        """Use a configuration, and write down what was changed in it."""
        self.config = config
        self.apply_settings(config)
        try:
            config.write(config_path())
        except LocalspecError as error:
            self.tell(error)


#: options of the command line that go with any model
_KEPT = ("context", "n_gpu_layers", "pool")


def _export(conversation: Any, request: SaveRequest) -> None:
    from localspec.tui.store import export

    export(conversation, request.path, overwrite=True)
