"""Calibrated banks in the user's data directory, one JSON file a bank.

A bank belongs to a task, a model, heads, a build of the library, a device, a number of threads and a way of running:
tokens per second, and so the choice of trees, are true for these alone. A bank of anything else is refused with what
differs. The costs, trees and policies that a step needs are checked on reading; `report` is for people.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from localspec.calibrate.curve import CostCurve
from localspec.calibrate.store import CurveKey
from localspec.entmtp.measured import FittedPolicy, MeasuredTree
from localspec.entmtp.pareto import Bank
from localspec.entmtp.policies import Star
from localspec.errors import LocalspecError, UsageError
from localspec.paths import atomic_write_json, data_dir

FORMAT, VERSION = "localspec-bank", 1
_BROKEN = (ValueError, LookupError, TypeError, AttributeError, RecursionError, UsageError)


@dataclass(frozen=True, slots=True)
class BankKey:
    """What a bank belongs to. `heads` is the fingerprint of their file."""

    task: str
    heads: str
    setup: CurveKey

    @property
    def digest(self) -> str:
        """A file name's worth of the key."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:24]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BankKey:
        """Rebuild a key from its fields. Raises LookupError or TypeError for anything else."""
        values = {"task": data["task"], "heads": data["heads"], **data["setup"]}
        wrong = [name for name, value in values.items() if type(value) is not (int if name == "n_threads" else str)]
        if wrong:
            raise TypeError(f"its key has a {wrong[0]} of another type")
        return cls(values["task"], values["heads"], CurveKey(**data["setup"]))


@dataclass(frozen=True, slots=True)
class Names:
    """What people call the parts of a key: the model, the file of heads, and the build of the library."""

    model: str
    heads: str
    build: str

    def command(self, task: str) -> str:
        """How a bank is made."""
        return f"localspec calibrate {self.model} --task {task} (with the same --heads and --threads)"


