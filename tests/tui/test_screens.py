"""The screens on top of the chat: what keys do in them, and what they give back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input, OptionList, RichLog, Static

from localspec.tui.backend import ModelRow
from localspec.tui.screens.ask import Ask
from localspec.tui.screens.choice import Choice
from localspec.tui.screens.confirm import Confirm
from localspec.tui.screens.conversations import ConversationsScreen, file_name
from localspec.tui.screens.help import HelpScreen
from localspec.tui.screens.logs import LogScreen
from localspec.tui.screens.methods import MethodPicker, MethodRow, method_rows
from localspec.tui.screens.models import ModelPicker
from localspec.tui.screens.problem import Problem
from localspec.tui.screens.sampling import SamplingScreen
from localspec.tui.screens.save import SaveRequest, SaveScreen
from localspec.tui.screens.settings import SettingsScreen, ThemePicker
from localspec.tui.screens.system import SystemScreen
from tests.tui.harness import Harness
from tests.tui.some_screens import MODELS, SCREENS, Line, Row, Shelf, conversations

pytestmark = pytest.mark.asyncio


async def after(
    screen: Callable[[], Screen[Any]], *keys: str, size: tuple[int, int] = (80, 24)
) -> tuple[Harness, dict[str, str]]:
    """The app after some keys, and what was on its top screen: the texts of statics by class."""
    app = Harness(screen)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()
        app.top = app.screen
        return app, words_on(app)


def words_on(app: Harness) -> dict[str, str]:
    return {" ".join(sorted(each.classes)): str(each.render()) for each in app.screen.query(Static)}


def rows(app: Harness) -> list[str]:
    options = app.screen.query_one(OptionList)
    return [str(options.get_option_at_index(i).prompt) for i in range(options.option_count)]


async def type_in(pilot: Pilot[None], name: str, text: str) -> None:
    app = pilot.app
    app.screen.query_one(f"#field-{name}", Input).value = text
    await pilot.pause()


# models


async def test_models_here_come_first_and_enter_gives_one() -> None:
    app = Harness(lambda: ModelPicker(MODELS, "coder-1.5b"))
    async with app.run_test() as pilot:
        await pilot.pause()
        assert [row.split()[-4] for row in rows(app)] == ["98", "1.12", "not"]
        await pilot.press("enter")
    assert app.results == [MODELS[2]]  # the cursor began at the one in use


async def test_typing_narrows_the_models() -> None:
    app, _ = await after(lambda: ModelPicker(MODELS), *"smol", "enter")
    assert app.results == [MODELS[1]]


async def test_a_model_that_is_not_here_gives_the_command_for_it() -> None:
    app, words = await after(lambda: ModelPicker(MODELS), "down", "down", "enter")
    assert app.results == []
    assert app.copied == ["localspec pull big-8b"]
    assert "localspec pull big-8b" in words["about"]


async def test_the_first_run_explains_pull() -> None:
    _, words = await after(lambda: ModelPicker(MODELS[:2]))
    assert "`localspec pull NAME` in a shell" in words["when-tall words"]
    _, words = await after(lambda: ModelPicker(MODELS))
    assert "when-tall words" not in words


async def test_a_file_anywhere_can_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF")
    app = Harness(lambda: ModelPicker(MODELS))
    async with app.run_test() as pilot:
        app.screen.query_one(Input).value = str(path)
        await pilot.pause()
        await pilot.press("enter")
    assert app.results == [ModelRow("mine.gguf", path, 4)]


async def test_no_models_at_all_say_what_to_do() -> None:
    app = Harness(lambda: ModelPicker([]))
    async with app.run_test() as pilot:
        await pilot.press("enter")
        assert "localspec pull NAME" in rows(app)[0]
    assert app.results == []


async def test_escape_gives_nothing() -> None:
    app, _ = await after(lambda: ModelPicker(MODELS), "escape")
    assert app.results == [None]


async def test_a_click_takes_a_row() -> None:
    app = Harness(lambda: ModelPicker(MODELS))
    async with app.run_test() as pilot:
        await pilot.pause()
        await pilot.click(OptionList, offset=(5, 1))
        await pilot.pause()
    assert app.results == [MODELS[2]]


# methods


async def test_methods_are_explained_and_lossy_ones_marked() -> None:
    offered = [*method_rows(["ptd", "plain", "entmtp-value"]), MethodRow("fly", "forgives", lossy=True)]
    app = Harness(lambda: MethodPicker(offered, "plain"))
    async with app.run_test() as pilot:
        await pilot.pause()
        assert "No speculation" in words_on(app)["about"]
        assert "bank" in rows(app)[2]
        await pilot.press("end", "down", "down")
        await pilot.pause()
        assert "do not have the model's distribution" in words_on(app)["about"]
        assert "lossy" in rows(app)[3]
        await pilot.press("enter")
    assert app.results == ["fly"]


# forms


async def test_sampling_gives_every_value() -> None:
    app, _ = await after(lambda: SamplingScreen({"temperature": 0.5, "max_tokens": 100}), "enter")
    assert app.results == [
        {
            "temperature": 0.5,
            "top_k": 40,
            "top_p": 0.95,
            "min_p": 0.05,
            "repeat_penalty": 1.0,
            "seed": None,
            "max_tokens": 100,
            "accept": "strict",
        }
    ]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("temperature", "hot", "temperature: 'hot' is no number"),
        ("temperature", "", "temperature is empty"),
        ("temperature", "-1", "it is from 0 to 1000"),
        ("top_k", "1.5", "top k: '1.5' is no whole number"),
        ("top_p", "2", "it is from 0 to 1"),
        ("top_p", "nan", "not a finite number"),
        ("max_tokens", "0", "max tokens starts at 1"),
    ],
)
async def test_sampling_tells_what_cannot_be_used(name: str, text: str, told: str) -> None:
    app = Harness(lambda: SamplingScreen({}))
    async with app.run_test() as pilot:
        await type_in(pilot, name, text)
        assert told in words_on(app)["-told wrong"]
        await pilot.press("enter")
        await pilot.pause()
    assert app.results == []


async def test_sampling_takes_what_was_typed() -> None:
    app = Harness(lambda: SamplingScreen({}))
    async with app.run_test() as pilot:
        await type_in(pilot, "temperature", "0,25")
        await type_in(pilot, "seed", "7")
        app.screen.query_one("#field-accept", Choice).focus()
        await pilot.press("right", "enter")
    assert app.results[0] == {**app.results[0], "temperature": 0.25, "seed": 7, "accept": "typical"}


async def test_arrows_move_between_fields() -> None:
    app = Harness(lambda: SamplingScreen({}))
    async with app.run_test() as pilot:
        await pilot.pause()
        await pilot.press("down", "down")
        assert app.focused is not None and app.focused.id == "field-top_p"
        await pilot.press("up")
        assert app.focused is not None and app.focused.id == "field-top_k"


async def test_the_system_message_has_lines() -> None:
    app, _ = await after(lambda: SystemScreen("Be brief."), "enter", *"And kind.", "ctrl+s")
    assert app.results == ["Be brief.\nAnd kind."]


async def test_settings_show_a_theme_at_once_and_escape_takes_it_back() -> None:
    themes = ["localspec-dark", "nord"]
    app = Harness(lambda: SettingsScreen({}, themes))
    async with app.run_test() as pilot:
        await pilot.pause()
        app.screen.query_one("#field-theme", Choice).focus()
        await pilot.press("right")
        await pilot.pause()
        assert app.theme == "nord"
        await pilot.press("escape")
        await pilot.pause()
        assert app.theme == "localspec-dark"
    assert app.results == [None]


async def test_settings_give_every_value() -> None:
    app = Harness(lambda: SettingsScreen({"panel": "line", "fps": 4}, ["localspec-dark", "nord"]))
    async with app.run_test() as pilot:
        app.screen.query_one("#field-mouse", Choice).focus()
        await pilot.press("space")
        await type_in(pilot, "fps", "99")
        assert "from 1 to 60" in words_on(app)["-told wrong"]
        await type_in(pilot, "fps", "")
        await pilot.press("enter")
    assert app.results == [
        {"theme": "localspec-dark", "panel": "line", "tint": False, "markdown": True, "mouse": False, "fps": None}
    ]


async def test_themes_are_shown_while_one_chooses() -> None:
    app = Harness(lambda: ThemePicker(["localspec-dark", "localspec-light", "ansi-dark"]))
    async with app.run_test() as pilot:
        await pilot.pause()
        await pilot.press("down")
        await pilot.pause()
        assert app.theme == "localspec-light"
        await pilot.press("enter")
    assert app.results == ["localspec-light"]


# saving


async def test_save_gives_a_path_with_an_ending(tmp_path: Path) -> None:
    app = Harness(lambda: SaveScreen("talk", tmp_path))
    async with app.run_test() as pilot:
        app.screen.query_one("#field-kind", Choice).focus()
        await pilot.press("right")
        await pilot.pause()
        assert app.screen.query_one("#field-file", Input).value == str(tmp_path / "talk.json")
        await type_in(pilot, "file", str(tmp_path / "other"))
        await pilot.press("enter")
    assert app.results == [SaveRequest(tmp_path / "other.json", "json")]


async def test_save_asks_before_it_overwrites(tmp_path: Path) -> None:
    (tmp_path / "talk.md").write_text("old")
    app = Harness(lambda: SaveScreen("talk", tmp_path))
    async with app.run_test() as pilot:
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Confirm)
        await pilot.press("n")
        await pilot.pause()
        assert app.results == []
        await pilot.press("enter", "y")
        await pilot.pause()
    assert app.results == [SaveRequest(tmp_path / "talk.md", "markdown")]


async def test_save_tells_of_a_folder_that_is_not_there(tmp_path: Path) -> None:
    app, words = await after(lambda: SaveScreen("talk", tmp_path / "nowhere"), "enter")
    assert f"there is no folder {tmp_path / 'nowhere'}" in words["-told wrong"]
    assert app.results == []


# conversations


async def test_a_conversation_is_found_and_opened() -> None:
    app, _ = await after(lambda: conversations(Shelf()), *"queues", "enter")
    assert app.results == ["a"]


async def test_a_conversation_is_renamed() -> None:
    shelf = Shelf()
    app, _ = await after(lambda: conversations(shelf), "ctrl+r", "home", "ctrl+k", *"Piles", "enter")
    assert isinstance(app.top, ConversationsScreen)
    assert shelf.kept[1].title == "Piles"
    assert app.results == []


async def test_a_conversation_is_deleted_after_a_yes() -> None:
    shelf = Shelf()
    app = Harness(lambda: conversations(shelf))
    async with app.run_test() as pilot:
        await pilot.pause()
        await pilot.press("ctrl+d", "enter", "n")
        await pilot.pause()
        assert len(shelf.kept) == 3
        await pilot.press("ctrl+d", "y")
        await pilot.pause()
        assert [row.id for row in shelf.kept] == ["a", "c"]
        assert len(rows(app)) == 2
        # the cursor stays where it was
        await pilot.press("enter")
    assert app.results == ["c"]


async def test_what_fails_is_told() -> None:
    app, words = await after(lambda: conversations(Shelf()), "down", "ctrl+d", "y")
    assert isinstance(app.top, Problem)
    assert "permission denied" in words["question"]


async def test_a_conversation_is_exported(tmp_path: Path) -> None:
    exported: list[tuple[str, SaveRequest]] = []
    app, _ = await after(lambda: conversations(Shelf(), exported, tmp_path), "ctrl+s", "enter")
    assert exported == [("b", SaveRequest(tmp_path / "Stacks.md", "markdown"))]
    assert app.results == []


async def test_damaged_conversations_are_named() -> None:
    _, words = await after(lambda: conversations(Shelf(problems=["x.json is damaged", "y.json is damaged"])))
    assert words["-told wrong"] == "x.json is damaged (and 1 more)"


async def test_file_names_are_made_of_titles() -> None:
    assert file_name("What is / a queue?") == "What-is-a-queue"
    assert file_name("東京 🎉") == "東京"
    assert file_name("../..") == "conversation"


# typing faster than the screen follows


async def burst(app: Harness, text: str, end: str) -> None:
    for char in text:
        app.post_message(events.Key(char, char))
    app.post_message(events.Key(end, None))


@pytest.mark.parametrize(
    ("screen", "end", "result"),
    [
        (lambda: ThemePicker(["localspec-dark", "ansi-dark", "nord"]), "enter", "nord"),
        (lambda: Ask("A title"), "enter", "nord"),
        (lambda: SystemScreen(), "ctrl+s", "nord"),
        (lambda: SaveScreen("x", Path("/")), "enter", SaveRequest(Path("/x.mdnord.md"), "markdown")),
    ],
)
async def test_what_is_typed_in_a_burst_is_not_lost(screen: Callable[[], Screen[Any]], end: str, result: Any) -> None:
    app = Harness(screen)
    async with app.run_test() as pilot:
        await pilot.pause()
        await burst(app, "nord", end)
        await pilot.pause()
        await pilot.pause()
    assert app.results == [result]


# messages


async def test_confirm_is_not_answered_by_enter() -> None:
    app, _ = await after(lambda: Confirm("Sure?"), "enter", "space")
    assert app.results == []
    app, _ = await after(lambda: Confirm("Sure?"), "y")
    assert app.results == [True]


async def test_the_line_of_keys_can_be_clicked() -> None:
    app = Harness(lambda: Confirm("Sure?", yes="delete"))
    async with app.run_test() as pilot:
        await pilot.pause()
        assert words_on(app)["keys"] == "y delete  n no"
        await pilot.click(".keys", offset=(4, 0))
        await pilot.pause()
    assert app.results == [True]


async def test_a_problem_is_copied_whole() -> None:
    app, _ = await after(lambda: Problem("no", "do this", ["a", "b"]), "ctrl+y", "enter")
    assert app.copied == ["no\na\nb\ndo this"]
    assert app.results == [None]


async def test_text_of_others_is_no_markup() -> None:
    app, words = await after(lambda: Problem("[bold]no[/x] [@click=app.quit]", "[/]", ["[red]"]))
    assert words["question"] == "[bold]no[/x] [@click=app.quit]"
    app, _ = await after(lambda: Ask("[b]title", "x"), "enter")
    assert app.results == ["x"]
    shelf = Shelf([Row("b", "[/] [red]title")])
    app, _ = await after(lambda: conversations(shelf), "ctrl+d")
    assert isinstance(app.top, Confirm)


async def test_text_of_others_commands_no_terminal() -> None:
    evil = "\x1b]0;title\x07\x1b[2J"
    app, words = await after(lambda: Problem(evil, evil, [evil]))
    assert "\x1b" not in "".join(words.values())
    shelf = Shelf([Row("b", evil)])
    app = Harness(lambda: conversations(shelf))
    async with app.run_test() as pilot:
        await pilot.pause()
        assert "\x1b" not in rows(app)[0]
        await pilot.press("ctrl+d")
        await pilot.pause()
        assert "\x1b" not in words_on(app)["question"]


# help and log


async def test_help_knows_the_keys_as_they_are() -> None:
    app = Harness(lambda: HelpScreen({"regenerate": ["ctrl+g"], "logs": []}))
    async with app.run_test() as pilot:
        await pilot.pause()
        table = app.screen.query_one("#help", Static)
        lines = [" ".join(table.render_line(y).text.split()) for y in range(table.size.height)]
    assert "ctrl+g Write the last answer anew" in lines
    assert "no key Read the log" in lines
    assert any("the bonus token" in line for line in lines)


async def test_the_log_follows_and_filters() -> None:
    lines = [Line("loaded"), Line("slow", logging.WARNING)]
    app = Harness(lambda: LogScreen(lambda: list(lines)))
    async with app.run_test() as pilot:
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, LogScreen)
        lines.append(Line("broken", logging.ERROR))
        screen.poll()
        assert shown(screen) == ["loaded", "slow", "broken"]
        await pilot.press("f2", "f2")
        assert shown(screen) == ["slow", "broken"]
        await pilot.press(*"broke")
        await pilot.pause()
        assert shown(screen) == ["broken"]
        await pilot.press("ctrl+y")
    assert app.copied[0].endswith("engine: broken")


async def test_a_log_that_lost_its_oldest_lines_goes_on() -> None:
    lines = [Line(str(i)) for i in range(5)]
    app = Harness(lambda: LogScreen(lambda: list(lines)))
    async with app.run_test() as pilot:
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, LogScreen)
        lines[:3] = []
        lines.append(Line("5"))
        screen.poll()
        assert shown(screen) == [*"012345"]
        lines[:] = [Line("new")]
        screen.poll()
        assert shown(screen) == ["new"]


async def test_scrolling_up_holds_the_log() -> None:
    lines = [Line(str(i)) for i in range(100)]
    app = Harness(lambda: LogScreen(lambda: list(lines)))
    async with app.run_test() as pilot:
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, LogScreen)
        log = screen.query_one(RichLog)
        await pilot.press("pageup")
        at = log.scroll_y
        lines.append(Line("more"))
        screen.poll()
        await pilot.pause()
        assert log.scroll_y == at
        await pilot.press("f3")
        await pilot.pause()
        assert log.scroll_y == log.max_scroll_y > at


def shown(screen: LogScreen) -> list[str]:
    return [line.text.rsplit(": ", 1)[1].strip() for line in screen.query_one(RichLog).lines]


# all of them


@pytest.mark.parametrize("name", SCREENS)
async def test_no_size_is_too_small(name: str) -> None:
    app = Harness(SCREENS[name])
    async with app.run_test(size=(80, 24)) as pilot:
        for size in ((50, 15), (20, 5), (3, 2), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.press("down", "pagedown", "up")
            await pilot.pause()
        await pilot.press("escape")
        await pilot.pause()
    assert app.results == [None]


@pytest.mark.parametrize("name", SCREENS)
async def test_the_line_of_keys_is_seen_in_a_small_terminal(name: str) -> None:
    app = Harness(SCREENS[name])
    async with app.run_test(size=(50, 15)) as pilot:
        await pilot.pause()
        keys = app.screen.query_one(".keys")
        assert keys.region.height >= 1
        assert keys.region in app.screen.query_one(".sheet").region
        fields = app.screen.query("Input, TextArea, Choice")
        assert all(widget.region.height >= 1 for widget in fields)


async def test_a_text_field_keeps_what_a_small_terminal_shows() -> None:
    app, _ = await after(lambda: SystemScreen("x"), *"yz", "ctrl+s", size=(50, 15))
    assert app.results == ["xyz"]
