"""The chat with an engine that does what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from localspec.errors import ContextLengthError, EngineError, LocalspecError
from localspec.events import DoneEvent, StepEvent
from localspec.tui.app import ChatApp
from localspec.tui.backend import Failed, OpenRequest
from localspec.tui.config import Config
from localspec.tui.start import Start
from localspec.tui.store import Store
from tests.tui.fake import FakeBackend, story

pytestmark = pytest.mark.asyncio

MARKDOWN = "Here is **how**:\n\n```python\nprint('語 🙂')\n```\n\n1. one\n2. two\n"


class Chat:
    """The app and its engine under test."""

    def __init__(self, pilot: Pilot[None], app: ChatApp, backend: FakeBackend) -> None:
        self.pilot, self.app, self.backend = pilot, app, backend

    async def until(self, what: Callable[[], object]) -> None:
        """Wait until something holds."""
        for _ in range(400):
            await self.pilot.pause(0.02)
            if what():
                return
        raise AssertionError("it never came about")

    async def load(self) -> None:
        self.backend.load()
        await self.until(lambda: "ctx" in self.app.status.text)

    async def ask(self, text: str) -> None:
        n = len(self.backend.asked)
        self.app.prompt.put(text)
        await self.pilot.press("enter")
        await self.until(lambda: len(self.backend.asked) > n)

    async def release(self, n: int | None = None) -> None:
        """Let events happen, and wait until they were seen."""
        answering = self.backend.answering
        assert answering is not None
        answering.release(n)
        await self.until(lambda: not answering._released)
        await self.until(lambda: answering.coming or not self.app.answers.writing)

    async def answer(self, text: str = "why?") -> None:
        await self.ask(text)
        await self.release()

    @property
    def page(self) -> str:
        """All lines of the conversation."""
        view = self.app.view
        return "\n".join(view.line_at(y).text.rstrip() for y in range(view._page.height))

    @property
    def roles(self) -> list[str]:
        return [message.role for message in self.app.talk.conversation.messages]


@asynccontextmanager
async def chat(
    text: str = MARKDOWN,
    *,
    size: tuple[int, int] = (80, 24),
    config: Config | None = None,
    store: Store | None = None,
    load: bool = True,
    start: Start | None = None,
) -> AsyncIterator[Chat]:
    backend = FakeBackend()
    backend.answers = lambda question: story(text, backend.vocabulary)
    app = ChatApp(backend, config or Config(), store, start)
    async with app.run_test(size=size) as pilot:
        made = Chat(pilot, app, backend)
        await made.until(lambda: backend.opened)
        if load:
            await made.load()
        yield made


async def test_a_question_is_answered_as_the_engine_writes() -> None:
    async with chat() as it:
        await it.ask("why?")
        await it.release(4)
        assert "▌ why?" in it.page and "Here is how" in it.page and "print" not in it.page
        await it.release()
        assert "print('語 🙂')" in it.page and "**" not in it.page
        assert "tok/s" in it.page.splitlines()[-1]
        assert it.roles == ["user", "assistant"]
        assert it.app.talk.conversation.messages[1].content == MARKDOWN


async def test_enter_sends_what_was_typed_at_once() -> None:
    async with chat() as it:
        for key in ("h", "i", "ctrl+j", "y", "o", "enter"):
            it.pilot._app.simulate_key(key)
        await it.until(lambda: it.backend.asked)
        assert it.backend.asked[0].messages[-1]["content"] == "hi\nyo"
        assert it.app.prompt.text == ""


async def test_a_question_asked_while_the_model_loads_waits_for_it() -> None:
    async with chat(load=False) as it:
        it.app.prompt.put("early?")
        await it.pilot.press("enter")
        await it.pilot.pause()
        assert "▌ early?" in it.page and not it.backend.asked
        await it.load()
        await it.until(lambda: it.backend.asked)
        await it.release()
        assert it.roles == ["user", "assistant"]


async def test_a_question_that_waits_can_be_taken_back() -> None:
    async with chat(load=False) as it:
        it.app.prompt.put("early?")
        await it.pilot.press("enter", "escape")
        assert it.app.prompt.text == "early?" and "▌" not in it.page
        await it.load()
        assert not it.backend.asked


async def test_a_model_that_does_not_load_gives_the_question_back() -> None:
    async with chat(load=False) as it:
        it.app.prompt.put("early?")
        await it.pilot.press("enter")
        it.backend.state = Failed("m.gguf is no model", "localspec models lists them")
        await it.until(lambda: "is no model" in it.page)
        assert it.app.prompt.text == "early?"
        assert "no model" in it.app.status.text and "localspec models" in it.page


async def test_escape_stops_and_keeps_what_was_written() -> None:
    async with chat() as it:
        await it.ask("why?")
        await it.release(3)
        await it.pilot.press("escape")
        await it.until(lambda: not it.app.answers.writing)
        last = it.app.talk.conversation.messages[-1]
        assert last.partial and last.content and MARKDOWN.startswith(last.content)
        assert "stopped" in it.page


async def test_stopped_before_the_first_word_gives_the_question_back() -> None:
    async with chat() as it:
        await it.ask("why?")
        await it.pilot.press("escape")
        await it.until(lambda: not it.app.answers.writing)
        assert it.roles == [] and it.app.prompt.text == "why?"


@pytest.mark.parametrize("error", [EngineError("the device is lost", "restart it"), ContextLengthError("too long")])
async def test_an_error_in_the_middle_is_told_and_the_text_stays(error: LocalspecError) -> None:
    async with chat() as it:
        it.backend.error = error
        it.backend.answers = lambda question: story(MARKDOWN, it.backend.vocabulary)[:5]
        await it.answer()
        assert error.message in it.page and "Here is how" in it.page
        assert it.app.talk.conversation.messages[-1].finish_reason == "error"
        assert it.app.prompt.text == ""


async def test_an_error_before_the_first_word_gives_the_question_back() -> None:
    async with chat() as it:
        it.backend.error = ContextLengthError("the prompt has too many tokens")
        it.backend.answers = lambda question: []
        await it.ask("why?")
        await it.release()
        assert it.roles == [] and it.app.prompt.text == "why?"
        assert "too many tokens" in it.page


async def test_the_conversation_goes_on_with_all_that_was_said() -> None:
    async with chat("Yes.", config=Config(system="Be brief.", sampling={"temperature": 0.2, "max_tokens": 9})) as it:
        await it.answer("one?")
        await it.answer("two?")
        question = it.backend.asked[-1]
        assert [message["role"] for message in question.messages] == ["system", "user", "assistant", "user"]
        assert question.sampling == {"temperature": 0.2} and question.max_tokens == 9


async def test_regenerate_writes_the_last_answer_anew() -> None:
    async with chat("Yes.") as it:
        await it.answer()
        it.backend.answers = lambda question: story("No.", it.backend.vocabulary)
        await it.pilot.press("ctrl+r")
        await it.until(lambda: len(it.backend.asked) == 2)
        await it.release()
        assert it.roles == ["user", "assistant"]
        assert "No." in it.page and "Yes." not in it.page


async def test_an_earlier_question_is_edited_and_what_followed_is_gone() -> None:
    async with chat("Yes.") as it:
        await it.answer("first?")
        await it.answer("second?")
        await it.pilot.press("alt+up")
        assert it.app.prompt.text == "second?"
        await it.pilot.press("alt+up")
        assert it.app.prompt.text == "first?" and "question 1 of 2" in str(it.app.prompt.border_subtitle)
        await it.ask("other?")
        await it.release()
        assert [m.content for m in it.app.talk.conversation.messages] == ["other?", "Yes."]
        assert "first?" not in it.page and "second?" not in it.page


async def test_leaving_an_edit_changes_nothing() -> None:
    async with chat("Yes.") as it:
        await it.answer("first?")
        await it.pilot.press("alt+up", "escape")
        assert it.app.prompt.text == "" and "first?" in it.page
        await it.answer("second?")
        assert it.roles == ["user", "assistant"] * 2


async def test_up_and_down_walk_through_questions() -> None:
    async with chat("Yes.") as it:
        await it.answer("first?")
        await it.answer("second\nline?")
        await it.pilot.press("d", "up")
        assert it.app.prompt.text == "second\nline?"
        await it.pilot.press("up", "up")
        assert it.app.prompt.text == "first?"
        await it.pilot.press("down", "down", "down")
        assert it.app.prompt.text == "d"


async def test_everything_is_kept_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with chat("Yes.", store=store) as it:
        await it.ask("why?")
        kept = store.load(it.app.talk.conversation.id)
        assert [message.content for message in kept.messages] == ["why?"]
        await it.release()
        kept = store.load(it.app.talk.conversation.id)
        assert [message.content for message in kept.messages] == ["why?", "Yes."]
        await it.pilot.press("ctrl+l")
        assert "why?" not in it.page and it.backend.forgotten == 1
        await it.answer("what?")
        assert len(store.entries()[0]) == 2


async def test_a_kept_conversation_is_opened_and_goes_on(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with chat("Yes.", store=store) as it:
        await it.answer("why?")
        await it.pilot.press("ctrl+l", "ctrl+o")
        await it.pilot.pause()
        await it.pilot.press("enter")
        await it.until(lambda: "why?" in it.page)
        await it.answer("more?")
        assert it.roles == ["user", "assistant"] * 2 and len(store.entries()[0]) == 1


async def test_the_answer_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    async with chat() as it:
        copied: list[str] = []
        monkeypatch.setattr(it.app, "copy_to_clipboard", copied.append)
        await it.answer()
        await it.pilot.press("ctrl+y", "alt+c")
        assert copied == [MARKDOWN, "print('語 🙂')"]


async def test_tint_marks_tokens_also_while_they_come() -> None:
    async with chat(size=(120, 40)) as it:
        await it.ask("why?")
        await it.release(3)
        await it.pilot.press("f8")
        await it.release()
        assert "**how**" in it.page
        tinted = it.page
        await it.pilot.press("f8")
        assert "**how**" not in it.page
        await it.pilot.press("f8")
        assert it.page == tinted


async def test_the_view_stays_where_the_person_scrolled_to() -> None:
    async with chat("line\n\n" * 200, size=(80, 24)) as it:
        await it.ask("why?")
        await it.release(200)
        assert it.app.view.scroll_offset.y == it.app.view.max_scroll_y > 0
        await it.pilot.press("pageup")
        at = it.app.view.scroll_offset.y
        await it.release(100)
        assert it.app.view.scroll_offset.y == at < it.app.view.max_scroll_y
        await it.pilot.press(*["pagedown"] * 20)
        await it.release(100)
        assert it.app.view.scroll_offset.y == it.app.view.max_scroll_y


async def test_what_is_painted_is_what_is_there() -> None:
    async with chat(MARKDOWN * 8, size=(60, 16)) as it:
        await it.ask("why?")
        answering = it.backend.answering
        assert answering is not None
        while answering.coming:
            await it.release(3)
            await it.pilot.pause(0.05)
            painted = [strip.text for strip in it.app.screen._compositor.render_strips()]
            it.app.view.forget_lines()
            it.app.view.refresh()
            await it.pilot.pause(0.05)
            assert painted == [strip.text for strip in it.app.screen._compositor.render_strips()]


async def test_the_panel_comes_and_goes() -> None:
    async with chat(size=(80, 24)) as it:
        await it.answer()
        assert not it.app.side.display and it.app.foot.display
        await it.pilot.press("ctrl+t")
        assert it.app.side.display
        await it.until(lambda: "step" in it.app.panel.text)
        await it.pilot.press("ctrl+t")
        assert not it.app.side.display and not it.app.foot.display
        await it.pilot.press("ctrl+t")
        assert it.app.foot.display and not it.app.side.display


async def test_pause_and_a_walk_through_steps() -> None:
    async with chat(size=(120, 40)) as it:
        await it.ask("why?")
        await it.release(8)
        it.app.view.focus()
        await it.until(lambda: "step 7" in it.app.panel.text)
        await it.pilot.press("left")
        assert "step 6" in it.app.panel.text
        await it.release(2)
        it.app.draw_figures()
        assert "step 6" in it.app.panel.text
        await it.pilot.press("right")
        assert "step 7" in it.app.panel.text
        await it.pilot.press("space")
        assert "step 9" in it.app.panel.text


@pytest.mark.parametrize("size", [(50, 15), (20, 5), (1, 1), (200, 60)])
async def test_any_size_at_any_time(size: tuple[int, int]) -> None:
    async with chat(MARKDOWN * 5, size=(120, 40)) as it:
        await it.ask("why?")
        await it.release(10)
        await it.pilot.resize_terminal(*size)
        await it.release(10)
        await it.pilot.press("ctrl+t", "ctrl+t", "f1", "escape")
        await it.pilot.resize_terminal(120, 40)
        await it.release()
        assert it.app.talk.conversation.messages[-1].content == MARKDOWN * 5
        assert "print('語 🙂')" in it.page


async def test_nothing_runs_while_nothing_goes_on() -> None:
    async with chat() as it:
        await it.answer()
        await it.pilot.pause(0.3)
        timers = [timer for node in (it.app, *it.app.screen.walk_children()) for timer in node._timers]
        assert not [timer for timer in timers if timer._active.is_set() and timer._repeat is None]


async def test_bad_settings_are_told() -> None:
    async with chat(start=Start(problems=["chat.toml: tint: 3 is neither true nor false"])) as it:
        assert "tint: 3 is neither" in it.page


async def test_commands_of_the_plain_chat_work() -> None:
    async with chat("Yes.") as it:
        await it.answer()
        it.app.prompt.put("/clear")
        await it.pilot.press("enter")
        await it.until(lambda: not it.roles)
        it.app.prompt.put("/help")
        await it.pilot.press("enter")
        await it.until(lambda: len(it.app.screen_stack) == 2)


async def test_another_method_is_used_from_then_on() -> None:
    async with chat("Yes.") as it:
        await it.pilot.press("f4")
        await it.pilot.pause()
        await it.pilot.press(*"lookup", "enter")
        await it.until(lambda: it.backend.wanted == "lookup")
        await it.pilot.pause(0.3)  # the engine may take its time
        it.backend.measure()
        await it.until(lambda: "measuring" in it.app.status.text)
        it.app.prompt.put("why?")
        await it.pilot.press("enter")
        await it.pilot.pause(0.2)
        assert not it.backend.asked
        it.backend.load()
        await it.until(lambda: it.backend.asked)
        await it.release()
        assert it.app.talk.conversation.method == "lookup"


async def test_a_method_that_cannot_be_used_is_told() -> None:
    async with chat("Yes.") as it:
        await it.pilot.press("f4")
        await it.pilot.pause()
        await it.pilot.press(*"lookup", "enter")
        it.backend.troubles.append(Failed("lookup needs more", "choose another"))
        await it.until(lambda: any("lookup needs more" in note.message for note in it.app._notifications))
        await it.answer()
        assert it.app.talk.conversation.method == "ptd"


async def test_another_model_is_opened() -> None:
    async with chat("Yes.") as it:
        await it.pilot.press("f3")
        await it.pilot.pause()
        await it.pilot.press("enter")
        await it.until(lambda: len(it.backend.opened) == 2)
        assert it.backend.opened[1] == OpenRequest("/models/tiny.gguf")
        assert "40%" in it.app.status.text


async def test_quitting_takes_ctrl_c_twice() -> None:
    async with chat() as it:
        await it.pilot.press("ctrl+c")
        assert it.app.is_running and not it.app._exit
        await it.pilot.press("ctrl+c")
        assert it.app._exit


async def test_events_of_the_fake_are_those_of_a_session() -> None:
    backend = FakeBackend()
    events = story(MARKDOWN, backend.vocabulary)
    steps = [event for event in events if isinstance(event, StepEvent)]
    assert "".join(step.text for step in steps) == MARKDOWN
    assert "".join(backend.piece(token) for step in steps for token in step.tokens) == MARKDOWN
    assert all(step.tree_tokens[node] == token for step in steps for node, token in zip(step.path, step.tokens))  # noqa: B905
    assert isinstance(events[-1], DoneEvent)
    await asyncio.sleep(0)


async def test_what_the_mouse_selects_is_text() -> None:
    async with chat("First line\n\nSecond *line* here", size=(80, 24)) as it:
        await it.answer()
        await it.pilot.pause(0.1)
        y = it.page.splitlines().index(" First line")
        await it.pilot.mouse_down(it.app.view, offset=(7, y))
        await it.pilot.hover(it.app.view, offset=(6, y + 2))
        await it.pilot.mouse_up(it.app.view, offset=(6, y + 2))
        await it.pilot.pause()
        assert it.app.screen.get_selected_text() == "line\n\nSecond"


async def test_leaving_keeps_what_was_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with chat(store=store) as it:
        await it.ask("why?")
        await it.release(4)
        await it.pilot.press("ctrl+q")
        kept = store.load(it.app.talk.conversation.id)
    assert kept.messages[-1].partial and "Here is **how**" in kept.messages[-1].content


async def test_problems_with_settings_stay_where_they_were_told() -> None:
    async with chat("Yes.", start=Start(problems=["chat.toml: fps: 0 is no number from 1 to 60"])) as it:
        await it.answer()
        assert "fps: 0 is no" in it.page and "Yes." in it.page


async def test_a_new_name_of_the_open_conversation_stays(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with chat("Yes.", store=store) as it:
        await it.answer("why?")
        await it.pilot.press("ctrl+o")
        await it.pilot.pause()
        store.rename(it.app.talk.conversation.id, "reasons")
        await it.pilot.press("escape")
        await it.answer("more?")
        assert store.load(it.app.talk.conversation.id).title == "reasons"


async def test_a_conversation_that_cannot_be_kept_is_told_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with chat("Yes.", store=Store(tmp_path / "file" / "folder")) as it:
        await it.answer("why?")
        assert any("cannot be saved" in note.message for note in it.app._notifications)
        await it.answer("more?")
        assert it.roles == ["user", "assistant"] * 2
