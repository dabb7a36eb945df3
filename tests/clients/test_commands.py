"""Programs that people run: llm with its plugins, and llamastat."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.conftest import plain_env

Run = Callable[..., "subprocess.CompletedProcess[str]"]

WEATHER = """
def weather(city: str) -> str:
    "The weather of a city"
    return "21 degrees in " + city
"""


@pytest.fixture
def command(client_python: Path, tmp_path: Path) -> Run:
    """Runs a command of the clients with a home of its own."""

    def run(name: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        program = client_python.with_name(name)
        if not program.exists():
            pytest.skip(f"{name} is not installed")
        every = {**plain_env(), "HOME": str(tmp_path), "LLM_USER_PATH": str(tmp_path), "COLUMNS": "200", **env}
        return subprocess.run(
            [str(program), *args], capture_output=True, text=True, env=every, input="", timeout=60, check=False
        )

    return run


@pytest.fixture
def llm(command: Run, url: str, tmp_path: Path) -> Run:
    """The `llm` command with the server among its models, as its documentation says to do it."""
    model = {
        "model_id": "mine",
        "model_name": "scripted",
        "api_base": f"{url}/v1",
        "supports_tools": True,
        "supports_schema": True,
    }
    # JSON is YAML
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([model]))
    return lambda *args, **env: command("llm", *args, **env)


def test_llm_prints_how_many_drafted_tokens_were_accepted(llm: Run) -> None:
    done = llm("-m", "mine", "-u", "say hello")
    assert done.stdout.strip() == "hello", done.stderr
    assert '"accepted_prediction_tokens": 2' in done.stderr


def test_llm_with_tools_schemas_and_without_streaming(llm: Run) -> None:
    assert llm("-m", "mine", "call the weather", "--functions", WEATHER).stdout.strip() == "It has 21 degrees in Paris."
    described = llm("-m", "mine", "--schema", "name, age int", "describe a person")
    assert json.loads(described.stdout) == {"name": "Ada", "age": 36}
    assert llm("-m", "mine", "--no-stream", "say hello").stdout.strip() == "hello"


def test_llm_tells_of_a_stream_that_breaks(llm: Run) -> None:
    done = llm("-m", "mine", "break")
    assert done.returncode != 0
    assert done.stdout.startswith("Half of")
    assert "the machine broke" in done.stderr


def test_the_llama_server_plugin_of_llm(command: Run, lenient_url: str) -> None:
    code = (
        "import sys, llm_llama_server\n"
        "model = llm_llama_server.LlamaServer()\n"
        "model.api_base = sys.argv[1]\n"
        "print(model.prompt('say hello').text())"
    )
    assert command("python", "-c", code, f"{lenient_url}/v1").stdout.strip() == "hello"


def test_the_ollama_plugin_of_llm_finds_and_uses_the_model(command: Run, url: str) -> None:
    listed = command("llm", "models", OLLAMA_HOST=url).stdout
    assert "Ollama: scripted" in listed
    assert command("llm", "-m", "scripted", "say hello", OLLAMA_HOST=url).stdout.strip() == "hello"


def test_llamastat_shows_the_server(command: Run, url: str) -> None:
    """It reads /health, /slots, /props, /metrics and /v1/models as llama.cpp's server has them."""
    done = command("llamastat", "--once", "--json", "--no-host", "-u", url)
    snapshot = json.loads(done.stdout)
    assert json.dumps(snapshot).count("scripted") >= 1, snapshot
    assert snapshot == {}
