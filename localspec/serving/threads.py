"""Blocking work beside an event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def in_thread(name: str, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    """Call `function` in a thread of its own, and await its result here.

    The thread is a daemon: unlike those of the loop's executor it does not keep a process from ending. To cancel the
    future does not stop the function.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def work() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = function(*args)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    wrapped = asyncio.wrap_future(future)
    threading.Thread(target=work, name=name, daemon=True).start()
    return wrapped
