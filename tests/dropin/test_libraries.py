"""LangChain and llama-index over `localspec.Llama`, put in the place of llama_cpp's by `install`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec import dropin
from localspec.dropin import llama as module
from localspec.dropin.opening import Card, Opened
from tests.server.fake import FakeEngine

pytest.importorskip("llama_cpp")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    """The engine that every `Llama` made by a library gets."""
    made = FakeEngine()
    opened = Opened(made, Card.of_engine(made), lambda: None)
    monkeypatch.setattr(module, "open_engine", lambda *_: opened)
    with dropin.installed():
        yield made


@pytest.fixture
def model_path(tmp_path: Path) -> str:
    path = tmp_path / "model.gguf"
    path.touch()
    return str(path)


@pytest.mark.filterwarnings("ignore:rope_freq_base")
class TestLangChain:
    @pytest.fixture(autouse=True)
    def needed(self, others_libraries: None) -> None:
        pytest.importorskip("langchain_community")

    @pytest.mark.parametrize("streaming", [True, False])
    def test_completions(self, engine: FakeEngine, model_path: str, streaming: bool) -> None:
        from langchain_community.llms import LlamaCpp

        llm = LlamaCpp(model_path=model_path, streaming=streaming, max_tokens=5, grammar='root ::= "a"', n_gpu_layers=0)
        assert llm.invoke("hello world", stop=["w"]) == "hello"
        assert "".join(llm.stream("hello")) == "hello"
        assert llm.get_num_tokens("hello") == 5
        request = engine.requests[0]
        assert request.stops == ("w",) and request.max_tokens == 5
        assert request.sampling.grammar == 'root ::= "a"' and request.sampling.repeat_penalty == 1.1

    @pytest.mark.parametrize("streaming", [True, False])
    def test_chat(self, engine: FakeEngine, model_path: str, streaming: bool) -> None:
        from langchain_community.chat_models import ChatLlamaCpp

        llm = ChatLlamaCpp(model_path=model_path, streaming=streaming)
        reply = llm.invoke([("system", "be brief"), ("human", "hello")])
        assert reply.content == "user: hello" and reply.response_metadata["finish_reason"] == "stop"
        assert "".join(str(chunk.content) for chunk in llm.stream("hello")) == "user: hello"

    def test_tools(self, engine: FakeEngine, model_path: str) -> None:
        from langchain_community.chat_models import ChatLlamaCpp

        from tests.dropin.made import ToolFormat

        engine.chat = ToolFormat()  # type: ignore[assignment]

        def weather(city: str) -> str:
            """The weather in a city."""
            return city

        plain = ChatLlamaCpp(model_path=model_path)
        for llm in (plain.bind_tools([weather]), plain.bind_tools([weather], tool_choice=_named("weather"))):
            (call,) = llm.invoke("weather in Oslo?").tool_calls
            assert call["name"] == "weather" and call["args"] == {"city": "Oslo"}

    def test_embeddings(self, engine: FakeEngine, model_path: str) -> None:
        from langchain_community.embeddings import LlamaCppEmbeddings

        made = LlamaCppEmbeddings(model_path=model_path)
        assert made.embed_documents(["ab", "c"])[0] == made.embed_query("ab")
        assert len(made.embed_query("ab")) == 4


def _named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


class TestLlamaIndex:
    @pytest.fixture(autouse=True)
    def needed(self, engine: FakeEngine, others_libraries: None) -> Iterator[None]:
        pytest.importorskip("llama_index.llms.llama_cpp")
        # it imports the class once, so that it has to be imported after `install`
        mine = [name for name in sys.modules if name.startswith("llama_index.llms.llama_cpp")]
        before = {name: sys.modules.pop(name) for name in mine}
        yield
        sys.modules.update(before)

    def test_completions_and_chat(self, engine: FakeEngine, model_path: str) -> None:
        from llama_index.core.llms import ChatMessage
        from llama_index.llms.llama_cpp import LlamaCPP

        llm = LlamaCPP(model_path=model_path, max_new_tokens=64, temperature=0.0, model_kwargs={"n_gpu_layers": 0})
        assert llm.complete("hello").text == "hello"
        *_, last = llm.stream_complete("hello")
        assert last.text == "hello" and last.raw["choices"][0]["finish_reason"] == "stop"
        assert llm.chat([ChatMessage(role="user", content="hi there")]).message.content
        assert b"user: hi there" in bytes(engine.requests[-1].prompt)
        assert llm.metadata.context_window == llm.context_window == 1024
        assert engine.requests[0].sampling.temperature == 0.0 and engine.requests[0].max_tokens == 64
