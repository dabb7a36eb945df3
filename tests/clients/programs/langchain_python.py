"""LangChain's ChatOpenAI and ChatOllama."""

from __future__ import annotations

from typing import Any

from common import KEY, KEYED_URL, MODEL, TOO_LONG, URL, WEATHER, described, run
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def model(**options: Any) -> Any:
    return ChatOpenAI(**{"model": MODEL, "base_url": f"{URL}/v1", "api_key": "none", **options})


def answer(text: str, **options: Any) -> dict[str, Any]:
    reply = model(**options).invoke(text)
    return {"text": reply.content, "finish": reply.response_metadata.get("finish_reason")}


def pieces(text: str, chat: Any = None, **options: Any) -> dict[str, Any]:
    texts, finishes, usages, error = [], [], [], None
    try:
        for chunk in (chat or model(**options)).stream(text):
            texts += [chunk.content] if chunk.content else []
            told = chunk.response_metadata.get("finish_reason") or chunk.response_metadata.get("done_reason")
            finishes += [told] if told else []
            usages += [dict(chunk.usage_metadata)] if chunk.usage_metadata else []
    except Exception as problem:
        error = described(problem)
    return {"text": "".join(texts), "n": len(texts), "finish": finishes, "usage": usages, "error": error}


def tools(chat: Any) -> list[dict[str, Any]]:
    calls = chat.bind_tools([WEATHER]).invoke("call the weather").tool_calls
    return [{"id": call["id"], "name": call["name"], "arguments": call["args"]} for call in calls]


OLLAMA = ChatOllama(model=MODEL, base_url=URL)
run(
    {
        "chat": lambda: answer("say hello"),
        "stream": lambda: pieces("say hello"),
        "usage": lambda: pieces("say hello", stream_usage=True),
        "tools": lambda: tools(model()),
        "too_long": lambda: answer(TOO_LONG),
        "busy": lambda: answer("busy langchain"),
        "broken": lambda: pieces("break"),
        "wrong_key": lambda: answer("say hello", base_url=f"{KEYED_URL}/v1", api_key="wrong"),
        "right_key": lambda: answer("say hello", base_url=f"{KEYED_URL}/v1", api_key=KEY)["text"],
        "embeddings": lambda: len(
            OpenAIEmbeddings(
                model=MODEL, base_url=f"{URL}/v1", api_key="none", check_embedding_ctx_length=False
            ).embed_documents(["hello", "you"])
        ),
        "unusual": lambda: {"whole": answer("unusual")["text"], "streamed": pieces("unusual")["text"]},
        "structured": lambda: model().with_structured_output(Person).invoke("describe a person").model_dump(),
        "ollama": lambda: pieces("say hello", OLLAMA),
        "ollama_tools": lambda: tools(OLLAMA),
        "ollama_embeddings": lambda: len(OllamaEmbeddings(model=MODEL, base_url=URL).embed_documents(["hello", "you"])),
    }
)
