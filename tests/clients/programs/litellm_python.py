"""litellm, as agents and proxies use it: an OpenAI-compatible server, and Ollama."""

from __future__ import annotations

from typing import Any

import litellm
from common import KEY, KEYED_URL, MODEL, TOO_LONG, URL, WEATHER, described, run, user

litellm.suppress_debug_info = True


def ask(text: str, **options: Any) -> Any:
    given = {"model": f"openai/{MODEL}", "api_base": f"{URL}/v1", "api_key": "none", **options}
    return litellm.completion(messages=user(text), **given)


def answer(text: str, **options: Any) -> dict[str, Any]:
    reply = ask(text, **options)
    return {"text": reply.choices[0].message.content, "finish": reply.choices[0].finish_reason}


def pieces(text: str, **options: Any) -> dict[str, Any]:
    texts, finishes, usages, error = [], [], [], None
    try:
        for chunk in ask(text, stream=True, **options):
            usages += [chunk.usage.model_dump()] if getattr(chunk, "usage", None) else []
            for choice in chunk.choices:
                texts += [choice.delta.content] if choice.delta.content else []
                finishes += [choice.finish_reason] if choice.finish_reason else []
    except Exception as problem:
        error = described(problem)
    return {"text": "".join(texts), "n": len(texts), "finish": finishes, "usage": usages, "error": error}


def tools() -> list[dict[str, Any]]:
    message = ask("call the weather", tools=[WEATHER]).choices[0].message
    return [
        {"id": call.id, "name": call.function.name, "arguments": call.function.arguments} for call in message.tool_calls
    ]


def embeddings() -> int:
    reply = litellm.embedding(
        model=f"openai/{MODEL}", input=["hello", "you"], api_base=f"{URL}/v1", api_key="none", encoding_format="float"
    )
    return len(reply.data)


OLLAMA = {"model": f"ollama_chat/{MODEL}", "api_base": URL}
run(
    {
        "chat": lambda: answer("say hello"),
        "stream": lambda: pieces("say hello"),
        "usage": lambda: pieces("say hello", stream_options={"include_usage": True}),
        "tools": tools,
        "too_long": lambda: answer(TOO_LONG),
        "busy": lambda: answer("busy litellm", max_retries=2),
        "broken": lambda: pieces("break", max_retries=0),
        "wrong_key": lambda: answer("say hello", api_base=f"{KEYED_URL}/v1", api_key="wrong"),
        "right_key": lambda: answer("say hello", api_base=f"{KEYED_URL}/v1", api_key=KEY)["text"],
        "embeddings": embeddings,
        "unusual": lambda: {"whole": answer("unusual")["text"], "streamed": pieces("unusual")["text"]},
        "thoughts": lambda: ask("think").choices[0].message.reasoning_content,
        "ollama": lambda: answer("say hello", **OLLAMA),
        "ollama_stream": lambda: pieces("say hello", **OLLAMA),
    }
)
