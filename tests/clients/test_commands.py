"""Programs that people run: llm with its plugins, and llamastat."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from localspec.server.app import create_app
from tests.clients.conftest import plain_env
from tests.server.client import served
from tests.server.fake import FakeEngine, FakeHost

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
        "print(model.prompt('say hello', key='none').text())"
    )
    done = command("python", "-c", code, f"{lenient_url}/v1")
    assert done.stdout.strip() == "hello", done.stderr


def test_the_ollama_plugin_of_llm_finds_and_uses_the_model(command: Run, url: str) -> None:
    done = command("llm", "-m", "ollama/scripted", "say hello", OLLAMA_HOST=url)
    assert done.stdout.strip() == "hello", done.stderr


def test_llamastat_shows_the_server_and_what_its_slots_do(command: Run) -> None:
    """It reads /health, /slots, /props, /metrics and /v1/models as llama.cpp's server has them."""
    engine = FakeEngine("scripted", lambda prompt: "word " * 5000, n_slots=3, n_ctx=1 << 16, pause=0.02)
    body = {"model": "scripted", "prompt": "say hello", "stream": True}
    with (
        served(create_app(FakeHost(engine))) as port,
        httpx.stream("POST", f"http://127.0.0.1:{port}/v1/completions", json=body) as answer,
    ):
        chunks = answer.iter_bytes()
        next(chunks)
        done = command("llamastat", "--once", "--json", "--no-host", "-u", f"http://127.0.0.1:{port}")
    shown = json.loads(done.stdout)
    facts = engine.facts
    expected = {
        "health": "ok",
        "error": None,
        "model_alias": "scripted",
        "model_path": str(facts.path),
        "model_ftype": facts.quant,
        "n_params": facts.n_params,
        "model_size_bytes": facts.size,
        "n_ctx_train": facts.n_ctx_train,
        "n_embd": facts.n_embd,
        "n_vocab": facts.n_vocab,
        "total_slots": 3,
        "slot_ctx": facts.n_ctx,
        "metrics_available": True,
        "running": 1,
    }
    assert {name: shown[name] for name in expected} == expected
    assert sorted(slot["phase"] == "idle" for slot in shown["slots"]) == [False, True, True]
    assert shown["build_info"].startswith("localspec")
