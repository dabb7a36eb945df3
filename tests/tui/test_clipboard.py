"""The programs of the desktop's clipboard."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from localspec.tui import terminal


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that is all of PATH, on a Linux without a desktop."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("WAYLAND_DISPLAY", "DISPLAY", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def install(folder: Path, name: str) -> Path:
    """A program that keeps its input."""
    kept = folder / f"{name}.kept"
    program = folder / name
    program.write_text(f"#!{sys.executable}\nimport sys\nopen({str(kept)!r}, 'w').write(sys.stdin.read())\n")
    program.chmod(0o755)
    return kept


def test_without_a_desktop_there_is_none(programs: Path) -> None:
    install(programs, "xclip")
    assert terminal.command() is None


def test_the_program_of_the_desktop_is_used(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(programs, "xsel")
    monkeypatch.setenv("DISPLAY", ":0")
    assert terminal.command() == ["xsel", "--clipboard", "--input"]
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    kept = install(programs, "wl-copy")
    assert terminal.command() == ["wl-copy"]
    terminal.to_desktop("some text")
    end = time.monotonic() + 10
    while time.monotonic() < end and not (kept.exists() and kept.read_text()):
        time.sleep(0.02)
    assert kept.read_text() == "some text"
