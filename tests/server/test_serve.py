"""`localspec serve` on the command line."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from localspec.cli import app, serve
from localspec.errors import EngineError, LocalspecError, ModelNotFoundError, UsageError
from localspec.server.settings import Settings
from tests.server.fake import FakeHost


class Served(FakeHost):
    """A host that is entered, and that asks for the end of the server once it is ready."""

    failure: LocalspecError | None = None
    left = False

    async def __aenter__(self) -> Served:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.left = True

    async def ready(self) -> None:
        threading.Thread(target=self._end).start()
        if self.failure is not None:
            raise self.failure

    def _end(self) -> None:
        time.sleep(0.3)
        handler = signal.getsignal(signal.SIGTERM)
        if callable(handler):
            handler(signal.SIGTERM, None)


def run(monkeypatch: pytest.MonkeyPatch, host: FakeHost, *args: str) -> Any:
    monkeypatch.setattr(serve, "make_host", lambda *_: host)
    return CliRunner().invoke(app, ["serve", "--port", "0", *args], prog_name="localspec")


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCALSPEC_API_KEY", raising=False)


def test_it_tells_its_address_and_its_model_and_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Served()
    result = run(monkeypatch, host)
    assert (result.exit_code, result.stdout) == (0, "")
    greeting, ready = result.stderr.splitlines()
    assert "http://127.0.0.1:" in greeting
    assert ready.startswith("fake is ready: CPU, patched, 2 slots of 1024 tokens")
    assert host.left


def test_a_model_that_cannot_be_loaded_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Served()
    host.failure = EngineError("there is no memory for it")
    result = run(monkeypatch, host)
    assert result.exit_code == EngineError.exit_code
    assert result.stderr.splitlines()[-1] == "error: there is no memory for it"
    assert host.left


def test_without_any_model_it_goes_on_unless_one_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Served()
    host.failure = ModelNotFoundError("there is no model", "pull one")
    assert run(monkeypatch, host).exit_code == 0
    assert run(monkeypatch, host, "-m", "other").exit_code == ModelNotFoundError.exit_code


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.com"])
def test_other_machines_are_let_in_with_a_key_alone(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    result = run(monkeypatch, FakeHost(), "--host", host)
    assert result.exit_code == UsageError.exit_code
    assert "there is no key" in result.stderr
    result = run(monkeypatch, FakeHost(), "--origin", "*")
    assert result.exit_code == UsageError.exit_code


@pytest.mark.parametrize(
    "args",
    [
        ("--origin", "localhost"),
        ("--api-key", "two words"),
        ("--api-key-file", "/nowhere/keys"),
        ("--parallel", "0"),
        ("--temp", "-1"),
        ("--port", "70000"),
    ],
)
def test_options_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]) -> None:
    assert run(monkeypatch, FakeHost(), *args).exit_code == UsageError.exit_code


def settings(**network: Any) -> Settings:
    options = {"api_key": None, **network}
    return serve.settings_of(serve.NetworkOptions(**options), serve.ServeLimits(), serve.DefaultSampling(), False)


def test_keys_come_from_both_places(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# of the team\none\n\ntwo\n")
    assert settings(api_key="zero", api_key_file=file).api_keys == ("zero", "one", "two")
    file.write_text("\n")
    with pytest.raises(UsageError):
        settings(api_key_file=file)


def test_the_address_that_it_listens_on_is_a_name_of_the_server() -> None:
    assert settings(host="203.0.113.5", host_name=["chat.example"]).host_names == ("chat.example", "203.0.113.5")
    assert settings(host="0.0.0.0").host_names == ()


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("6G", 6 << 30), ("512m", 512 << 20), ("1.5GiB", 3 << 29), ("100", 100), ("2 kb", 2048)]
)
def test_sizes(text: str, n_bytes: int) -> None:
    assert serve.size(text) == n_bytes


@pytest.mark.parametrize("text", ["", "big", "-1G", "0", "1P", "1e3"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        serve.size(text)


def test_how_much_memory_it_would_take(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Opener:
        def need(self, path: Path) -> int:
            return 1_500_000_000

        def free(self) -> int:
            return 200_000_000

    model = tmp_path / "small.gguf"
    model.write_bytes(b"GGUF")
    monkeypatch.setattr(serve, "make_opener", lambda *_: Opener())
    result = CliRunner().invoke(app, ["serve", "--estimate", "-m", str(model)])
    assert (result.exit_code, result.stdout) == (0, "small would take 1.50 GB; 200 MB are free\n")
