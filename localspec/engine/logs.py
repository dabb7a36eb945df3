"""Native logs of llama.cpp and ggml, routed into `logging` under the name "localspec.native".

The library writes to the terminal unless a callback takes its lines. `install` sets ours once for the process; it must
run after `llama_cpp` was imported, because that package sets a printing callback of its own at import.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator

from llama_cpp import llama_cpp as L

logger = logging.getLogger("localspec.native")

_CONTINUED = 5
#: below DEBUG: what ggml itself calls debug, a line a tensor and more
TRACE = 5
# ggml's levels: 0 none, 1 debug, 2 info, 3 warn, 4 error. Its "info" is chatter and its "warn" is mostly advice to
# developers, so a normal load stays below WARNING.
_LEVELS = {0: TRACE, 1: TRACE, 2: logging.DEBUG, 3: logging.INFO, 4: logging.ERROR}

_lock = threading.RLock()
_errors: deque[str] = deque(maxlen=64)
_n_errors = 0
_installed = False


class _Lines:
    """Joins fragments into lines: a fragment without a newline waits for its continuation."""

    def __init__(self) -> None:
        self._level = logging.DEBUG
        self._pending = ""

    def feed(self, level: int, text: str) -> None:
        if level != _CONTINUED:
            self._flush()
            self._level = _LEVELS.get(level, logging.DEBUG)
        *lines, self._pending = (self._pending + text).split("\n")
        for line in lines:
            self._emit(line)

    def _flush(self) -> None:
        if self._pending:
            self._emit(self._pending)
            self._pending = ""

    def _emit(self, line: str) -> None:
        line = line.rstrip()
        if not line.strip("."):  # empty, or the dots of a progress bar
            return
        if self._level >= logging.ERROR:
            global _n_errors
            _errors.append(line)
            _n_errors += 1
        logger.log(self._level, "%s", line)


_lines = _Lines()


@L.llama_log_callback
def _callback(level: int, text: bytes | None, _user_data: object) -> None:
    # An exception cannot cross the C frames above us, and a log line is not worth one.
    with contextlib.suppress(Exception), _lock:
        _lines.feed(level, (text or b"").decode("utf-8", "replace"))


@L.llama_log_callback
def _silent(_level: int, _text: bytes | None, _user_data: object) -> None:
    return None


def install() -> None:
    """Route native logs into `logging`. Idempotent."""
    global _installed
    with _lock:
        if _installed:
            return
        # Without any handler, logging's last resort would print errors to the terminal.
        logging.getLogger("localspec").addHandler(logging.NullHandler())
        L.llama_log_set(_callback, None)
        atexit.register(L.llama_log_set, _silent, None)
        _installed = True


def n_errors() -> int:
    """How many native error lines there were so far: a mark to take before a call that may fail."""
    return _n_errors


def errors_since(mark: int) -> list[str]:
    """The native error lines after a mark (the last 64 of them)."""
    with _lock:
        return list(_errors)[max(len(_errors) - (_n_errors - mark), 0) :]


def reason(mark: int, fallback: str) -> str:
    """The first native error line after a mark, which names the cause (the later ones say who gave up), without the
    name of the C function that wrote it."""
    lines = errors_since(mark)
    if not lines:
        return fallback
    head, separator, tail = lines[0].partition(": ")
    return tail if separator and " " not in head else lines[0]


@contextlib.contextmanager
def captured_stderr() -> Iterator[list[str]]:
    """Catch what native code writes straight to file descriptor 2; the list is filled on exit.

    For the few functions of llama.cpp that bypass the log callback. Keep the body short: the descriptor belongs to
    the whole process.
    """
    captured: list[str] = []
    with _lock, contextlib.ExitStack() as stack:
        try:
            saved = os.dup(2)
        except OSError:  # a windowed process has no stderr, so there is nothing to protect
            yield captured
            return
        stack.callback(os.close, saved)
        sink = stack.enter_context(tempfile.TemporaryFile())
        with contextlib.suppress(AttributeError, ValueError, OSError):
            sys.stderr.flush()
        os.dup2(sink.fileno(), 2)
        try:
            yield captured
        finally:
            os.dup2(saved, 2)
            sink.seek(0)
            captured.extend(sink.read().decode("utf-8", "replace").splitlines())
            for line in captured:
                logger.debug("%s", line)
