"""The Typer application, and how every command ends: exit codes and error lines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from localspec import __version__
from localspec.cli import (
    bench,
    calibrate,
    chat,
    convert_heads,
    doctor,
    drafts,
    evaluate,
    generate,
    models,
    replay,
    serve,
    streams,
    top,
    train_heads,
    verify,
)
from localspec.errors import LocalspecError

INTERRUPTED = 130

# Typer brings its own copy of click since 0.20 or so; this base class is reached the same way in all versions.
_ClickError: Any = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")


class _Group(TyperGroup):
    """Ends the process with localspec's exit codes, and without tracebacks for what people cause."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        extra["windows_expand_args"] = windows_expand_args
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        if not streams.open_streams():
            sys.exit(fail("stdout is closed", "send it to /dev/null to throw it away", streams.FAILED))
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except LocalspecError as error:
            code = fail(error.message, error.hint, error.exit_code)
        except _ClickError as error:
            code = error.exit_code
            # no arguments at all: the help was shown, and that is all there is to say
            if error.format_message():
                path = error.ctx.command_path if getattr(error, "ctx", None) else prog_name or "localspec"
                fail(error.format_message(), f"{path} --help shows the options", code)
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except OSError as error:
            code = streams.output_failed(error)
        sys.exit(streams.finish(code if isinstance(code, int) else 0))


def fail(message: str, hint: str | None, code: int) -> int:
    """Tell an error on stderr, one line and one for the hint, and return the exit code."""
    streams.say(f"error: {' '.join(message.split())}")
    if hint:
        streams.say(f"hint: {' '.join(hint.split())}")
    return code


app = typer.Typer(
    cls=_Group,
    name="localspec",
    help="Faster local language models: llama.cpp with tree-based speculative decoding that measures what pays.",
    epilog="Start with: localspec chat",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"localspec {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


for _module in (
    chat,
    generate,
    bench,
    evaluate,
    verify,
    replay,
    calibrate,
    doctor,
    models,
    drafts,
    convert_heads,
    train_heads,
    top,
    serve,
):
    _module.register(app)
