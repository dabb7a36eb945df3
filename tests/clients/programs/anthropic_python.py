"""The anthropic library, which holds every reply against its own types (`_strict_response_validation`)."""

from __future__ import annotations

from typing import Any

import anthropic
from common import KEY, KEYED_URL, MODEL, TOO_LONG, URL, WEATHER, described, run, user

client = anthropic.Anthropic(base_url=URL, api_key="none", _strict_response_validation=True)
TOOL = {
    "name": "weather",
    "description": WEATHER["function"]["description"],
    "input_schema": WEATHER["function"]["parameters"],
}


def ask(text: str, **options: Any) -> Any:
    return client.messages.create(model=MODEL, max_tokens=100, messages=user(text), **options)


def answer(text: str, **options: Any) -> dict[str, Any]:
    reply = ask(text, **options)
    return {"text": reply.content[0].text, "finish": reply.stop_reason, "usage": reply.usage.output_tokens}


def pieces(text: str, **options: Any) -> dict[str, Any]:
    texts, error, finish, usage = [], None, None, None
    try:
        with client.messages.stream(model=MODEL, max_tokens=100, messages=user(text), **options) as stream:
            for piece in stream.text_stream:
                texts.append(piece)
            final = stream.get_final_message()
            finish, usage = final.stop_reason, final.usage.output_tokens
    except anthropic.APIError as problem:
        error = described(problem)
    return {"text": "".join(texts), "n": len(texts), "finish": finish, "usage": usage, "error": error}


def tools() -> dict[str, Any]:
    whole = ask("call both", tools=[TOOL])
    with client.messages.stream(model=MODEL, max_tokens=100, messages=user("call both"), tools=[TOOL]) as stream:
        streamed = stream.get_final_message()
    uses = [[block.model_dump() for block in reply.content if block.type == "tool_use"] for reply in (whole, streamed)]
    results = [{"type": "tool_result", "tool_use_id": use["id"], "content": "21 degrees"} for use in uses[0]]
    messages = [
        *user("call both"),
        {"role": "assistant", "content": whole.content},
        {"role": "user", "content": results},
    ]
    after = client.messages.create(model=MODEL, max_tokens=100, messages=messages, tools=[TOOL])
    return {
        "whole": [(use["name"], use["input"]) for use in uses[0]],
        "streamed": [(use["name"], use["input"]) for use in uses[1]],
        "finish": [whole.stop_reason, streamed.stop_reason],
        "after": after.content[0].text,
    }


def with_key(**options: Any) -> str:
    keyed = anthropic.Anthropic(base_url=KEYED_URL, max_retries=0, **options)
    return keyed.messages.create(model=MODEL, max_tokens=100, messages=user("say hello")).content[0].text


run(
    {
        "chat": lambda: answer("say hello"),
        "system": lambda: answer("say hello", system="Be brief.", extra_body={"temperature": 0.5, "top_k": 3}),
        "stream": lambda: pieces("say hello"),
        "tools": tools,
        "too_long": lambda: answer(TOO_LONG),
        "busy": lambda: answer("busy anthropic"),
        "broken": lambda: pieces("break"),
        "wrong_key": lambda: with_key(api_key="wrong"),
        "right_key": lambda: with_key(api_key=KEY),
        "token": lambda: with_key(auth_token=KEY),
        "unusual": lambda: {"whole": answer("unusual")["text"], "streamed": pieces("unusual")["text"]},
        "stop": lambda: pieces("say one STOP two", stop_sequences=["STOP"]),
        "length": lambda: client.messages.create(model=MODEL, max_tokens=7, messages=user("count")).stop_reason,
        "count_tokens": lambda: client.messages.count_tokens(model=MODEL, messages=user("count")).input_tokens,
        "models": lambda: [model.id for model in client.models.list()],
    }
)
