"""The ollama library."""

from __future__ import annotations

from typing import Any

import ollama
from common import KEY, KEYED_URL, MODEL, TOO_LONG, URL, WEATHER, described, run, user

client = ollama.Client(URL)


def answer(text: str, **options: Any) -> dict[str, Any]:
    reply = client.chat(model=MODEL, messages=user(text), **options)
    return {"text": reply.message.content, "finish": reply.done_reason, "n_tokens": reply.eval_count}


def pieces(text: str, **options: Any) -> dict[str, Any]:
    parts, error = [], None
    try:
        for part in client.chat(model=MODEL, messages=user(text), stream=True, **options):
            parts.append(part)
    except ollama.ResponseError as problem:
        error = described(problem)
    return {
        "text": "".join(part.message.content or "" for part in parts),
        "n": len(parts),
        "finish": [part.done_reason for part in parts if part.done_reason],
        "done": [part.done for part in parts].count(True),
        "error": error,
    }


def tools() -> dict[str, Any]:
    whole = client.chat(model=MODEL, messages=user("call the weather"), tools=[WEATHER]).message
    streamed = [
        call
        for part in client.chat(model=MODEL, messages=user("call the weather"), tools=[WEATHER], stream=True)
        for call in part.message.tool_calls or ()
    ]
    messages = [*user("call the weather"), whole, {"role": "tool", "tool_name": "weather", "content": "21 degrees"}]
    return {
        "whole": [(call.function.name, call.function.arguments) for call in whole.tool_calls],
        "streamed": [(call.function.name, call.function.arguments) for call in streamed],
        "after": client.chat(model=MODEL, messages=messages, tools=[WEATHER]).message.content,
    }


def generate() -> dict[str, Any]:
    whole = client.generate(model=MODEL, prompt="say hello")
    raw = client.generate(model=MODEL, prompt="say hello", raw=True)
    streamed = list(client.generate(model=MODEL, prompt="say hello", stream=True))
    return {
        "text": whole.response,
        "raw": raw.response,
        "streamed": "".join(part.response for part in streamed),
        "done": streamed[-1].done,
        "durations": [whole.total_duration, whole.prompt_eval_duration, whole.eval_duration],
        "counts": [whole.prompt_eval_count, whole.eval_count],
    }


def embed() -> dict[str, Any]:
    return {
        "one": len(client.embed(model=MODEL, input="hello").embeddings),
        "two": len(client.embed(model=MODEL, input=["hello", "you"]).embeddings),
        "old": len(client.embeddings(model=MODEL, prompt="hello").embedding) > 0,
    }


def show() -> dict[str, Any]:
    shown = client.show(MODEL)
    return {
        "capabilities": shown.capabilities,
        "context": [value for key, value in (shown.modelinfo or {}).items() if key.endswith(".context_length")],
        "quant": shown.details.quantization_level,
        "template": bool(shown.template),
    }


def with_key(key: str) -> str:
    keyed = ollama.Client(KEYED_URL, headers={"Authorization": f"Bearer {key}"})
    return keyed.chat(model=MODEL, messages=user("say hello")).message.content


def structured() -> str:
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    return client.chat(model=MODEL, messages=user("describe a person"), format=schema).message.content


run(
    {
        "chat": lambda: answer("say hello"),
        "stream": lambda: pieces("say hello"),
        "tools": tools,
        "too_long": lambda: answer(TOO_LONG),
        "full": lambda: answer("full"),
        "broken": lambda: pieces("break"),
        "wrong_key": lambda: with_key("wrong"),
        "right_key": lambda: with_key(KEY),
        "unusual": lambda: {"whole": answer("unusual")["text"], "streamed": pieces("unusual")["text"]},
        "options": lambda: pieces("say one STOP two", options={"stop": ["STOP"], "temperature": 0.5, "num_ctx": 4096}),
        "length": lambda: answer("count", options={"num_predict": 7}),
        "thoughts": lambda: client.chat(model=MODEL, messages=user("think"), think=True).message.thinking,
        "structured": structured,
        "generate": generate,
        "embed": embed,
        "list": lambda: [model.model for model in client.list().models],
        "show": show,
        "ps": lambda: [model.model for model in client.ps().models],
        "pull": lambda: [part.status for part in client.pull(MODEL, stream=True)],
        "pull_unknown": lambda: [part.status for part in client.pull("not-here", stream=True)],
        "unknown_model": lambda: client.chat(model="not-here", messages=user("say hello")).message.content,
        "load": lambda: client.generate(model=MODEL, prompt="", keep_alive=60).done_reason,
    }
)