@dataclass(frozen=True)
class StoredBank:
    """A calibrated bank.

    `created` is UTC in ISO 8601. `curve` is the step cost it was planned with. `bank` are the trees to choose from,
    with the mean acceptance of the replay and the seconds of a step as measured; `draft_seconds` is what it takes to
    draft each of them, and `union_seconds` the smallest tree that contains them all. `policies` are by name, all for
    `bank.trees`; `best` is the one to use. `measured` are all trees that were run, `report` other facts for people.
    """

    key: BankKey
    names: Names
    created: str
    curve: CostCurve
    bank: Bank
    draft_seconds: tuple[float, ...]
    union_seconds: float
    policies: Mapping[str, FittedPolicy]
    best: str
    measured: tuple[MeasuredTree, ...]
    report: Mapping[str, Any]

    def __post_init__(self) -> None:
        times = (*self.draft_seconds, self.union_seconds)
        if len(self.draft_seconds) != len(self.bank) or not all(math.isfinite(s) and s >= 0 for s in times):
            raise UsageError("its draft times are not one a tree")
        for name, fitted in self.policies.items():
            if fitted.policy.n_trees != len(self.bank) or name != fitted.policy.kind:
                raise UsageError(f"its policy {name!r} is not one for its {len(self.bank)} trees")
        for name in (self.best, Star.kind):
            if name not in self.policies:
                raise UsageError(f"it has no policy {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, read back by `from_dict`."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "created": self.created,
            "key": asdict(self.key),
            "names": asdict(self.names),
            "curve": self.curve.to_dict(),
            "bank": self.bank.to_dict(),
            "draft_seconds": list(self.draft_seconds),
            "union_seconds": self.union_seconds,
            "best": self.best,
            "policies": {name: fitted.to_dict() for name, fitted in self.policies.items()},
            "measured": [tree.to_dict() for tree in self.measured],
            "report": dict(self.report),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StoredBank:
        """Rebuild a bank from `to_dict` data. Raises one of `_BROKEN` for anything else."""
        created = str(data["created"])
        if datetime.fromisoformat(created).tzinfo is None:
            raise ValueError("it has a time without a zone")
        names = Names(**{name: str(data["names"][name]) for name in ("model", "heads", "build")})
        return cls(
            BankKey.from_dict(data["key"]),
            names,
            created,
            CostCurve.from_dict(data["curve"]),
            Bank.from_dict(data["bank"]),
            tuple(float(seconds) for seconds in data["draft_seconds"]),
            float(data["union_seconds"]),
            {str(name): FittedPolicy.from_dict(fitted) for name, fitted in data["policies"].items()},
            str(data["best"]),
            tuple(MeasuredTree.from_dict(tree) for tree in data["measured"]),
            dict(data["report"]),
        )


def now() -> str:
    """The time of a new bank: UTC, ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def banks_dir() -> Path:
    """The folder of the banks. Not created here."""
    return data_dir() / "banks"


def bank_path(key: BankKey) -> Path:
    """The file of one bank."""
    return banks_dir() / f"{key.digest}.json"


def save_bank(stored: StoredBank) -> Path:
    """Store a bank in place of an older one and return its file. Raises `LocalspecError` when that fails."""
    path = bank_path(stored.key)
    try:
        atomic_write_json(path, stored.to_dict())
    except OSError as error:
        raise LocalspecError(
            f"cannot store the bank in {path}: {error.strerror}", "free some space or set LOCALSPEC_HOME"
        ) from error
    return path


def read_bank(path: Path) -> StoredBank:
    """Read a file of `save_bank`, whatever it was made for.

    Raises `UsageError`, which names the file and the reason.
    """
    hint = "calibrate again: localspec calibrate MODEL --task TASK"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the bank {path} cannot be read: {error.strerror}", hint) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the bank {path} is broken: {error}", hint) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UsageError(f"{path} is not a bank of trees", hint)
    if data.get("version") != VERSION:
        raise UsageError(f"the bank {path} has version {data.get('version')!r}, not {VERSION}", hint)
    try:
        return StoredBank.from_dict(data)
    except _BROKEN as error:
        raise UsageError(f"the bank {path} is broken: {_reason(error)}", hint) from error


def _reason(error: Exception) -> str:
    if isinstance(error, UsageError):
        return error.message
    return f"it lacks {error}" if isinstance(error, LookupError) else str(error)


def differences(stored: StoredBank, key: BankKey, names: Names) -> list[str]:
    """Why a bank is not one of `key`, part by part: "made on A, this is B". Empty when it is."""
    made, here = stored.key, key
    pairs = [
        ("for the task", made.task, here.task, made.task, here.task),
        ("for the model", made.setup.model, here.setup.model, stored.names.model, names.model),
        ("with the heads", made.heads, here.heads, stored.names.heads, names.heads),
        ("on", made.setup.device, here.setup.device, made.setup.device, here.setup.device),
        ("with the build", made.setup.library, here.setup.library, stored.names.build, names.build),
        ("with", made.setup.n_threads, here.setup.n_threads, made.setup.n_threads, here.setup.n_threads),
        ("in", made.setup.mode, here.setup.mode, f"{made.setup.mode} mode", f"{here.setup.mode} mode"),
        ("with", made.setup.setup, here.setup.setup, made.setup.setup, here.setup.setup),
    ]
    found = []
    for what, a, b, name_a, name_b in pairs:
        if a == b:
            continue
        unit = " threads" if isinstance(a, int) else ""
        # two files or builds may go by one name
        if name_a == name_b:
            name_a, name_b = f"{name_a} ({a})", f"{name_b} ({b})"
        found.append(f"made {what} {name_a}{unit}, this is {name_b}{unit}")
    return found


def check_bank(stored: StoredBank, key: BankKey, names: Names) -> StoredBank:
    """Refuse a bank that was made for anything else. Raises `UsageError` that says what differs."""
    if reasons := differences(stored, key, names):
        raise UsageError(
            f"the bank of {stored.created[:10]} for {stored.key.task} does not fit: {'; '.join(reasons)}",
            f"calibrate again: {names.command(key.task)}",
        )
    return stored


def find_bank(key: BankKey, names: Names) -> StoredBank:
    """The stored bank of `key`.

    Raises `UsageError` when there is none, which tells what differs if one of the same model and task was made for
    another set-up, and when the file is broken.
    """
    path = bank_path(key)
    if path.exists():
        return check_bank(read_bank(path), key, names)
    others = [stored for stored in stored_banks() if _related(stored, key, names)]
    if others:
        check_bank(min(others, key=lambda stored: len(differences(stored, key, names))), key, names)
    raise UsageError(f"there is no bank of trees for {names.model} and {key.task}", names.command(key.task))


def _related(stored: StoredBank, key: BankKey, names: Names) -> bool:
    same_model = stored.key.setup.model == key.setup.model or stored.names.model == names.model
    return stored.key.task == key.task and same_model


def stored_banks() -> Iterator[StoredBank]:
    """All banks that can be read, in no special order."""
    for path in sorted(banks_dir().glob("*.json")):
        try:
            yield read_bank(path)
        except UsageError:
            continue
