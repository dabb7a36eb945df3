"""`localspec chat`: a conversation in the terminal, in an app where there is room for one, else as plain text."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from localspec.cli import chat_plain
from localspec.cli.accepting import AcceptOptions
from localspec.cli.options import EngineOptions, LimitOptions, LogOptions, MethodOptions, SamplingOptions, with_options
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.engine.params import SamplingParams
    from localspec.tui.backend import OpenRequest
    from localspec.tui.start import Start
    from localspec.worker import SessionWorker

EPILOG = """Examples:

localspec chat

localspec chat -m qwen2.5-coder-1.5b-instruct --system "Answer briefly." --temp 0.2

localspec chat --plain

F1 explains the keys. Without a terminal, or in one of fewer than 60 columns, it is plain text, where /help lists the
commands, ctrl-c stops an answer and ctrl-d leaves.
"""
DISPLAY = "Display"
#: columns that the app needs
NARROW = 60


@dataclass
class DisplayOptions:
    """How the conversation is shown."""

    plain: Annotated[
        bool, Option("--plain", help="Plain text that streams, without an app.", rich_help_panel=DISPLAY)
    ] = False
    inline: Annotated[
        bool, Option("--inline", help="A small app below the shell's prompt.", rich_help_panel=DISPLAY)
    ] = False
    fps: Annotated[
        float | None,
        Option("--fps", min=0.2, max=60, help="Most updates of the screen a second, for slow lines.",
               rich_help_panel=DISPLAY),
    ] = None  # fmt: skip
    theme: Annotated[
        str | None,
        Option("--theme", help="localspec-dark, localspec-light, ansi-dark, ansi-light or another of Textual's.",
               rich_help_panel=DISPLAY),
    ] = None  # fmt: skip

    def wants_app(self) -> bool:
        """Whether there is a terminal for the app, and it is wanted. Raises `UsageError` where --inline has none."""
        terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        if self.inline and (self.plain or not terminal or os.name == "nt"):
            reason = "--plain is no app" if self.plain else "there is no terminal that it could be shown in"
            raise UsageError(f"--inline cannot be used: {reason}", "leave it out")
        wide = self.inline or shutil.get_terminal_size().columns >= NARROW
        return terminal and not self.plain and wide

    def checked_theme(self) -> str | None:
        """The theme that was asked for. Raises `UsageError` when there is none of that name."""
        if self.theme is not None and self.theme not in (names := _themes()):
            raise UsageError(f"there is no theme {self.theme!r}", ", ".join(names))
        return self.theme


def register(app: typer.Typer) -> None:
    app.command("chat", epilog=EPILOG)(chat)


@with_options
def chat(
    engine: EngineOptions,
    how: MethodOptions,
    sampling: SamplingOptions,
    accepting: AcceptOptions,
    limits: LimitOptions,
    display: DisplayOptions,
    logs: LogOptions,
    system: Annotated[str | None, Option("--system", help="The system message.")] = None,
    pool: Annotated[
        bool,
        Option("--pool/--no-pool", help="Draft from what earlier conversations taught, until you leave."),
    ] = True,
) -> None:
    """Chat with a model in the terminal."""
    if not display.wants_app():
        logs.set_up()
        chat_plain.run(engine, how, sampling, accepting, limits, system=system, pool=pool)
        return
    from localspec.tui.start import Start

    params = sampling.sampling()
    start = Start(
        open_request(engine, how, pool=pool),
        fps=display.fps,
        sampling=_preset(params, limits),
        system=system,
        accept=None if accepting.accept == AcceptOptions().accept else accepting.accept,
        theme=display.checked_theme(),
        ascii_only=not _utf8(),
    )
    _run_app(_worker(params, accepting, how, limits), start, logs, inline=display.inline)


def open_request(engine: EngineOptions, how: MethodOptions, *, pool: bool) -> OpenRequest:
    """What the worker is to open. Raises `UsageError` for options that cannot be used."""
    from localspec.tui.backend import OpenRequest

    options: dict[str, Any] = {"context": engine.context(), "n_gpu_layers": engine.gpu_layers, "pool": pool}
    if engine.heads:
        options["heads"] = tuple(engine.heads)
    if how.bank is not None:
        options["task"] = how.bank
    if engine.draft_ctx_size is not None:
        engine.drafting()  # refuses it without a draft model
        options["draft_n_ctx"] = engine.draft_ctx_size
    return OpenRequest(engine.model, how.method, engine.draft, options)


def _worker(
    params: SamplingParams, accepting: AcceptOptions, how: MethodOptions, limits: LimitOptions
) -> SessionWorker:
    from localspec.worker import SessionWorker

    limits.check_stops()
    acceptance = None
    if accepting != AcceptOptions():
        accepting.acceptance(params, how.method)  # refuses at once what cannot be used

        def acceptance(sampling: SamplingParams) -> Any:
            return accepting.acceptance(sampling, None)

    return SessionWorker(params, acceptance, limits.stop or ())


def _preset(params: SamplingParams, limits: LimitOptions) -> dict[str, Any]:
    """What the command line says of sampling that can be changed in the app; the worker has the rest."""
    from localspec.engine.params import SamplingParams
    from localspec.tui.config import SAMPLING

    changed = {item.name: getattr(params, item.name) for item in fields(params) if item.name in SAMPLING}
    preset = {name: value for name, value in changed.items() if value != getattr(SamplingParams(), name)}
    return preset if limits.max_tokens is None else {**preset, "max_tokens": limits.max_tokens}


def _run_app(worker: SessionWorker, start: Start, logs: LogOptions, *, inline: bool) -> None:
    from localspec.tui.app import ChatApp
    from localspec.tui.config import Config, config_path
    from localspec.tui.logbook import LogBook, guarded_screen
    from localspec.tui.store import Store, conversations_dir

    config, problems = Config.read(config_path(), _themes())
    logs.set_up()
    book = LogBook()
    with guarded_screen(book):
        start = replace(start, problems=problems, log_lines=book.lines)
        app = ChatApp(worker, config, Store(conversations_dir()), start)
        try:
            app.run(inline=inline, inline_no_clear=True, mouse=config.mouse)
        finally:
            worker.close()
    if app.return_code:
        raise typer.Exit(app.return_code)


def _themes() -> list[str]:
    """The names of all themes."""
    from textual.theme import BUILTIN_THEMES

    from localspec.tui import themes

    return themes.theme_names({**BUILTIN_THEMES, **{theme.name: theme for theme in themes.OWN}})


def _utf8() -> bool:
    """Whether what is written to the terminal may be any character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
