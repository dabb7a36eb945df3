"""The program as people have it: a real terminal, the real engine, the embedded model."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.with_model import calibrated_home, smollm

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]
CODE = "from localspec.cli import main; main()"


class Terminal:
    """A terminal with a program in it."""

    def __init__(self, columns: int, lines: int, home: Path, *args: str) -> None:
        self._name = f"localspec-{uuid.uuid4().hex}"
        unset = [part for name in ("COLUMNS", "LINES", "NO_COLOR") for part in ("-u", name)]
        env = [f"LOCALSPEC_HOME={home}", "PYTHONUTF8=1"]
        command = shlex.join(["env", *unset, *env, sys.executable, "-c", CODE, *args])
        size = ("-x", str(columns), "-y", str(lines))
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, f"{command}; echo ended with $?; sleep 600")

    def _tmux(self, *args: str) -> str:
        command = ["tmux", "-u", "-L", self._name, *args]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout

    def type(self, *keys: str) -> None:
        """Press keys, by the names that tmux gives them, or type text."""
        self._tmux("send-keys", *keys)

    @property
    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def until(self, what: Callable[[str], object], seconds: float = 60.0) -> str:
        """The screen on which something can be seen."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if what(screen := self.screen):
                return screen
            time.sleep(0.2)
        raise AssertionError(f"it is not there:\n{self.screen}")

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self._name, "kill-server"], check=False, capture_output=True, timeout=30)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(columns: int, lines: int, *args: str) -> Terminal:
        opened.append(Terminal(columns, lines, tmp_path, *args))
        return opened[-1]

    with calibrated_home(tmp_path):
        yield open_one
    for each in opened:
        each.close()


CHAT = ("chat", "--model", "{model}", "--threads", "1", "--ctx-size", "512", "--temp", "0", "--max-tokens", "48")


def chat(*more: str) -> list[str]:
    return [*(part.format(model=smollm()) for part in CHAT), *more]


def test_a_question_is_answered_with_its_speed_and_trees(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    it = terminal(120, 40, *chat())
    it.until(lambda screen: "ready" in screen)
    it.type("Say this three times: the sea is wide and deep", "Enter")
    screen = it.until(lambda screen: re.search(r"\d tok/s · \d+ tokens", screen))
    assert "▌ Say this three times" in screen
    assert re.search(r"\d+\.\d tok/s .*· ctx \d+/512", screen)
    tree = screen[screen.index("─ step ") :]
    assert re.search(r"[├└]?[✓·+]", tree) and "●" in tree
    it.type("C-q")
    it.until(lambda screen: "ended with 0" in screen)
    kept = list((tmp_path / "data" / "conversations").glob("*.json"))
    assert len(kept) == 1 and "the sea is wide" in kept[0].read_text(encoding="utf-8")


def test_a_common_terminal_has_a_line_and_on_demand_the_panel(terminal: Callable[..., Terminal]) -> None:
    it = terminal(80, 24, *chat())
    it.until(lambda screen: "Ask something" in screen)
    it.type("Hello", "Enter")  # the model may not be there yet
    screen = it.until(lambda screen: re.search(r"\d tok/s · \d+ tokens", screen))
    assert "─ step " not in screen
    it.type("C-t")
    it.until(lambda screen: "─ step " in screen)


def test_a_narrow_terminal_has_plain_text(terminal: Callable[..., Terminal]) -> None:
    it = terminal(50, 15, *chat())
    it.until(lambda screen: re.search(r"^>", screen, re.MULTILINE))
    it.type("Hello", "Enter")
    it.until(lambda screen: re.search(r"\d tok/s", screen))
    it.type("C-d")
    it.until(lambda screen: "ended with 0" in screen)


def test_below_the_prompt_of_the_shell(terminal: Callable[..., Terminal]) -> None:
    it = terminal(100, 30, *chat("--inline"))
    it.until(lambda screen: "ready" in screen)
    it.type("Hello", "Enter")
    it.until(lambda screen: re.search(r"\d tok/s · \d+ tokens", screen))
    it.type("C-q")
    it.until(lambda screen: "ended with 0" in screen)
