"""The one error of the build, and how a person gets to see it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class BuildError(Exception):
    """The build cannot go on: `message` says what and why, `hint` what to do about it. Both fit in one line."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(f"{message}; {hint}" if hint else message)


def say(text: str) -> None:
    """One line of progress. pip and uv show it with -v, and when the build fails."""
    print(f"localspec: {text}", file=sys.stderr, flush=True)


def told_in_one_line(function: Callable[P, R]) -> Callable[P, R]:
    """Turn a failure that a person can act on into one line and exit code 1: installers then show no traceback."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BuildError as error:
            say(f"error: {error}")
        except OSError as error:
            say(f"error: {error}; check free space and permissions, or set LOCALSPEC_HOME to another folder")
        raise SystemExit(1)

    return wrapper
