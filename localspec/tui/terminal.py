"""The desktop's clipboard and the terminal's mouse: what Textual has no calls for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from typing import Any

#: seconds to wait for a clipboard program
_TIMEOUT = 2.0


def command() -> list[str] | None:
    """The program that puts its input on the clipboard here; None where there is none."""
    choices: list[list[str]] = []
    if sys.platform == "darwin":
        choices = [["pbcopy"]]
    elif os.name == "nt" or "WSL_DISTRO_NAME" in os.environ:
        choices = [["clip.exe"]]
    else:
        if os.environ.get("WAYLAND_DISPLAY"):
            choices.append(["wl-copy"])
        if os.environ.get("DISPLAY"):
            choices += [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
    return next((choice for choice in choices if shutil.which(choice[0])), None)


def use_mouse(app: Any, here: bool) -> None:
    """Take the mouse for `app`, or leave it to the terminal, which then selects and copies as it always does."""
    driver = app._driver
    switch = getattr(driver, "_enable_mouse_support" if here else "_disable_mouse_support", None)
    if switch is not None:  # there is none without a terminal
        driver._mouse = True
        switch()


def copy(app: Any, text: str | None, what: str) -> None:
    """Put text on the clipboard in every way there is, and say so; or that there is no such text."""
    if not text:
        app.notify(f"there is no {what} yet", severity="warning")
        return
    app.copy_to_clipboard(text)
    to_desktop(text)
    app.notify(f"the {what} is on the clipboard ({len(text)} characters)")


def to_desktop(text: str) -> None:
    """Give text to the program of the clipboard, if there is one, without waiting for it; Textual tells terminals
    that know OSC 52."""
    program = command()
    if program is not None:
        threading.Thread(target=_run, args=(program, text), daemon=True).start()


def _run(program: list[str], text: str) -> None:
    encoding = "utf-16" if program[0] == "clip.exe" else "utf-8"
    quiet = subprocess.DEVNULL
    try:
        subprocess.run(
            program, input=text.encode(encoding, "replace"), stdout=quiet, stderr=quiet, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return
