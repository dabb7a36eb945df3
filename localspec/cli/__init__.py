"""The command line. `main` is the entry point; each command lives in a module of its own.

Errors are mapped here, once: a `LocalspecError` becomes one line on stderr, a hint, and its exit code.
"""

from __future__ import annotations

from localspec.cli.app import app


def main() -> None:
    """Run the command line and exit."""
    app(prog_name="localspec")


__all__ = ["app", "main"]
