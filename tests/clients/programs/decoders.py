"""The clients' own readers of streams, on bodies that the network cuts into pieces of any size.

Reads JSON {"body": text, "sizes": [bytes]} and prints {reader: {size: [data of the events]}}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

import anthropic._streaming
import httpx
import httpx_sse
import openai._streaming

given = json.load(sys.stdin)
body = given["body"].encode()


def cut(size: int) -> Iterator[bytes]:
    for i in range(0, len(body), size):
        yield body[i : i + size]


def by_openai(size: int) -> list[str]:
    return [event.data for event in openai._streaming.SSEDecoder().iter_bytes(cut(size))]


def by_anthropic(size: int) -> list[str]:
    return [event.data for event in anthropic._streaming.SSEDecoder().iter_bytes(cut(size))]


def by_httpx_sse(size: int) -> list[str]:
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=cut(size))
    return [event.data for event in httpx_sse.EventSource(response).iter_sse()]


def by_lines(size: int) -> list[str]:
    """How many programs do it by hand: lines as `str.splitlines` has them."""
    response = httpx.Response(200, headers={"content-type": "text/event-stream; charset=utf-8"}, content=cut(size))
    return [line[len("data: ") :] for line in response.iter_lines() if line.startswith("data: ")]


READERS: dict[str, Callable[[int], list[str]]] = {
    "openai": by_openai,
    "anthropic": by_anthropic,
    "httpx-sse": by_httpx_sse,
    "lines": by_lines,
}
print(json.dumps({name: {size: read(size) for size in given["sizes"]} for name, read in READERS.items()}))
