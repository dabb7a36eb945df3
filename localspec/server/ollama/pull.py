"""POST /api/pull: download a known model."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from localspec.server.any_type import AnyTypeRoute
from localspec.server.disconnect import watched
from localspec.server.ollama import convert, schemas
from localspec.server.ollama.docs import STREAMED
from localspec.server.ollama.run import error_shape
from localspec.server.sse import NDJSON, Stream, line
from localspec.serving.api import Host

router = APIRouter(route_class=AnyTypeRoute)

SUCCESS = {"status": "success"}


@router.post("/api/pull", response_model=schemas.PullProgress, responses=STREAMED)
async def pull(request: Request, body: schemas.PullRequest) -> Response:
    """Download a model of models.txt, with a line as often as there is progress unless `stream` is false.

    The download ends when the client goes; the next one goes on from there.
    """
    host: Host = request.app.state.host
    download = _Download(host, convert.untagged(body.model))
    if body.stream is False:
        await watched(request.receive, download.finish())
        return JSONResponse(SUCCESS)
    try:
        # what is wrong with the name shows before there is progress, and has a status then
        await watched(request.receive, download.first())
    except BaseException:
        await download.close()
        raise
    return Stream(
        download.lines(),
        download.close,
        media_type=NDJSON,
        on_error=lambda problem: line(error_shape(problem)),
        keep_alive=None,
        write_timeout=request.app.state.settings.write_timeout,
    )


class _Download:
    """A download under way, as the lines that tell of it. The newest progress counts: a slow reader misses the rest."""

    def __init__(self, host: Host, name: str) -> None:
        self._digest = f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
        self._newest: dict[str, Any] | None = None
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(host.pull(name, self._progress))
        self._task.add_done_callback(lambda _: self._changed.set())

    def _progress(self, status: str, done: int, total: int) -> None:
        # downloads report from their own thread
        self._loop.call_soon_threadsafe(self._told, status, done, total)

    def _told(self, status: str, done: int, total: int) -> None:
        self._newest = {"status": status, "digest": self._digest, "total": total, "completed": done}
        self._changed.set()

    async def first(self) -> None:
        """Wait for progress, or the end. Raises what the download does."""
        await self._changed.wait()
        if self._task.done():
            self._task.result()

    async def finish(self) -> None:
        try:
            await self._task
        finally:
            await self.close()

    async def lines(self) -> AsyncIterator[bytes]:
        yield line({"status": "pulling manifest"})
        while True:
            await self._changed.wait()
            self._changed.clear()
            newest, self._newest = self._newest, None
            if newest is not None:
                yield line(newest)
            elif self._task.done():
                self._task.result()
                yield line(SUCCESS)
                return
            if self._task.done():
                self._changed.set()

    async def close(self) -> None:
        """End the download unless it is done."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
