"""Logs while the screen belongs to the app: lines that are kept for the log viewer, and a guard for the screen itself.

What native code prints goes to file descriptors 1 and 2, past everything that Python could catch.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TextIO

#: lines that are kept
MOST = 2000
#: a line longer than this is cut
MOST_CHARS = 2000
#: what was printed is logged under this name
PRINTED = "localspec.printed"

#: bytes of printed text after which what was read is given back to the disk
_SINK_BYTES = 1 << 20
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log. `time` is in seconds since the epoch, `level` one of `logging`; `text` has no controls."""

    time: float
    level: int
    name: str
    text: str


class LogBook(logging.Handler):
    """Keeps the last lines that were logged, from DEBUG up, and those printed while `guarded_screen` was open."""

    def __init__(self, most: int = MOST) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(message)s"))
        self._lines: deque[LogLine] = deque(maxlen=most)
        self._sink: _Sink | None = None
        self._n = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, each of its lines as a line of its own."""
        try:
            for line in self.format(record).splitlines():
                self._add(LogLine(record.created, record.levelno, record.name, _harmless(line)))
        except Exception:
            self.handleError(record)

    def lines(self) -> list[LogLine]:
        """The kept lines, the oldest first."""
        return self._read(last=False)

    @property
    def n_lines(self) -> int:
        """How many lines there were so far, those counted that are not kept any more."""
        return self._n

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """While this is open all logs come here, those of other libraries from warnings up, and to log files, but not
        to the terminal."""
        ours, root = logging.getLogger("localspec"), logging.getLogger()
        silenced = [(logger, _to_terminal(logger)) for logger in (ours, root)]
        level, others = ours.level, _Others(self)
        try:
            for logger, handlers in silenced:
                for handler in handlers:
                    logger.removeHandler(handler)
            ours.addHandler(self)
            root.addHandler(others)
            ours.setLevel(min(level or logging.DEBUG, logging.DEBUG))
            logging.captureWarnings(True)
            yield
        finally:
            logging.captureWarnings(False)
            ours.setLevel(level)
            ours.removeHandler(self)
            root.removeHandler(others)
            for logger, handlers in silenced:
                for handler in handlers:
                    logger.addHandler(handler)

    @contextlib.contextmanager
    def reading(self, sink: _Sink) -> Iterator[None]:
        """While this is open, and at its end, `lines` has what came to `sink`."""
        self._sink = sink
        try:
            yield
        finally:
            self._read(last=True)
            self._sink = None

    def _read(self, last: bool) -> list[LogLine]:
        self.acquire()
        try:
            for time, line in self._sink.read(last) if self._sink is not None else ():
                if text := _harmless(line).rstrip():
                    _log_printed(time, text)
            return list(self._lines)
        finally:
            self.release()

    def _add(self, line: LogLine) -> None:
        self._lines.append(line)
        self._n += 1


class _Others(logging.Handler):
    """Hands on what other libraries warn of. Ours do not come by here, unless nobody set their logger up."""

    def __init__(self, book: LogBook) -> None:
        super().__init__(logging.WARNING)
        self._book = book
        self.addFilter(lambda record: not record.name.startswith("localspec"))

    def emit(self, record: logging.LogRecord) -> None:
        self._book.handle(record)


class _Sink:
    """A file that takes what is printed. Not a pipe: nobody could empty one while native code holds the interpreter."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._offset = 0
        self._pending = b""

    def read(self, last: bool = False) -> list[tuple[float, str]]:
        """The lines since the last call, with the time of the latest; unless it is the `last` one, a line without an
        end waits for it."""
        status = os.fstat(self._file.fileno())
        data = self._rest(status.st_size - self._offset)
        self._offset += len(data)
        if self._offset > _SINK_BYTES:
            # whoever prints appends, so that this is the end for them too
            self._file.truncate(0)
            self._offset = 0
        *lines, self._pending = (self._pending + data).split(b"\n")
        if last:
            lines.append(self._pending)
        return [(status.st_mtime, line.decode("utf-8", "replace")) for line in lines]

    def _rest(self, size: int) -> bytes:
        if hasattr(os, "pread"):
            # a position of the file's own would move with every line that is printed meanwhile
            return os.pread(self._file.fileno(), size, self._offset)
        self._file.seek(self._offset)
        return self._file.read(size)


@contextlib.contextmanager
def guarded_screen(book: LogBook) -> Iterator[None]:
    """While this is open, the terminal is for those alone who write to Python's own streams: what goes to the file
    descriptors 1 and 2, as native code and other programs print, comes to `book`. So do all logs.

    To be opened before the app is made, which remembers the streams. Whatever happens, all is as before at the end.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(book.listening())
        sink_file = stack.enter_context(tempfile.TemporaryFile("a+b", buffering=0))
        streams = {name: getattr(sys, name) for name in ("stdout", "stderr", "__stdout__", "__stderr__")}
        _flush(streams.values())
        try:
            saved = [stack.enter_context(os.fdopen(os.dup(fd), "wb", 0)) for fd in (1, 2)]
        except OSError:  # no descriptors, as in a windowed process: there is nothing to guard
            yield
            return
        stack.enter_context(book.reading(_Sink(sink_file)))
        stack.callback(_restore, streams, saved)
        for name, raw in _terminal(saved).items():
            stream = _stream(raw, streams[name])
            for each in (name, f"__{name}__"):
                setattr(sys, each, stream)
        for fd in (1, 2):
            os.dup2(sink_file.fileno(), fd)
        yield


def _restore(streams: dict[str, TextIO | None], saved: Sequence[IO[bytes]]) -> None:
    """Give descriptors and streams back what they had."""
    _flush([*streams.values(), *(getattr(sys, name) for name in streams)])
    for fd, raw in zip((1, 2), saved, strict=True):
        os.dup2(raw.fileno(), fd)
    for name, stream in streams.items():
        setattr(sys, name, stream)


def _terminal(saved: Sequence[IO[bytes]]) -> dict[str, IO[bytes]]:
    """Where Python's streams go: to where they went, but both to the terminal if one of them does, since the app
    writes to stderr and asks stdout for its size."""
    out, err = saved
    screen = next((raw for raw in (err, out) if raw.isatty()), None)
    return {"stdout": out, "stderr": err} if screen is None else {"stdout": screen, "stderr": screen}


def _stream(raw: IO[bytes], like: TextIO | None) -> TextIO:
    encoding = "utf-8" if like is None else like.encoding
    errors = "replace" if like is None else like.errors
    # closed by whoever opened the descriptor, not by the end of this object
    return open(raw.fileno(), "w", encoding=encoding, errors=errors, closefd=False)


def _flush(streams: Iterable[TextIO | None]) -> None:
    for stream in streams:
        with contextlib.suppress(ValueError, OSError):
            if stream is not None:
                stream.flush()


def _log_printed(time: float, text: str) -> None:
    """Log a line as of the time when it was printed, for the log file as well."""
    logger = logging.getLogger(PRINTED)
    record = logger.makeRecord(PRINTED, logging.INFO, "", 0, text, (), None)
    record.created = time
    logger.handle(record)


def _to_terminal(logger: logging.Logger) -> list[logging.Handler]:
    """The handlers of a logger that may write to the screen."""
    harmless = (logging.FileHandler, logging.NullHandler, LogBook)
    return [handler for handler in logger.handlers if not isinstance(handler, harmless)]


def _harmless(text: str) -> str:
    """`text` without what moves a cursor or changes colours, and not too long."""
    text = _ESCAPES.sub("", text)
    return text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 1] + "…"
