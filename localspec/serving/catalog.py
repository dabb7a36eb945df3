"""The models that clients may name: those in the models folder, the embedded one, and the one that is the default.

A name that a client sends is only ever looked up here: it never becomes a path.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from localspec import hub
from localspec.errors import LocalspecError, ModelError, ModelNotFoundError
from localspec.gguf_check import check_gguf
from localspec.serving.api import Available

log = logging.getLogger(__name__)

_ENDING = ".gguf"


@dataclass(frozen=True, slots=True)
class _Known:
    """The names of one moment."""

    default: Available | None = None
    failure: LocalspecError | None = None
    models: tuple[Available, ...] = ()
    seen: float = float("-inf")


class Catalog:
    """What there is, as of the last `refresh`. `default` is what the person who began the server asked for: a name, a
    path, or None for the embedded model. Reading is safe from any thread and touches no file."""

    def __init__(self, default: str | Path | None = None) -> None:
        self._wanted = default
        self._known = _Known()
        self._quants: dict[tuple[Path, int, int], str] = {}
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Look at the disk again. It reads the header of each file that is new, which takes up to a second each."""
        with self._lock:
            default, failure = None, None
            try:
                path = hub.find_model(self._wanted).absolute()
                default = self._available(path, hub.name_of(path))
            except LocalspecError as error:
                failure = error
            except OSError as error:
                failure = ModelError(f"the model {self._wanted} cannot be read: {error}", "check the file")
            found = {} if default is None else {default.name: default}
            for local in _local_models():
                path = local.path.absolute()
                if default is None or path != default.path:
                    name = _free_name(local, found)
                    with contextlib.suppress(OSError):  # it has gone meanwhile
                        found[name] = self._available(path, name)
            self._known = _Known(default, failure, tuple(found.values()), time.monotonic())

    @property
    def age(self) -> float:
        """Seconds since the last `refresh`."""
        return time.monotonic() - self._known.seen

    @property
    def models(self) -> tuple[Available, ...]:
        """All models, the default one first; `loaded` is not set."""
        return self._known.models

    def default(self) -> Available:
        """The model of those who name none. Raises why it is not there."""
        known = self._known
        if known.default is not None:
            return known.default
        raise known.failure or ModelNotFoundError("the models have not been looked at yet", "try again in a moment")

    def is_default(self, name: str) -> bool:
        """Whether the model of this name is that of those who name none."""
        default = self._known.default
        return default is not None and default.name == name

    def find(self, name: str) -> Available:
        """The model of this name, with or without `.gguf`, in any case. Raises `ModelNotFoundError`."""
        wanted = name.strip().lower().removesuffix(_ENDING)
        for model in self._known.models:
            if model.name.lower() == wanted:
                return model
        raise self._unknown(name, wanted)

    def _unknown(self, name: str, wanted: str) -> ModelNotFoundError:
        entry = hub.registry().get(wanted)
        if entry is not None:
            return ModelNotFoundError(
                f"the model {entry.name} is not on this machine", f"`localspec pull {entry.name}` downloads it"
            )
        close = difflib.get_close_matches(wanted, [model.name.lower() for model in self._known.models], n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else "the list of models has the names"
        return ModelNotFoundError(f"there is no model {name[:100]!r}", hint)

    def _available(self, path: Path, name: str) -> Available:
        stat, entry = path.stat(), hub.registry().get(name)
        role = "" if entry is None else entry.role
        key = path, stat.st_size, stat.st_mtime_ns
        if key not in self._quants:
            self._quants[key] = _quant(path)
        return Available(name, path, stat.st_size, self._quants[key], int(stat.st_mtime), False, role)


def _local_models() -> list[hub.LocalModel]:
    """The models of this machine that are no heads; those of the folder itself, which keep their names, before those
    further down."""
    try:
        local = hub.local_models()
    except OSError as error:
        log.warning("the models folder cannot be read: %s", error)
        return []
    local = [model for model in local if model.entry is None or model.entry.role != "heads"]
    return sorted(local, key=lambda model: "/" in model.name)


def _free_name(local: hub.LocalModel, taken: dict[str, Available]) -> str:
    """What clients call a file: its name in models.txt, else its stem, else, where that is another's, its whole path in
    the models folder, without separators."""
    if local.entry is not None:
        return local.entry.name
    stem = local.path.stem
    if stem not in taken and stem not in hub.registry():
        return stem
    return local.name.removesuffix(_ENDING).replace("/", "--")


def _quant(path: Path) -> str:
    """The type of most weights, such as "Q4_K_M"; empty for a file that cannot be read."""
    try:
        return check_gguf(path).file_type or ""
    except LocalspecError:
        return ""
