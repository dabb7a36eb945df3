"""What apps send (`recorded.json`): all is taken, nothing is warned of, and what they read is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.client import events_of
from tests.server.marked import marked

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))


def found(data: Any, path: str) -> Any:
    """What is at `path`, such as "choices.0.finish_reason". Fails when there is nothing."""
    for key in [path] if path in data else path.split("."):
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: str(recorded["app"]))
def test_requests_of_apps(recorded: dict[str, Any]) -> None:
    client, _ = marked("hello there")
    response = client.post(recorded["path"], recorded["body"])
    assert response.status_code == 200, response.text
    kind = response.headers["content-type"]
    if kind.startswith("text/event-stream"):
        data = [each for each in events_of(response.text) if each != "[DONE]"]
    elif kind == "application/x-ndjson":
        data = [json.loads(line) for line in response.text.splitlines()]
    else:
        data = [response.json()]
    assert not any("error" in each or "warnings" in each for each in data), data
    for path in recorded["reads"]:
        assert found(data[-1], path) is not None


def test_a_stream_of_anthropics_names_its_events() -> None:
    client, _ = marked("hello")
    [recorded] = [each for each in RECORDED if each["path"] == "/v1/messages"]
    text = client.post(recorded["path"], recorded["body"]).text
    assert text.startswith("event: message_start\ndata: ")
    assert "event: message_stop\ndata: " in text
