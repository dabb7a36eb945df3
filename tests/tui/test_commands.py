"""The actions of the chat in the command palette."""

from __future__ import annotations

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import OptionList

from localspec.tui.commands import ActionsProvider
from localspec.tui.keys import ACTIONS

pytestmark = pytest.mark.asyncio


class Chat(App[None]):
    COMMANDS = {ActionsProvider}  # noqa: RUF012 - a set in Textual

    def __init__(self) -> None:
        super().__init__()
        self.chosen_keys = {"regenerate": ["ctrl+g"]}
        self.ran: list[str] = []

    def action_regenerate(self) -> None:
        self.ran.append("regenerate")


async def offered(pilot: Pilot[None], text: str) -> list[str]:
    """What the palette, which searches in its own time, offers where `text` is the first."""
    options = pilot.app.screen.query_one(OptionList)
    for _ in range(200):
        found = [str(options.get_option_at_index(i).prompt) for i in range(options.option_count)]
        if found and text in found[0]:
            return found
        await pilot.pause(0.02)
    raise AssertionError(found)


async def test_actions_are_found_and_run() -> None:
    app = Chat()
    async with app.run_test() as pilot:
        await pilot.press("ctrl+p", *"regenerate")
        found = await offered(pilot, "Write the last answer anew")
        assert "ctrl+g" in found[0]
        await pilot.press("enter")
        await pilot.pause()
    assert app.ran == ["regenerate"]


async def test_all_actions_are_offered_but_those_of_the_prompt() -> None:
    app = Chat()
    async with app.run_test() as pilot:
        await pilot.press("ctrl+p")
        found = await offered(pilot, "")
    assert len(found) == sum(action.scope == "anywhere" for action in ACTIONS)
    assert any("Choose the model" in text for text in found)
