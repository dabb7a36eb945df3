"""`localspec top`: the speed and the trees of a running server."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli import streams
from localspec.cli.options import LogOptions, with_options
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.tui.remote import Remote

#: of the panel that is printed: narrow enough for one column
MOST_WIDTH, MOST_HEIGHT = 60, 100

EPILOG = """Examples:

localspec top

localspec top --url http://192.168.1.7:8080 --api-key KEY

localspec top --once --json
"""


def register(app: typer.Typer) -> None:
    app.command("top", epilog=EPILOG)(top)


@with_options
def top(
    logs: LogOptions,
    url: Annotated[str, typer.Option("--url", help="The address of the server.")] = "http://127.0.0.1:8080",
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", envvar="LOCALSPEC_API_KEY", help="The key that the server asks for."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the panel once as text and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what the server tells as JSON and end.")] = False,
) -> None:
    """Watch a running server: its speed, its trees, what it accepts."""
    from localspec.tui.remote import Remote

    logs.set_up()
    remote = Remote(url, api_key)
    if as_json:
        import json

        from localspec.tui.feed import to_dict

        sys.stdout.write(json.dumps(to_dict(remote.fetch()), indent=2) + "\n")
    elif once:
        _print(remote)
    else:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError("top needs a terminal", "--once prints the panel as text, --json as data")
        from localspec.tui.top import TopApp

        TopApp(remote.fetch, remote.url, ascii_only=not streams.utf8()).run(mouse=False)


def _print(remote: Remote) -> None:
    """The panel as text, with colours on a terminal."""
    from localspec.cli.console import console
    from localspec.tui.palette import rich_theme
    from localspec.tui.render.panel import panel

    snapshot = remote.fetch()
    out = console(stderr=False)
    # nothing is known of the background: the colours of the terminal fit it
    out.push_theme(rich_theme("ansi"))
    width = min(MOST_WIDTH, out.width)
    out.print(f"{snapshot.model or 'no model'} at {remote.url}", style="dim", markup=False, soft_wrap=True)
    out.print(panel(snapshot, width, MOST_HEIGHT, ascii_only=not streams.utf8()), no_wrap=True, crop=False)
