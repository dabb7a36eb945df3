"""What the command line makes of its options before there is an app."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import localspec.tui as localspec_tui
from localspec.cli import chat
from localspec.cli.options import EngineOptions, LimitOptions, MethodOptions, SamplingOptions
from localspec.errors import UsageError
from localspec.tui.config import Config
from localspec.tui.start import Start
from tests.with_model import localspec


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretends that there is a terminal of so many columns, or none."""

    def pretend(columns: int, *, is_there: bool = True, term: str = "xterm") -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", term)
        for name in ("stdin", "stdout"):
            monkeypatch.setattr(f"sys.{name}.isatty", lambda: is_there)

    return pretend


def test_where_there_is_room_for_the_app(terminal: Callable[..., None]) -> None:
    terminal(80)
    assert chat.DisplayOptions().wants_app()
    assert not chat.DisplayOptions(plain=True).wants_app()
    terminal(59)
    assert not chat.DisplayOptions().wants_app()
    assert chat.DisplayOptions(inline=True).wants_app()
    terminal(80, term="dumb")
    assert not chat.DisplayOptions().wants_app()
    terminal(80, is_there=False)
    assert not chat.DisplayOptions().wants_app()


def test_inline_needs_a_terminal(terminal: Callable[..., None]) -> None:
    terminal(80, is_there=False)
    with pytest.raises(UsageError, match="no terminal"):
        chat.DisplayOptions(inline=True).wants_app()
    terminal(80)
    with pytest.raises(UsageError, match="plain"):
        chat.DisplayOptions(inline=True, plain=True).wants_app()


def test_options_reach_the_engine() -> None:
    engine = EngineOptions(model="m", ctx_size=512, draft="d", draft_ctx_size=256, heads=[Path("h.gguf")])
    request = chat.open_request(engine, MethodOptions("ptd", "code"), pool=False)
    assert (request.model, request.method, request.draft) == ("m", "ptd", "d")
    assert request.options["draft_n_ctx"] == 256 and request.options["task"] == "code"
    assert request.options["heads"] == (Path("h.gguf"),) and request.options["pool"] is False
    assert request.options["context"].n_ctx == 512  # type: ignore[attr-defined]


def test_what_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="draft-ctx-size"):
        chat.open_request(EngineOptions(draft_ctx_size=256), MethodOptions(), pool=True)
    with pytest.raises(UsageError, match="threads"):
        chat.open_request(EngineOptions(threads=100_000), MethodOptions(), pool=True)


def test_the_command_line_goes_before_the_configuration() -> None:
    config = Config(system="Be brief.", sampling={"temperature": 0.1, "top_k": 7, "max_tokens": 5})
    preset = chat._preset(SamplingOptions(temp=0.5).sampling(), LimitOptions(max_tokens=9))
    made = Start(sampling=preset, system="Be kind.", accept="loose").conversation(config)
    assert made.sampling == {"temperature": 0.5, "top_k": 7}
    assert (made.max_tokens, made.system, made.accept) == (9, "Be kind.", "loose")
    preset = chat._preset(SamplingOptions().sampling(), LimitOptions())
    made = Start(sampling=preset).conversation(config)
    assert (made.sampling, made.max_tokens, made.system) == ({"temperature": 0.1, "top_k": 7}, 5, "Be brief.")
    assert Start(system="").conversation(config).system is None


def test_a_theme_that_is_not_there_is_refused() -> None:
    assert chat.DisplayOptions(theme="localspec-light").checked_theme() == "localspec-light"
    with pytest.raises(UsageError, match="localspec-drak"):
        chat.DisplayOptions(theme="localspec-drak").checked_theme()


def test_help_tells_of_the_display() -> None:
    done = localspec("chat", "--help")
    assert done.returncode == 0
    for option in ("--plain", "--inline", "--fps", "--theme"):
        assert option in done.stdout


def test_nothing_of_the_interface_loads_the_native_library() -> None:
    modules = [f"localspec.tui.{info.name}" for info in pkgutil.iter_modules(localspec_tui.__path__)]
    modules += ["localspec.worker", "localspec.cli.chat"]
    code = f"import sys; [__import__(name) for name in {modules!r}]; print('llama_cpp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["False"]
