"""The models of a process: who is loaded, who waits, who has to go. The engines are fakes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from localspec import hub
from localspec.errors import DownloadError, EngineError, ModelError, ModelNotFoundError
from localspec.serving import host as host_module
from localspec.serving import residents as residents_module
from localspec.serving.api import BusyError, Host, LoadingError
from localspec.serving.host import HostSettings, ModelHost
from tests.serving.fake_opener import FakeOpener

pytestmark = pytest.mark.asyncio

SIZE = 100


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three models of 100 bytes; the package's embedded model is not there."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("one", "two", "three"):
        (folder / f"{name}.gguf").write_bytes(b"x" * SIZE)
    monkeypatch.setenv("LOCALSPEC_MODELS", str(folder))
    monkeypatch.setattr(hub, "_in_package", lambda entry: None)
    monkeypatch.setattr(host_module, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(host_module, "FRESH_SECONDS", 0.0)
    return folder


@asynccontextmanager
async def hosting(opener: FakeOpener, **settings: object) -> AsyncIterator[ModelHost]:
    """A host whose default model "one" is there."""
    async with ModelHost(opener, HostSettings(**{"default": "one", **settings})) as host:
        await host.ready()
        yield host


async def until(condition: Callable[[], object]) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(wait(), 10)


async def test_the_default_model_loads_in_the_background() -> None:
    opener = FakeOpener()
    opener.gates["one"] = threading.Event()
    async with ModelHost(opener, HostSettings(default="one")) as model_host:
        host: Host = model_host
        await until(opener.in_progress.is_set)
        assert host.state() == "loading" and host.loaded() == []
        await until(lambda: host.loading() == ("loading the model", 0.5))
        opener.gates["one"].set()
        async with host.use(None) as engine:
            assert engine.facts.name == "one"
        await model_host.ready()
        assert host.state() == "ready" and host.loading() is None
        assert [engine.facts.name for engine in host.loaded()] == ["one"]
    assert host.state() == "closing"
    assert opener.engines["one"].closed


async def test_who_has_waited_long_enough_is_told_how_far_the_load_is() -> None:
    opener = FakeOpener()
    opener.gates["two"] = threading.Event()
    async with hosting(opener, patience=0.05) as host:
        with pytest.raises(LoadingError, match="two is not there yet") as caught:
            async with host.use("two"):
                pass
        assert caught.value.http_status == 503 and caught.value.retry_after > 0
        opener.gates["two"].set()
        await until(lambda: len(host.loaded()) == 2)  # the load went on


async def test_a_default_model_that_cannot_be_loaded_is_told_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    opener = FakeOpener()
    opener.failures["one"] = ModelError("one.gguf is damaged", "get it again")
    async with ModelHost(opener, HostSettings(default="one")) as host:
        with pytest.raises(ModelError, match="damaged"):
            await host.ready()
        assert host.state() == "degraded" and "damaged" in host.troubles()[0]
        with pytest.raises(ModelError, match="damaged"):
            async with host.use(None):
                pass
        assert opener.log == ["open one"], "it is not read again at once"
        async with host.use("two"):
            assert host.state() == "degraded"
        monkeypatch.setattr(residents_module, "FAILED_SECONDS", 0.0)
        del opener.failures["one"]
        async with host.use(None):
            assert host.state() == "ready"


async def test_a_default_model_that_is_nowhere_leaves_the_others_usable() -> None:
    async with ModelHost(FakeOpener(), HostSettings(default="nowhere")) as host:
        with pytest.raises(ModelNotFoundError, match="nowhere"):
            await host.ready()
        assert host.state() == "degraded"
        async with host.use("two") as engine:
            assert engine.facts.name == "two"


async def test_an_exception_of_no_kind_that_is_known_becomes_an_engine_error() -> None:
    opener = FakeOpener()
    opener.failures["two"] = ZeroDivisionError("oh")
    async with hosting(opener) as host:
        with pytest.raises(EngineError, match="ZeroDivisionError"):
            async with host.use("two"):
                pass
        assert host.state() == "ready"


async def test_two_requests_for_a_model_wait_for_one_load() -> None:
    opener = FakeOpener()
    async with hosting(opener) as host:

        async def ask() -> int:
            async with host.use("two") as engine:
                return id(engine)

        assert len(set(await asyncio.gather(*(ask() for _ in range(5))))) == 1
        assert opener.log.count("open two") == 1


async def test_models_are_loaded_one_after_the_other() -> None:
    opener = FakeOpener()
    opener.gates["two"] = threading.Event()
    async with hosting(opener) as host:
        opener.in_progress.clear()
        using = [asyncio.create_task(_use(host, name)) for name in ("two", "three")]
        await until(opener.in_progress.is_set)
        await asyncio.sleep(0.05)
        assert "open three" not in opener.log
        opener.gates["two"].set()
        await asyncio.gather(*using)
        assert opener.log == ["open one", "open two", "open three"]


async def test_who_leaves_while_it_loads_holds_nothing() -> None:
    opener = FakeOpener()
    opener.gates["two"] = threading.Event()
    async with hosting(opener) as host:
        waiting = asyncio.create_task(_use(host, "two"))
        await until(lambda: "open two" in opener.log)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        opener.gates["two"].set()
        await until(lambda: len(host.loaded()) == 2)
        assert await host.unload("two")


async def _use(host: ModelHost, name: str) -> None:
    async with host.use(name):
        pass


@pytest.mark.parametrize("limited", [False, True], ids=["what is free", "a limit"])
async def test_the_model_that_was_used_least_recently_makes_room(limited: bool) -> None:
    opener = FakeOpener(None if limited else 2 * SIZE)
    async with hosting(opener, memory_limit=2 * SIZE if limited else None) as host:
        await _use(host, "two")
        await _use(host, None)
        await _use(host, "three")
        assert opener.log == ["open one", "open two", "close two", "open three"]
        assert [engine.facts.name for engine in host.loaded()] == ["one", "three"]
        assert {model.name for model in host.available() if model.loaded} == {"one", "three"}


async def test_models_in_use_are_not_unloaded_for_others() -> None:
    async with hosting(FakeOpener(), memory_limit=2 * SIZE) as host, host.use("one"), host.use("two"):
        with pytest.raises(BusyError, match="no room for three") as caught:
            await _use(host, "three")
        assert "one, two" in str(caught.value.hint)
        assert caught.value.retry_after > 0
        assert host.state() == "ready"
    assert not isinstance(caught.value, ModelError)


async def test_no_room_now_is_not_remembered_as_a_failure() -> None:
    async with hosting(FakeOpener(), memory_limit=SIZE) as host:
        async with host.use("one"):
            with pytest.raises(BusyError):
                await _use(host, "two")
        await _use(host, "two")


async def test_a_model_that_never_fits_is_not_worth_a_retry(models: Path) -> None:
    (models / "huge.gguf").write_bytes(b"x" * 10 * SIZE)
    opener = FakeOpener()
    async with hosting(opener, memory_limit=2 * SIZE) as host:
        async with host.use("one"):
            with pytest.raises(ModelError, match="limit"):
                await _use(host, "huge")
        with pytest.raises(ModelError, match="limit"):
            await _use(host, "huge")
        assert not opener.engines["one"].closed, "nothing is given up for what cannot be"


async def test_a_model_goes_when_it_has_been_idle_for_long(models: Path) -> None:
    opener = FakeOpener()
    async with hosting(opener, keep=0.05) as host:
        async with host.use("two"):
            await asyncio.sleep(0.15)
            assert not opener.engines["two"].closed, "it is in use"
            assert time.time() < host.expires("two") < time.time() + 1
        await until(lambda: opener.engines["two"].closed)
        assert host.expires("two") is None
        assert host.expires("one") is None and not opener.engines["one"].closed, "the default model stays"
        await _use(host, "two")
        assert opener.log.count("open two") == 2


async def test_a_client_may_say_how_long_a_model_is_kept() -> None:
    opener = FakeOpener()
    async with hosting(opener) as host:
        host.keep("two", 0)  # before it is there
        await _use(host, "two")
        await until(lambda: opener.engines["two"].closed)
        host.keep("one", 0)
        await until(lambda: opener.engines["one"].closed)
        assert host.state() == "ready", "an idle server is not a broken one"
        await _use(host, None)
        host.keep("three", None)
        await _use(host, "three")
        assert host.expires("three") is None
        host.keep("nonsense", 1.0)


async def test_unloading_by_name() -> None:
    opener = FakeOpener()
    async with hosting(opener) as host:
        assert not await host.unload("two") and not await host.unload("nonsense")
        async with host.use("two"):
            with pytest.raises(BusyError, match="in use"):
                await host.unload("two")
        assert await host.unload("Two.gguf")
        assert opener.engines["two"].closed


async def test_a_name_from_a_client_never_becomes_a_path(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = models.parent / "outside.gguf"
    outside.write_bytes(b"x")
    monkeypatch.chdir(models)
    names = [str(outside), "../outside", "..\\outside.gguf", "./two", "models/../two", str(models / "two.gguf"), "two/"]
    opener = FakeOpener()
    async with hosting(opener) as host:
        for name in [*names, "", "two\0", "~/two", "x" * 5000]:
            with pytest.raises(ModelNotFoundError) as caught:
                await _use(host, name)
            assert len(caught.value.message) < 300
    assert opener.log == ["open one", "close one"]


async def test_names_are_those_of_people(models: Path, tmp_path: Path) -> None:
    (models / "Some").mkdir()
    (models / "Some" / "two.gguf").write_bytes(b"x")  # the stem is taken
    elsewhere = tmp_path / "mine.gguf"
    elsewhere.write_bytes(b"x" * SIZE)
    async with hosting(FakeOpener(), default=elsewhere) as host:
        names = [model.name for model in host.available()]
        assert names[0] == "mine"
        assert sorted(names[1:]) == ["Some--two", "one", "three", "two"]
        async with host.use("Some--two") as engine:
            assert engine.path == models / "Some" / "two.gguf"
        async with host.use("MINE") as engine:
            assert engine.path == elsewhere


async def test_a_file_that_has_just_come_can_be_used(models: Path) -> None:
    async with hosting(FakeOpener()) as host:
        (models / "new.gguf").write_bytes(b"x")
        await _use(host, "new")


async def test_a_stuck_engine_degrades_the_server_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    opener = FakeOpener()
    async with hosting(opener) as host:
        opener.engines["one"].stuck_for = 42.0
        await until(lambda: "42 s" in caplog.text)
        assert host.state() == "degraded" and "42 s" in host.troubles()[0]
        await asyncio.sleep(0.05)
        assert caplog.text.count("42 s") == 1
        opener.engines["one"].stuck_for = None
        await until(lambda: "goes on" in caplog.text)
        assert host.state() == "ready"


async def test_closing_ends_a_load_and_refuses_newcomers() -> None:
    opener = FakeOpener()
    opener.gates["two"] = threading.Event()  # never set
    async with hosting(opener) as host:
        waiting = asyncio.create_task(_use(host, "two"))
        await until(lambda: "open two" in opener.log)
        await host.close()
        with pytest.raises(BusyError, match="closing"):
            await waiting
        with pytest.raises(BusyError, match="closing"):
            await _use(host, "one")
    assert opener.engines["one"].closed and "two" not in opener.engines


async def test_only_known_models_are_pulled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "pull", lambda *_, **__: pytest.fail("it must not be asked for"))
    async with hosting(FakeOpener()) as host:
        for name in ("someone/Some-Repo/file.gguf", "http://10.0.0.1/x", "../x", "nonsense"):
            with pytest.raises(ModelNotFoundError, match="can be pulled"):
                await host.pull(name, lambda *_: None)


async def test_a_pull_is_done_once_and_given_up_when_all_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, ended, go = [], [], threading.Event()

    def pull(name: str, *, progress: hub.Progress) -> Path:
        calls.append(name)
        try:
            for done in range(10_000):
                progress(done, 10_000)
                if go.wait(0.002):
                    raise DownloadError("the disk is full")
        except DownloadError:
            raise
        except BaseException as error:
            ended.append(error)
            raise
        return Path(name)

    monkeypatch.setattr(hub, "pull", pull)
    seen: list[tuple[str, int, int]] = []
    async with hosting(FakeOpener()) as host:

        def start() -> asyncio.Task[None]:
            return asyncio.create_task(host.pull("Qwen3-0.6B", lambda *told: seen.append(told)))

        first, second = start(), start()
        await until(lambda: len(seen) > 4)
        assert calls == ["qwen3-0.6b"] and seen[0][0] == "downloading" and seen[0][2] == 10_000
        first.cancel()
        n_seen = len(seen)
        await until(lambda: len(seen) > n_seen)
        assert not ended, "the second still waits for it"
        second.cancel()
        await until(lambda: ended)
        again = start()
        await until(lambda: len(calls) == 2)
        go.set()
        with pytest.raises(DownloadError, match="disk"):
            await again


async def test_what_was_pulled_can_be_used_at_once(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = hub.registry().get("qwen3-0.6b")

    def pull(name: str, *, progress: hub.Progress) -> Path:
        path = models / entry.file
        path.write_bytes(b"x")
        return path

    monkeypatch.setattr(hub, "pull", pull)
    async with hosting(FakeOpener()) as host:
        with pytest.raises(ModelNotFoundError, match="localspec pull qwen3"):
            await _use(host, "qwen3-0.6b")
        await host.pull("qwen3-0.6b", lambda *_: None)
        assert "qwen3-0.6b" in [model.name for model in host.available()]
        await _use(host, "qwen3-0.6b")
