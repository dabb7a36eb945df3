"""The models of a process: loaded on demand, within a memory limit, and unloaded when nobody uses them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from localspec.errors import LocalspecError, ModelNotFoundError
from localspec.serving.api import Available, BusyError, Engine, State
from localspec.serving.catalog import Catalog
from localspec.serving.pulls import Pulls
from localspec.serving.resident import Opener, Resident
from localspec.serving.residents import Residents
from localspec.serving.threads import in_thread

log = logging.getLogger(__name__)

#: seconds for which the list of models is not looked up again
FRESH_SECONDS = 5.0
#: seconds between two looks at what is idle and what is stuck
TICK_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class HostSettings:
    """`default` is the model of those who name none (None: the embedded one). The models together take at most
    `memory_limit` bytes (None: what is free). `keep_default` and `keep` are seconds of idleness after which the default
    model and others are unloaded; None is never. A request waits at most `patience` seconds for a model."""

    default: str | Path | None = None
    memory_limit: int | None = None
    keep_default: float | None = None
    keep: float | None = 300.0
    patience: float = 120.0


class ModelHost:
    """`serving.api.Host` over the engines of `opener`. Of one event loop alone.

    An asynchronous context manager: on entry the default model begins to load, which is not waited for (see `ready`);
    on exit everything is closed.
    """

    def __init__(self, opener: Opener, settings: HostSettings | None = None) -> None:
        self._settings = settings or HostSettings()
        self._catalog = Catalog(self._settings.default)
        self._residents = Residents(opener, self._settings.memory_limit)
        self._pulls = Pulls()
        self._keeps: dict[str, float | None] = {}
        self._stuck: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Future[None] | None = None
        self._first: asyncio.Task[None] | None = None
        self._closing = False

    async def __aenter__(self) -> ModelHost:
        self._first = self._spawn(self._load_default())
        self._spawn(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def ready(self) -> None:
        """Wait until the default model has been loaded. Raises what kept it from that."""
        if self._first is not None:
            await asyncio.wait({self._first})
        if failure := self._failure():
            raise failure

    async def close(self, grace: float = 10.0) -> None:
        """End loads and downloads, then all engines; waits `grace` seconds at most for each. Idempotent."""
        self._closing = True
        self._pulls.leave()
        await self._residents.close(grace)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # What there is.

    def state(self) -> State:
        """What `troubles` tells makes it "degraded"."""
        if self._closing:
            return "closing"
        if self._first is None or not self._first.done():
            return "loading"
        return "degraded" if self.troubles() else "ready"

    def troubles(self) -> list[str]:
        """For people: why there is no default model, and which engines are stuck."""
        failure = self._failure()
        found = [] if failure is None else [str(failure)]
        for resident in self._residents:
            seconds = _stuck(resident)
            if seconds is not None:
                found.append(f"a step of {resident.model.name} has taken {seconds:.0f} s so far")
        return found

    def _failure(self) -> LocalspecError | None:
        try:
            return self._residents.failure(self._catalog.default().name)
        except LocalspecError as error:
            return error

    def available(self) -> list[Available]:
        """The models on this machine, the default one first. New files are seen within seconds."""
        if self._catalog.age > FRESH_SECONDS:
            self._refresh()
        loaded = {resident.model.name for resident in self._residents if resident.engine is not None}
        return [replace(model, loaded=model.name in loaded) for model in self._catalog.models]

    def loaded(self) -> list[Engine]:
        """The engines there are, that of the default model first."""
        order = [model.name for model in self._catalog.models]
        engines = [(resident.model.name, resident.engine) for resident in self._residents]
        engines.sort(key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order))
        return [engine for _, engine in engines if engine is not None]

    def loading(self) -> tuple[str, float] | None:
        """What is being loaded and the share that is done."""
        return self._residents.progress

    # What clients ask for.

    @asynccontextmanager
    async def use(self, name: str | None) -> AsyncIterator[Engine]:
        """See `serving.api.Host.use`. Raises `LoadingError` when the model is not there in time."""
        self._refuse_closed()
        resident = self._take(await self._find(name))
        resident.hold()
        try:
            yield await self._residents.wait(resident, self._settings.patience)
        finally:
            resident.release()

    async def unload(self, name: str) -> bool:
        """See `serving.api.Host.unload`."""
        resident = self._named(name)
        if resident is None:
            return False
        if not resident.idle:
            raise BusyError(f"the model {resident.model.name} is in use", "unload it later")
        return await self._residents.unload(resident)

    async def pull(self, name: str, progress: Callable[[str, int, int], None]) -> None:
        """See `serving.api.Host.pull`. A download that others wait for too goes on when one of them is cancelled."""
        self._refuse_closed()
        await self._pulls.pull(name, progress)
        await self._refresh()

    def keep(self, name: str, seconds: float | None) -> None:
        """See `serving.api.Host.keep`. For a model that is not loaded it holds from its next load on."""
        try:
            name = self._catalog.find(name).name
        except ModelNotFoundError:
            return
        self._keeps[name] = seconds
        if resident := self._residents.get(name):
            resident.keep = seconds

    def expires(self, name: str) -> float | None:
        """See `serving.api.Host.expires`."""
        resident = self._named(name)
        left = None if resident is None else resident.left
        return None if left is None else time.time() + left

    def _refuse_closed(self) -> None:
        if self._closing:
            raise BusyError("the server is closing", "ask it again when it is back")

    async def _find(self, name: str | None) -> Available:
        """The model of a name, which may have come only now."""
        try:
            return self._catalog.default() if name is None else self._catalog.find(name)
        except LocalspecError:
            await self._refresh()
            return self._catalog.default() if name is None else self._catalog.find(name)

    def _named(self, name: str) -> Resident | None:
        with suppress(ModelNotFoundError):  # its file may be gone
            name = self._catalog.find(name).name
        return self._residents.get(name)

    def _take(self, model: Available) -> Resident:
        is_default = self._catalog.is_default(model.name)
        keep = self._settings.keep_default if is_default else self._settings.keep
        return self._residents.take(model, self._keeps.get(model.name, keep))

    def _refresh(self) -> asyncio.Future[None]:
        """Look for models in a thread: their headers take a while to read."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = in_thread("look for models", self._catalog.refresh)
        return asyncio.shield(self._refreshing)

    # What goes on by itself.

    async def _load_default(self) -> None:
        try:
            await self._refresh()
            await self._residents.wait(self._take(self._catalog.default()))
        except LocalspecError as error:
            log.error("there is no default model: %s", error)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            for resident in self._residents:
                self._tell_stuck(resident)
                left = resident.left
                if resident.idle and left is not None and left <= 0:
                    self._spawn(self._unload_idle(resident))

    async def _unload_idle(self, resident: Resident) -> None:
        await self._residents.unload(resident)

    def _tell_stuck(self, resident: Resident) -> None:
        name, seconds = resident.model.name, _stuck(resident)
        if seconds is not None and name not in self._stuck:
            self._stuck.add(name)
            log.error("a step of %s has taken %.0f s so far, far longer than it should", name, seconds)
        elif seconds is None and name in self._stuck:
            self._stuck.discard(name)
            log.warning("%s goes on", name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _stuck(resident: Resident) -> float | None:
    return None if resident.engine is None else resident.engine.stuck()
