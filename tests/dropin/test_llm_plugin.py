"""The plugin for the `llm` command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec import hub
from tests.dropin.made import ToolFormat, llama
from tests.server.fake import FakeEngine

llm = pytest.importorskip("llm")
pytest.importorskip("llm.parts")

MODEL = "localspec/tiny"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeEngine]:
    """llm with the plugin and one model on this machine, over this engine."""
    from llm.plugins import pm

    from localspec import llm_plugin
    from localspec.llm_model import LocalspecModel

    made = FakeEngine()
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    here = hub.LocalModel("tiny", tmp_path / "tiny.gguf", 1, None, False)
    monkeypatch.setattr(hub, "local_models", lambda: [here])
    monkeypatch.setattr(LocalspecModel, "_loaded", lambda self, n_ctx: llama(engine=made))
    llm.get_models()  # loads the plugins that are installed, this one perhaps among them
    known = pm.is_registered(llm_plugin)
    if not known:
        pm.register(llm_plugin)
    yield made
    if not known:
        pm.unregister(llm_plugin)


def run(*arguments: str) -> Any:
    from click.testing import CliRunner
    from llm.cli import cli

    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


def test_models_on_this_machine_are_listed(engine: FakeEngine) -> None:
    assert MODEL in run("models", "list").output
    options = run("models", "list", "--options", "-m", MODEL).output
    assert "speculation" in options and "temperature" in options


@pytest.mark.parametrize("stream", [(), ("--no-stream",)])
def test_the_command_answers_and_tells_the_usage(engine: FakeEngine, stream: tuple[str, ...]) -> None:
    result = run("-m", MODEL, "-u", "-o", "seed", "3", "-o", "speculation", "off", *stream, "hello")
    assert "user: hello" in result.output and "11 output" in result.output
    (request,) = engine.requests
    assert request.sampling.seed == 3 and request.method == "plain" and request.sampling.temperature == 0.8


def test_accepted_drafts_are_in_the_usage_and_the_log(engine: FakeEngine) -> None:
    response = llm.get_model(MODEL).prompt("hello", max_tokens=4)
    assert response.text() == "user"
    assert response.usage().output == 4
    assert response.usage().details["completion_tokens_details"] == {
        "accepted_prediction_tokens": 2, "rejected_prediction_tokens": 2,
    }  # fmt: skip
    assert response.response_json["speculation"]["method"] == "ptd"
    assert response.response_json["finish_reason"] == "length"


def test_a_conversation_is_sent_whole(engine: FakeEngine) -> None:
    engine.chat = made = ToolFormat()  # type: ignore[assignment]
    talk = llm.get_model(MODEL).conversation()
    talk.prompt("one", system="be brief").text()
    talk.prompt("two").text()
    assert [message["role"] for message in made.asked[1].messages] == ["system", "user", "assistant", "user"]
    assert [message["content"] for message in made.asked[1].messages][1:] == ["one", "Well.", "two"]


def test_tools_and_schemas(engine: FakeEngine) -> None:
    engine.chat = made = ToolFormat()  # type: ignore[assignment]
    model = llm.get_model(MODEL)

    def weather(city: str) -> str:
        "The weather in a city."
        return f"rain in {city}"

    response = model.prompt("weather?", tools=[weather])
    (call,) = response.tool_calls()
    assert call.name == "weather" and call.arguments == {"city": "Oslo"}
    (result,) = response.execute_tool_calls()
    assert result.output == "rain in Oslo"
    model.prompt("go on", tools=[weather], tool_results=[result], messages=response.prompt.messages).text()
    assert {"role": "tool", "tool_call_id": "call_1", "name": "weather", "content": "rain in Oslo"} in [
        dict(message) for message in made.asked[1].messages
    ]
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    model.prompt("a dog", schema=schema).text()
    assert made.asked[2].json_schema == schema
    assert json.dumps(made.asked[0].tools[0]["function"]["parameters"])


def test_what_goes_wrong_is_told_in_one_line(engine: FakeEngine) -> None:
    result = run("-m", MODEL, "-o", "speculation", "magic", "hello")
    assert result.exit_code == 1 and "'magic'" in result.output
    result = run("-m", MODEL, "-o", "temperature", "hot", "hello")
    assert result.exit_code != 0 and "temperature" in result.output
