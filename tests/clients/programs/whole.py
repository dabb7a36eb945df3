"""Several libraries on a server with a real model, whose address and model are the arguments."""

from __future__ import annotations

import sys
from typing import Any

import anthropic
import ollama
import openai
from common import WEATHER, run, user
from pydantic import BaseModel

URL, MODEL = sys.argv[1:3]
client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", timeout=120, _strict_response_validation=True)
QUESTION, N = "Name three animals.", 20


class Person(BaseModel):
    name: str
    age: int


def ask(text: str = QUESTION, **options: Any) -> Any:
    given = {"model": MODEL, "temperature": 0, "max_tokens": N, **options}
    return client.chat.completions.create(messages=user(text), **given)


def texts() -> dict[str, str]:
    """The same question by every API."""
    options = {"temperature": 0, "num_predict": N}
    by_ollama = ollama.Client(URL).chat(model=MODEL, messages=user(QUESTION), options=options)
    by_anthropic = anthropic.Anthropic(base_url=URL, api_key="none").messages.create(
        model=MODEL, messages=user(QUESTION), max_tokens=N, extra_body={"temperature": 0}
    )
    by_responses = client.responses.create(model=MODEL, input=QUESTION, temperature=0, max_output_tokens=N)
    chunks = [choice.delta.content or "" for chunk in ask(stream=True) for choice in chunk.choices]
    plain = ask(extra_body={"speculation": {"method": "off"}})
    return {
        "openai": ask().choices[0].message.content,
        "openai stream": "".join(chunks),
        "without speculation": plain.choices[0].message.content,
        "responses": by_responses.output_text,
        "ollama": by_ollama.message.content,
        "anthropic": by_anthropic.content[0].text,
    }


def parse() -> dict[str, Any]:
    reply = client.chat.completions.parse(
        model=MODEL, messages=user("Describe a person."), response_format=Person, temperature=0, max_tokens=60
    )
    return {"finish": reply.choices[0].finish_reason, "text": reply.choices[0].message.content}


def logprobs() -> dict[str, Any]:
    content = ask(logprobs=True, top_logprobs=3).choices[0].logprobs.content
    return {
        "text": b"".join(bytes(entry.bytes) for entry in content).decode(),
        "best": [entry.logprob == entry.top_logprobs[0].logprob for entry in content],
        "numbers": [entry.logprob <= 0 for entry in content],
    }


def embeddings() -> dict[str, Any]:
    data = client.embeddings.create(model=MODEL, input=["a cat", "a kitten", "tax law"], encoding_format="float").data
    vectors = [item.embedding for item in data]
    return {
        "lengths": [sum(x * x for x in vector) ** 0.5 for vector in vectors],
        "near": sum(a * b for a, b in zip(vectors[0], vectors[1], strict=True)),
        "far": sum(a * b for a, b in zip(vectors[0], vectors[2], strict=True)),
    }


run(
    {
        "texts": texts,
        "usage": lambda: ask().usage.model_dump(),
        "parse": parse,
        "tool": lambda: ask("What is the weather in Paris?", tools=[WEATHER]),
        "logprobs": logprobs,
        "embeddings": embeddings,
        "too_long": lambda: ask("word " * 10_000),
    }
)
