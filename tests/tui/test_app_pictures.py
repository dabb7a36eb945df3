"""Pictures of the chat: sizes, colours, states."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from localspec.errors import EngineError
from localspec.tui import keys
from localspec.tui.app import ChatApp
from localspec.tui.backend import Failed
from localspec.tui.config import Config
from localspec.tui.start import Start
from tests.tui.fake import FakeBackend, story

TEXT = """## Two ways

Use `sorted` for a **new** list, 日本語 and 🙂 too:

```python
def names(items: list[str]) -> list[str]:
    return sorted(items, key=str.lower)
```

| way | changes |
|---|---|
| `sort` | the list |
| `sorted` | nothing |

- one
- two
"""
SIZES = {"80x24": (80, 24), "120x40": (120, 40), "50x15": (50, 15)}
Act = Callable[[Pilot[None]], Awaitable[None]]


def made(text: str = TEXT, config: Config | None = None, **story_options: Any) -> tuple[ChatApp, FakeBackend]:
    backend = FakeBackend()
    backend.answers = lambda question: story(text, backend.vocabulary, **story_options)
    return ChatApp(backend, config or Config(), None, Start()), backend


async def until(pilot: Pilot[None], what: Callable[[], object]) -> None:
    for _ in range(400):
        await pilot.pause(0.02)
        if what():
            return
    raise AssertionError("it never came about")


async def ask(pilot: Pilot[None], backend: FakeBackend, n: int | None = None) -> None:
    """Ask, let `n` events happen (None: all), and wait until all is shown."""
    app = pilot.app
    assert isinstance(app, ChatApp)
    await until(pilot, lambda: backend.opened)
    backend.load()
    await until(pilot, lambda: "ctx" in app.status.text)
    app.prompt.put("How do I sort names?")
    await pilot.press("enter")
    await until(pilot, lambda: backend.answering)
    answering = backend.answering
    assert answering is not None
    answering.release(n)
    await until(pilot, lambda: not answering._released and (answering.coming or not app.answers.writing))
    app.draw_figures()
    await pilot.pause(0.1)


@pytest.mark.parametrize("size", SIZES)
def test_answered(snap_compare: Callable[..., bool], size: str) -> None:
    app, backend = made()
    assert snap_compare(app, terminal_size=SIZES[size], run_before=lambda pilot: ask(pilot, backend))


@pytest.mark.parametrize("size", SIZES)
def test_loading(snap_compare: Callable[..., bool], size: str) -> None:
    app, backend = made()

    async def act(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: backend.opened and "40%" in app.status.text)

    assert snap_compare(app, terminal_size=SIZES[size], run_before=act)


def test_resized_in_the_middle(snap_compare: Callable[..., bool]) -> None:
    app, backend = made()

    async def act(pilot: Pilot[None]) -> None:
        await ask(pilot, backend, 14)
        await pilot.resize_terminal(110, 30)
        backend.release(6)
        await pilot.pause(0.2)
        await pilot.resize_terminal(64, 20)
        backend.release(6)
        await until(pilot, lambda: backend.answering is not None and not backend.answering._released)
        app.draw_figures()
        await pilot.pause(0.2)

    assert snap_compare(app, terminal_size=(80, 24), run_before=act)


@pytest.mark.parametrize("size", ["120x40", "50x15"])
def test_without_colour(snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app, backend = made()
    assert snap_compare(app, terminal_size=SIZES[size], run_before=lambda pilot: ask(pilot, backend))


@pytest.mark.parametrize("theme", ["localspec-light", "ansi-dark"])
def test_other_colours(snap_compare: Callable[..., bool], theme: str) -> None:
    app, backend = made(config=Config(theme=theme))
    assert snap_compare(app, terminal_size=(120, 40), run_before=lambda pilot: ask(pilot, backend))


def test_tinted_and_lossy(snap_compare: Callable[..., bool]) -> None:
    app, backend = made(config=Config(tint=True), lossy=True)
    assert snap_compare(app, terminal_size=(120, 40), run_before=lambda pilot: ask(pilot, backend))


def test_speculation_is_off(snap_compare: Callable[..., bool]) -> None:
    app, backend = made(notes=["spec off: not faster here"])
    assert snap_compare(app, terminal_size=(80, 24), run_before=lambda pilot: ask(pilot, backend, 9))


def test_no_model(snap_compare: Callable[..., bool]) -> None:
    app, backend = made()

    async def act(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: backend.opened)
        backend.state = Failed("m.gguf is damaged: it ends early", "pull it again: localspec pull m")
        await until(pilot, lambda: "damaged" in app.status.text)

    assert snap_compare(app, terminal_size=(80, 24), run_before=act)


def test_failed_in_the_middle(snap_compare: Callable[..., bool]) -> None:
    app, backend = made()
    backend.error = EngineError("the device is lost", "start again")
    backend.answers = lambda question: story(TEXT, backend.vocabulary)[:20]
    assert snap_compare(app, terminal_size=(80, 24), run_before=lambda pilot: ask(pilot, backend))


def test_several_lines_and_an_edit(snap_compare: Callable[..., bool]) -> None:
    app, backend = made()

    async def act(pilot: Pilot[None]) -> None:
        await ask(pilot, backend)
        await pilot.press("alt+up", "ctrl+j", *"And 語?")
        await pilot.pause(0.1)

    assert snap_compare(app, terminal_size=(80, 24), run_before=act)


def test_all_actions_can_be_done() -> None:
    missing = [action.id for action in keys.ACTIONS if not hasattr(ChatApp, f"action_{action.id}")]
    assert not missing
