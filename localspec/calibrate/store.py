"""Keeps measured step-cost curves in the user's data directory, one JSON file a curve.

A curve belongs to a model, a build of the library, a device, a number of threads and a way of running; when any of
them differs it is another curve. A file that cannot be read, or is of another version, counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from localspec.calibrate.curve import CostCurve
from localspec.errors import LocalspecError
from localspec.paths import atomic_write_json, data_dir

log = logging.getLogger(__name__)

FORMAT = "localspec-cost-curve"
VERSION = 1
#: age after which a curve that was measured on a busy machine is measured again
RETRY_AFTER = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class CurveKey:
    """What a curve belongs to. `setup` names what else changes the cost: cache types, flash attention, ..."""

    model: str
    library: str
    device: str
    n_threads: int
    mode: str
    setup: str = ""

    @property
    def digest(self) -> str:
        """A file name's worth of the key."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class StoredCurve:
    """A curve, what it belongs to, what its model was called, and when it was measured (UTC, ISO 8601).

    One that is not `reliable` was measured on a busy machine: good enough for a while.
    """

    key: CurveKey
    curve: CostCurve
    model_name: str
    created: str
    reliable: bool = True

    def is_due(self, now: datetime | None = None) -> bool:
        """Whether it is time to measure again; never for a reliable one."""
        age = (now or datetime.now(timezone.utc)) - datetime.fromisoformat(self.created)
        return not self.reliable and not timedelta(0) <= age < RETRY_AFTER


def curves_dir() -> Path:
    """The folder of the curves. Not created here."""
    return data_dir() / "curves"


def curve_path(key: CurveKey) -> Path:
    """The file of one curve."""
    return curves_dir() / f"{key.digest}.json"


def load_curve(key: CurveKey) -> StoredCurve | None:
    """The stored curve of `key`; None when there is none that can be used."""
    stored = _read(curve_path(key))
    return stored if stored is not None and stored.key == key else None


def save_curve(key: CurveKey, curve: CostCurve, model_name: str, *, reliable: bool = True) -> Path:
    """Store a curve in place of an older one and return its file. Raises `LocalspecError` when that fails."""
    path = curve_path(key)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "model_name": model_name,
        "reliable": reliable,
        "key": asdict(key),
        "curve": curve.to_dict(),
    }
    try:
        atomic_write_json(path, content)
    except OSError as error:
        raise LocalspecError(
            f"cannot store the cost curve in {path}: {error.strerror}", "free some space or set LOCALSPEC_HOME"
        ) from error
    return path


def stored_curves() -> Iterator[StoredCurve]:
    """All curves that can be read, in no special order."""
    for path in sorted(curves_dir().glob("*.json")):
        stored = _read(path)
        if stored is not None:
            yield stored


def _read(path: Path) -> StoredCurve | None:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise ValueError(f"format {content['format']} version {content['version']}")
        created = str(content["created"])
        if datetime.fromisoformat(created).tzinfo is None:
            raise ValueError("a time without a zone")
        return StoredCurve(
            CurveKey(**content["key"]),
            CostCurve.from_dict(content["curve"]),
            str(content["model_name"]),
            created,
            bool(content.get("reliable", True)),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, LocalspecError) as error:
        log.warning("the cost curve in %s cannot be used (%s); it is measured again", path, error)
        return None
