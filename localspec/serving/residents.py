"""The models in memory: each loaded once, one after the other, in place of idle ones where there is no room."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator

from localspec.errors import EngineError, LocalspecError, ModelError
from localspec.serving.api import Available, BusyError, LoadingError
from localspec.serving.resident import Opener, Resident, ServedEngine
from localspec.serving.threads import in_thread

log = logging.getLogger(__name__)

_GIB = 2**30
#: seconds for which a model that could not be loaded is not tried again
FAILED_SECONDS = 5.0


class _StoppedError(Exception):
    """The load is not wanted any more."""


class Residents:
    """At most `limit` bytes of models (None: as many as are free). Of one event loop alone."""

    def __init__(self, opener: Opener, limit: int | None = None) -> None:
        self._opener = opener
        self._limit = limit
        self._residents: dict[str, Resident] = {}
        self._failures: dict[str, tuple[float, LocalspecError]] = {}
        #: held by whoever loads or unloads
        self._changing = asyncio.Lock()
        self._stop = threading.Event()
        #: what is being loaded, and the share that is done
        self.progress: tuple[str, float] | None = None

    def __iter__(self) -> Iterator[Resident]:
        return iter(list(self._residents.values()))

    def get(self, name: str) -> Resident | None:
        """The model of this name, if it is loaded or about to be."""
        return self._residents.get(name)

    def failure(self, name: str) -> LocalspecError | None:
        """Why the model could not be loaded when that was last tried; None when it could."""
        return self._failures[name][1] if name in self._failures else None

    def take(self, model: Available, keep: float | None) -> Resident:
        """The model, which begins to load if it is not there. Raises what loading raised a moment ago."""
        resident = self._residents.get(model.name)
        if resident is None:
            when, failure = self._failures.get(model.name, (0.0, None))
            if failure is not None and time.monotonic() - when < FAILED_SECONDS:
                raise failure
            resident = self._residents[model.name] = Resident(model, keep)
            resident.loading = asyncio.create_task(self._load(resident))
            # perhaps nobody waits any more when it fails
            resident.loading.add_done_callback(lambda task: task.cancelled() or task.exception())
        return resident

    async def wait(self, resident: Resident, patience: float | None = None) -> ServedEngine:
        """Its engine. Raises what loading raises, and `LoadingError` when `patience` seconds are over."""
        if resident.engine is None and resident.loading is not None:
            await asyncio.wait({resident.loading}, timeout=patience)
            if not resident.loading.done():
                raise LoadingError(self._still_loading(resident), "try again in a moment", retry_after=5)
            resident.loading.result()
        if resident.engine is None:
            raise BusyError("the server is closing", "ask it again when it is back")
        return resident.engine

    async def unload(self, resident: Resident) -> bool:
        """Free a model unless somebody has taken it meanwhile; False when that is so, or when it is gone already."""
        async with self._changing:
            if not resident.idle or self._residents.get(resident.model.name) is not resident:
                return False
            await self._drop(resident)
            return True

    async def close(self, grace: float) -> None:
        """End loads, then engines; waits `grace` seconds at most for each. Idempotent."""
        self._stop.set()
        loads = [resident.loading for resident in self if resident.loading is not None]
        if loads:
            await asyncio.wait(loads, timeout=grace)
        drops = [asyncio.create_task(self._drop(resident)) for resident in self if resident.engine is not None]
        if drops:
            _, late = await asyncio.wait(drops, timeout=grace)
            if late:
                log.error("%d engines did not end within %g seconds", len(late), grace)

    async def _load(self, resident: Resident) -> None:
        name = resident.model.name
        try:
            async with self._changing:
                resident.engine = await self._open(resident)
        except _StoppedError:
            raise BusyError("the server is closing", "ask it again when it is back") from None
        except Exception as error:
            log.warning("the model %s cannot be loaded: %s", name, error)
            failure = error if isinstance(error, LocalspecError) else _unexpected(name, error)
            if not isinstance(failure, BusyError):
                self._failures[name] = time.monotonic(), failure
            raise failure from error
        else:
            self._failures.pop(name, None)
            resident.idle_since = time.monotonic()
        finally:
            self.progress = None
            if resident.engine is None:
                del self._residents[name]

    async def _open(self, resident: Resident) -> ServedEngine:
        def progress(stage: str, share: float) -> None:
            if self._stop.is_set():
                raise _StoppedError
            self.progress = stage, share

        progress("loading the model", 0.0)
        path = resident.model.path
        resident.n_bytes = await in_thread("estimate", self._opener.need, path)
        await self._make_room(resident)
        quiet, before = self._quiet(resident), self._opener.used()
        engine = await in_thread(f"load {resident.model.name}", self._opener.open, path, progress)
        after = self._opener.used()
        if quiet and self._quiet(resident) and before is not None and after is not None:
            resident.n_bytes = max(resident.n_bytes, after - before)
        return engine

    def _quiet(self, resident: Resident) -> bool:
        """Whether no other model is in use, so that what the process takes changes by this one alone."""
        return not any(other.users for other in self if other is not resident)

    async def _make_room(self, resident: Resident) -> None:
        """Free idle models, those first that nobody has used for longest, until there is room."""
        while True:
            free = self._free(resident)
            if free is None or resident.n_bytes <= free:
                return
            idle = [other for other in self if other.idle]
            if not idle:
                raise self._no_room(resident, free)
            await self._drop(min(idle, key=lambda other: other.idle_since))

    def _free(self, resident: Resident) -> int | None:
        if self._limit is None:
            return self._opener.free()
        return self._limit - sum(other.n_bytes for other in self if other is not resident and other.engine is not None)

    def _no_room(self, resident: Resident, free: int) -> LocalspecError:
        name, need = resident.model.name, f"{resident.n_bytes / _GIB:.2f} GiB"
        busy = [other.model.name for other in self if other.engine is not None]
        of = "" if self._limit is None else f" of the limit of {self._limit / _GIB:.2f} GiB"
        message = f"there is no room for {name}: it needs about {need}, and {max(0, free) / _GIB:.2f} GiB{of} are free"
        if busy and (self._limit is None or resident.n_bytes <= self._limit):
            return BusyError(message, f"in use now: {', '.join(busy)}; try again later", retry_after=10)
        return ModelError(message, "a smaller model or context would need less")

    async def _drop(self, resident: Resident) -> None:
        engine, resident.engine = resident.engine, None
        self._residents.pop(resident.model.name, None)
        if engine is None:
            return
        log.info("unloading %s", resident.model.name)
        try:
            await in_thread(f"close {resident.model.name}", engine.close)
        except Exception:
            log.exception("the engine of %s could not be closed", resident.model.name)

    def _still_loading(self, resident: Resident) -> str:
        stage, share = self.progress or ("waiting", 0.0)
        return f"the model {resident.model.name} is not there yet ({stage}: {share:.0%})"


def _unexpected(name: str, error: Exception) -> EngineError:
    log.error("loading %s failed", name, exc_info=error)
    return EngineError(f"{name} could not be loaded: {type(error).__name__}: {error}", "the log has more")
