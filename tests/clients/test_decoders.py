"""Streams as the clients' own readers take them, wherever the network cuts them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import httpx

from tests.clients.conftest import PROGRAMS, plain_env
from tests.clients.scripted import UNUSUAL
from tests.server.client import events_of


def test_every_reader_finds_the_same_events(client_python: Path, url: str) -> None:
    asked = {"messages": [{"role": "user", "content": "unusual"}], "stream": True}
    body = httpx.post(f"{url}/v1/chat/completions", json=asked).content.decode()
    done = subprocess.run(
        [str(client_python), str(PROGRAMS / "decoders.py")],
        input=json.dumps({"body": body, "sizes": [1, 2, 3, 7, 4096]}),
        capture_output=True, text=True, env=plain_env(), timeout=120, check=True,
    )  # fmt: skip
    expected = events_of(body)
    assert "".join(event["choices"][0]["delta"].get("content") or "" for event in expected[:-1]) == UNUSUAL
    for reader, found in json.loads(done.stdout).items():
        for size, data in found.items():
            events = [each if each == "[DONE]" else json.loads(each) for each in data]
            assert events == expected, (reader, size)
