"""A server with a real model for tests: the one at LOCALSPEC_TEST_URL, or `localspec serve` with SmolLM2.

LOCALSPEC_TEST_PID tells which process answers at that address, for its memory.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.with_model import calibrated_home

N_SLOTS, N_CTX = 4, 2048


@dataclass(frozen=True)
class Target:
    """A server, and its process where that is known."""

    url: str
    pid: int | None

    def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """A whole chat completion. Raises `httpx.HTTPStatusError`."""
        reply = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=600)
        reply.raise_for_status()
        answer: dict[str, Any] = reply.json()
        return answer

    def slots(self) -> list[dict[str, Any]]:
        slots: list[dict[str, Any]] = httpx.get(f"{self.url}/slots", timeout=10).json()
        return slots

    def waiting(self) -> int:
        """Requests that wait for a slot."""
        text = httpx.get(f"{self.url}/metrics", timeout=10).text
        return int(float(re.search(r"^llamacpp:requests_deferred (\S+)", text, re.MULTILINE)[1]))  # type: ignore[index]

    def resident(self) -> int:
        """Bytes of memory that the process holds."""
        if self.pid is None:
            pytest.skip("LOCALSPEC_TEST_PID does not say which process the server is")
        status = Path(f"/proc/{self.pid}/status")
        if not status.exists():
            pytest.skip("the memory of processes is read from /proc")
        return int(re.search(r"VmRSS:\s+(\d+) kB", status.read_text())[1]) * 1024  # type: ignore[index]

    def connect(self, body: dict[str, Any]) -> socket.socket:
        """A connection on which a chat completion was asked for, to be closed as rudely as one likes."""
        url, data = httpx.URL(self.url), json.dumps(body).encode()
        connection = socket.create_connection((url.host, url.port), timeout=60)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {url.host}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return connection


@contextmanager
def running_server(home: Path) -> Iterator[Target]:
    """The server; one that is started has its user files in `home`."""
    url = os.environ.get("LOCALSPEC_TEST_URL")
    if url:
        pid = os.environ.get("LOCALSPEC_TEST_PID")
        yield Target(url.rstrip("/"), int(pid) if pid else None)
        return
    with calibrated_home(home) as model:
        command = ["serve", "--model", str(model), "--port", "0", "--threads", "1"]
        command += ["--parallel", str(N_SLOTS), "--ctx-size", str(N_CTX)]
        server = subprocess.Popen(
            [sys.executable, "-c", "from localspec.cli import main; main()", *command],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip
        try:
            yield Target(_ready(server), server.pid)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


def _ready(server: subprocess.Popen[str]) -> str:
    """The address of a server, once its model is there."""
    told, url = [], ""
    assert server.stderr is not None
    for line in server.stderr:
        told.append(line)
        url = url or next(iter(re.findall(r"http://[\d.]+:\d+", line)), "")
        if " is ready" in line:
            # nobody reads what it says from now on, and it must not wait for that
            threading.Thread(target=server.stderr.read, daemon=True).start()
            return url
    raise AssertionError("the server did not start: " + "".join(told))
