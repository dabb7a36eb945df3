"""`localspec serve` as a process of its own, with a model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.client import events_of
from tests.with_model import smollm

pytestmark = pytest.mark.model
ASK = {"messages": [{"role": "user", "content": "Count to three."}], "temperature": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a server that is ready, and its process."""
    options = ["-m", str(smollm()), "-t", "1", "-c", "512", "--parallel", "2", "--method", "plain", "--grace", "0.5"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from localspec.cli import main; main()", "serve", "--port", "0", *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LOCALSPEC_HOME": str(tmp_path_factory.mktemp("home")), "LOCALSPEC_API_KEY": "secret"},
    )
    try:
        assert process.stderr is not None
        url = process.stderr.readline().split()[3]
        assert httpx.get(f"{url}/health").status_code in (200, 503)
        assert "is ready" in process.stderr.readline()
        yield url, process
    finally:
        process.kill()
        process.wait()


def test_it_answers_and_ends_well(server: tuple[str, subprocess.Popen[str]]) -> None:
    url, process = server
    assert httpx.get(f"{url}/v1/models").status_code == 401
    with httpx.Client(base_url=url, headers={"Authorization": "Bearer secret"}, timeout=120) as client:
        assert client.get("/health").json() == {"status": "ok"}
        name = client.get("/v1/models").json()["data"][0]["id"]
        assert name == Path(smollm()).stem or name == "smollm2-135m-instruct"
        whole = client.post("/v1/chat/completions", json={**ASK, "max_tokens": 8}).json()
        assert (whole["usage"]["completion_tokens"], whole["choices"][0]["finish_reason"]) == (8, "length")
        events = events_of(client.post("/v1/chat/completions", json={**ASK, "max_tokens": 8, "stream": True}).text)
        text = "".join([event["choices"][0]["delta"].get("content") or "" for event in events[:-1]])
        assert text == whole["choices"][0]["message"]["content"]
        endless = {**ASK, "stream": True, "ignore_eos": True}
        with client.stream("POST", "/v1/chat/completions", json=endless) as response:
            parts = response.iter_text()
            received = next(parts)
            process.send_signal(signal.SIGINT)
            received += "".join(parts)
    last = events_of(received)[-1]
    # on a fast machine it was whole before its time was over
    assert last == "[DONE]" or last["error"]["code"] == "shutting_down"
    assert process.wait(30) == 0
