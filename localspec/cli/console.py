"""What the commands write: consoles, progress bars, status lines, logs. Answers go to stdout, all else to stderr."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from localspec.errors import UsageError
from localspec.text import without_controls

if TYPE_CHECKING:
    from rich.console import Console

    from localspec.events import DoneEvent


def console(*, stderr: bool = True) -> Console:
    """A rich console on stderr (or stdout); plain text without a terminal or with NO_COLOR."""
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    # a file or a pipe has no width, so tables need not be squeezed into 80 columns
    file = sys.stderr if stderr else sys.stdout
    width = None if file.isatty() or "COLUMNS" in os.environ else 160
    return Console(stderr=stderr, color_system=None if plain else "auto", highlight=False, width=width)


def note(text: str) -> None:
    """One dim line on stderr."""
    out = console()
    # a terminal gets lines broken between words; a file gets them whole
    out.print(text, style="dim", markup=False, soft_wrap=not out.is_terminal)


def write_answer(text: str) -> None:
    """A piece of an answer to stdout, at once; without control characters when that is a terminal."""
    if text:
        sys.stdout.write(without_controls(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()


@contextmanager
def progress_bar() -> Iterator[Callable[[str, float], None]]:
    """A bar on stderr that appears with the first report (what, share) and goes away at the end.

    Silent without a terminal.
    """
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    out = console()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def report(what: str, share: float) -> None:
            if what not in tasks:
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[what] = bar.add_task(what, total=1.0)
            bar.update(tasks[what], completed=share)

        yield report


def status_line(done: DoneEvent, method: str, *notes: str) -> str:
    """The line below an answer."""
    stats = done.stats
    parts = [f"{stats.tokens_per_second:.1f} tok/s", f"{stats.n_tokens} tokens"]
    if stats.n_drafted:
        parts.append(f"{stats.tokens_per_step:.2f} tokens/step")
    parts.append(method if done.lossless else f"{method}, lossy")
    if not done.lossless:
        parts.append(f"{done.accept}: {stats.n_forgiven} of {stats.n_tokens} tokens forgiven")
    ends = {"length": "cut at the limit", "cancelled": "stopped"}
    if done.reason in ends:
        parts.append(ends[done.reason])
    return " · ".join([*parts, *(text for text in notes if text)])


@contextmanager
def interrupt_flag() -> Iterator[Callable[[], bool]]:
    """While this is open the first ctrl-c sets the flag that is returned; a second one interrupts as usual."""
    pressed = False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    # an exception out of a native call would leave the engine in the middle of a step
    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, previous)


class Interrupts:
    """Ctrl-c during a conversation: `KeyboardInterrupt` while a message is typed, else a flag.

    So a press just as an answer ends does no harm; whoever goes on pressing interrupts as usual with the third one.
    """

    _MOST = 3

    def __init__(self) -> None:
        self._presses = 0
        self._typing = False

    def __enter__(self) -> Interrupts:
        self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._presses += 1
        if self._typing or self._presses >= self._MOST:
            raise KeyboardInterrupt

    def pressed(self) -> bool:
        """Whether ctrl-c was pressed since `reset`."""
        return self._presses > 0

    def reset(self) -> None:
        """Something new begins, that a press has not been meant for."""
        self._presses = 0

    @contextmanager
    def typing(self) -> Iterator[None]:
        """While this is open a press raises."""
        try:
            self._typing = True
            yield
        finally:
            self._typing = False


class _TerminalHandler(logging.Handler):
    """Writes to what sys.stderr is at that moment: a progress bar replaces it, to keep lines apart from the bar."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.levelname.lower()}: {record.getMessage()}", file=sys.stderr)


def set_up_logging(log_file: Path | None, verbose: bool) -> None:
    """Warnings of localspec to stderr (with `verbose` more), everything to `log_file`; native lines only there."""
    root = logging.getLogger("localspec")
    root.setLevel(1 if log_file else logging.INFO)
    root.propagate = False
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    terminal = _TerminalHandler()
    terminal.setLevel(logging.INFO if verbose else logging.WARNING)
    terminal.addFilter(lambda record: not record.name.startswith("localspec.native"))
    root.addHandler(terminal)
    if log_file is not None:
        try:
            file = logging.FileHandler(log_file, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"the log file {log_file} cannot be written: {error.strerror}") from error
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        root.addHandler(file)
