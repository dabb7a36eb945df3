"""The log viewer's lines, and that nothing but the app reaches the screen."""

from __future__ import annotations

import ast
import contextlib
import logging
import os
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from localspec.cli.console import set_up_logging
from localspec.tui.logbook import MOST_CHARS, LogBook, guarded_screen

log = logging.getLogger("localspec.test")


def texts(book: LogBook) -> list[str]:
    return [line.text for line in book.lines()]


def test_the_last_lines_are_kept_with_level_and_origin() -> None:
    book = LogBook(most=3)
    with book.listening():
        log.log(5, "every tensor")
        log.debug("one")
        log.error("two\nthree \x1b[31mred\x1b[0m\x07")
        log.info("x" * 9999)
    log.warning("too late")
    lines = book.lines()
    assert [line.text for line in lines[:2]] == ["two", "three red"]
    assert (lines[0].level, lines[0].name) == (logging.ERROR, "localspec.test")
    assert len(lines[2].text) == MOST_CHARS
    assert book.n_lines == 4


def test_an_exception_is_logged_with_its_traceback() -> None:
    book = LogBook()
    with book.listening():
        try:
            raise ValueError("odd")
        except ValueError:
            log.exception("it failed")
    assert texts(book)[0] == "it failed" and texts(book)[-1] == "ValueError: odd"


def test_warnings_of_other_libraries_come_too_and_once() -> None:
    book = LogBook()
    logging.getLogger("localspec").propagate = True
    with book.listening(), warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.getLogger("httpx").info("chatter")
        logging.getLogger("httpx").warning("slow")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        log.warning("ours")
    assert texts(book)[0] == "slow" and texts(book)[-1] == "ours"
    assert "DeprecationWarning: old" in texts(book)[1]
    assert texts(book).count("ours") == 1


def test_the_terminal_is_spared_and_the_log_file_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log"
    set_up_logging(file, verbose=True)
    with LogBook().listening():
        log.log(5, "every tensor")
        log.warning("meanwhile")
    log.warning("afterwards")
    assert capsys.readouterr().err == "warning: afterwards\n"
    for text in ("every tensor", "meanwhile", "afterwards"):
        assert text in file.read_text()


CHILD = """
import ctypes, logging, os, subprocess, sys, warnings
from localspec.cli.console import set_up_logging
from localspec.tui.logbook import LogBook, guarded_screen

set_up_logging(None, False)
book = LogBook()
before = sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__
print("before")
try:
    with guarded_screen(book):
        {body}
except ZeroDivisionError:
    print("raised")
assert before == (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
os.write(1, b"fd 1 is back\\n")
os.write(2, b"fd 2 is back\\n")
print("KEPT", [(line.name, line.text) for line in book.lines()])
"""

PRINTS = """
        print("the app's own")
        sys.__stderr__.write("what the driver writes\\n")
        sys.__stderr__.flush()
        os.write(1, b"native out\\n")
        os.write(2, b"native \\x1b[2Jerr")
        assert book.lines()[-1].text == "native out"
        os.write(2, b"or goes on\\n")
        libc = ctypes.CDLL(None)
        libc.puts(b"from C")
        libc.fflush(None)
        subprocess.run(["echo", "from a program"])
        logging.getLogger("localspec.native").error("a log line")
        print("size", os.get_terminal_size(sys.__stdout__.fileno()).columns)
        os.write(2, b"unfinished")
"""


def in_pty(code: str, **streams: int) -> str:
    """What a person sees of a program on a terminal of 91 columns."""
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    master, slave = pty.openpty()
    size = struct.pack("HHHH", 24, 91, 0, 0)  # termios can do it from Python 3.11 on
    pytest.importorskip("fcntl").ioctl(slave, termios.TIOCSWINSZ, size)
    given = {"stdin": slave, "stdout": slave, "stderr": slave, **streams}
    with subprocess.Popen([sys.executable, "-c", code], **given, env={**os.environ, "TERM": "xterm"}) as child:  # type: ignore[call-overload]
        os.close(slave)
        seen = b""
        with contextlib.suppress(OSError):  # Linux says so when the last one has closed the other end
            while data := os.read(master, 65536):
                seen += data
        assert child.wait(60) == 0, seen.decode()
    os.close(master)
    return seen.decode().replace("\r\n", "\n")


def test_only_pythons_own_streams_reach_the_screen() -> None:
    seen = in_pty(CHILD.format(body=PRINTS))
    screen, _, kept = seen.partition("KEPT ")
    assert screen.splitlines() == [
        "before",
        "the app's own",
        "what the driver writes",
        "size 91",
        "fd 1 is back",
        "fd 2 is back",
    ]
    assert [text for name, text in ast.literal_eval(kept) if name == "localspec.printed"] == [
        "native out",
        "native error goes on",
        "from C",
        "from a program",
        "unfinished",
    ]
    assert ("localspec.native", "a log line") in ast.literal_eval(kept)


def test_all_is_back_after_a_failure() -> None:
    seen = in_pty(CHILD.format(body='os.write(2, b"native\\n"); 1 / 0'))
    assert seen.splitlines() == [
        "before",
        "raised",
        "fd 1 is back",
        "fd 2 is back",
        "KEPT [('localspec.printed', 'native')]",
    ]


def test_with_stderr_in_a_file_the_app_is_on_the_terminal_all_the_same(tmp_path: Path) -> None:
    with (tmp_path / "err").open("wb") as file:
        seen = in_pty(CHILD.format(body='sys.__stderr__.write("frame\\n")'), stderr=file.fileno())
    assert seen.splitlines() == ["before", "frame", "fd 1 is back", "KEPT []"]
    assert (tmp_path / "err").read_text() == "fd 2 is back\n"


APP = """
        from textual.app import App

        class Probe(App):
            def on_mount(self):
                os.write(1, b"native out\\n")
                os.write(2, b"native err\\n")
                logging.getLogger("localspec.native").error("a log line")
                self.set_timer(0.2, self.exit)

        Probe().run()
"""


def test_a_real_app_shows_itself_and_no_native_line() -> None:
    screen, _, kept = in_pty(CHILD.format(body=APP)).partition("KEPT ")
    assert "\x1b[?1049h" in screen and "\x1b[?1049l" in screen
    assert "native" not in screen and "log line" not in screen
    assert [text for _, text in ast.literal_eval(kept)][:3] == ["a log line", "native out", "native err"]


def test_what_was_printed_is_in_the_log_file_too(tmp_path: Path) -> None:
    set_up_logging(tmp_path / "log", verbose=False)
    with guarded_screen(LogBook()):
        os.write(2, b"GGML_ASSERT failed\n100%\n")
    text = (tmp_path / "log").read_text()
    assert "INFO localspec.printed: GGML_ASSERT failed\n" in text and "printed: 100%" in text


def test_a_flood_is_read_whole_and_given_back_to_the_disk() -> None:
    book = LogBook(most=10)
    with guarded_screen(book):
        for number in range(3):
            os.write(2, b"".join(b"%d line %d %s\n" % (number, i, b"x" * 1000) for i in range(2000)))
            assert texts(book)[-1].startswith(f"{number} line 1999 x")
            assert os.fstat(2).st_size == 0
    assert book.n_lines == 6000
