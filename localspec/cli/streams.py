"""The standard streams: what happens when one is closed, full, or not text."""

from __future__ import annotations

import errno
import os
import sys
from typing import TextIO

from localspec.errors import UsageError

FAILED = 1
#: what writing to a stream can fail with; an error of a file carries the file's name
_OUTPUT_ERRORS = (
    errno.EPIPE,
    errno.ENOSPC,
    getattr(errno, "EDQUOT", errno.ENOSPC),
    errno.EFBIG,
    errno.EIO,
    errno.EBADF,
)


def open_streams() -> bool:
    """Give closed streams a place to go; returns whether stdout was open.

    A descriptor that stays closed would be given to the next file that anybody opens, and what native code or Python
    writes to it would end up there.
    """
    stdout_open = sys.stdout is not None
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    return stdout_open


def utf8() -> bool:
    """Whether stdout takes all characters."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def finish(code: int) -> int:
    """Flush the streams at the end of the program; returns the exit code."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        return output_failed(error)
    return code


def output_failed(error: OSError) -> int:
    """Tell that stdout cannot be written, if that is what `error` means, and return the exit code; else raise it.

    A reader that is gone (as with `| head`) is no news, and a full stderr can tell nothing.
    """
    if error.filename is not None or error.errno not in _OUTPUT_ERRORS:
        raise error
    _discard(sys.stdout)
    if error.errno == errno.EPIPE:
        _discard(sys.stderr)
    else:
        say(f"error: stdout cannot be written: {error.strerror}")
    return FAILED


def say(line: str) -> None:
    """A line on stderr, as far as that can be written."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Lose what is still to be written: Python would try again at exit, and fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, stream.fileno())
        stream.flush()
    finally:
        os.close(null)


def read_stdin() -> str:
    """All of stdin. Raises `UsageError` unless it is UTF-8."""
    strict_stdin()
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise not_utf8() from error


def strict_stdin() -> None:
    """Read stdin as UTF-8, whatever the locale; reading raises `UnicodeDecodeError` for anything else."""
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors="strict")


def not_utf8() -> UsageError:
    """The error for input that is not UTF-8."""
    return UsageError("stdin is not UTF-8 text", "convert it first, for example with iconv")
