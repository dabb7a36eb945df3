"""Servers for clients of others, and what came of the programs that use them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.server.app import create_app
from localspec.server.settings import Settings
from tests.clients.install import python_of
from tests.clients.scripted import ScriptedEngine
from tests.server.client import served
from tests.server.fake import FakeHost

PROGRAMS = Path(__file__).parent / "programs"
KEY = "sk-right"

Outcomes = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def clients() -> Path:
    """The folder of the installed clients; skips the test where there is none."""
    place = os.environ.get("LOCALSPEC_CLIENTS")
    if not place:
        pytest.skip("LOCALSPEC_CLIENTS is not set: export LOCALSPEC_CLIENTS=$(python tests/clients/install.py)")
    return Path(place)


@pytest.fixture(scope="session")
def client_python(clients: Path) -> Path:
    """The Python that has the clients."""
    python = python_of(clients)
    if not python.exists():
        pytest.skip(f"there are no Python clients in {clients}")
    return python


@pytest.fixture(scope="session")
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture(scope="session")
def url(engine: ScriptedEngine) -> Iterator[str]:
    """A server of the scripted model."""
    with served(create_app(FakeHost(engine))) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def keyed_url() -> Iterator[str]:
    """The same behind a key."""
    with served(create_app(FakeHost(ScriptedEngine()), Settings(api_keys=(KEY,)))) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def lenient_url() -> Iterator[str]:
    """The same, where any name is that of the model."""
    with served(create_app(FakeHost(ScriptedEngine()), Settings(any_model=True))) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def node_programs(clients: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs for node, where it finds the clients."""
    modules = clients / "node_modules"
    if shutil.which("node") is None or not modules.exists():
        pytest.skip(f"there is no node, or there are no clients for it in {clients}")
    folder = tmp_path_factory.mktemp("node")
    for path in PROGRAMS.glob("*.mjs"):
        shutil.copy(path, folder)
    (folder / "node_modules").symlink_to(modules, target_is_directory=True)
    return folder


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest, url: str, keyed_url: str) -> Callable[[str], Outcomes]:
    """Runs a program against the servers, once, and returns what came of its operations."""
    known: dict[str, subprocess.CompletedProcess[str]] = {}

    def of(program: str) -> Outcomes:
        if program not in known:
            known[program] = run_program(request, program, url, keyed_url)
        done = known[program]
        assert done.returncode == 0, done.stderr[-2000:]
        outcomes: Outcomes = json.loads(done.stdout)
        return outcomes

    return of


def run_program(request: pytest.FixtureRequest, program: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of `PROGRAMS`, in an environment without settings of the person who runs the tests."""
    if program.endswith(".mjs"):
        command = ["node", str(request.getfixturevalue("node_programs") / program)]
    else:
        command = [str(request.getfixturevalue("client_python")), str(PROGRAMS / program)]
    return subprocess.run([*command, *args], capture_output=True, text=True, env=plain_env(), timeout=120, check=False)


def plain_env() -> dict[str, str]:
    """An environment in which clients neither look for keys nor call home."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT") if name in os.environ}
    quiet = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MODE": "PRODUCTION",
        "LANGCHAIN_TRACING_V2": "false",
        "AI_SDK_LOG_WARNINGS": "false",
        "DO_NOT_TRACK": "1",
        "PYTHONUTF8": "1",
    }
    return {**kept, **quiet}
