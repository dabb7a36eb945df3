"""Work that ends when the client that waits for it has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


async def gone(receive: Receive) -> None:
    """Return when the client has gone. To be called once the body of the request has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def watched(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client goes. Raises `ClientGoneError` then."""
    task = asyncio.ensure_future(work)
    left = asyncio.ensure_future(gone(receive))
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        for each in (task, left):
            each.cancel()
        await asyncio.gather(task, left, return_exceptions=True)
