"""Pictures of all screens, in a common and in a small terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from textual.pilot import Pilot

from tests.tui.harness import Harness
from tests.tui.some_screens import SCREENS

SIZES = {"80x24": (80, 24), "50x15": (50, 15)}


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The log has local times."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def settled(pilot: Pilot[None]) -> None:
    await pilot.pause(0.1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SCREENS)
def test_screen(snap_compare: Callable[..., bool], name: str, size: str) -> None:
    assert snap_compare(Harness(SCREENS[name]), terminal_size=SIZES[size], run_before=settled)


@pytest.mark.parametrize("name", ["models", "sampling"])
def test_without_colour(snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(Harness(SCREENS[name]), run_before=settled)


@pytest.mark.parametrize("theme", ["localspec-light", "ansi-dark"])
def test_other_themes(snap_compare: Callable[..., bool], theme: str) -> None:
    assert snap_compare(Harness(SCREENS["models"], theme), run_before=settled)
