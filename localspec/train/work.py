"""The work folder of a training: which run it belongs to, and what is done already."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.errors import UsageError
from localspec.heads.spec import HYDRA, MEDUSA
from localspec.paths import atomic_write_json

#: what can be trained: --arch -> `HeadSpec.arch`
ARCHS = {"hydra": HYDRA, "medusa": MEDUSA}
FORMAT, VERSION = "localspec-train", 1


@dataclass(frozen=True)
class DataOptions:
    """What decides the training data: equal options make equal data. See `train-heads --help`.

    `prompts` is the digest of the prompts, `n_parallel` how many are answered at a time.
    """

    fingerprint: str
    prompts: str
    tokens: int
    max_tokens: int
    temperature: float
    seed: int
    n_parallel: int


@dataclass(frozen=True)
class HeadOptions:
    """What decides the heads, given the data.

    `arch` is one of `ARCHS`, `batch` counts positions. `vocab` are the tokens that can be drafted, of which heads after
    the first know the `later_vocab` most frequent, all if it is 0 or no fewer. `init` is the digest of heads to train
    further, empty for new ones; `rounding` is the type that weights are rounded to while they are trained, empty for
    none.
    """

    n_heads: int = 4
    n_layers: int = 2
    vocab: int = 8192
    later_vocab: int = 4096
    epochs: int = 3
    batch: int = 1024
    lr: float = 2e-3
    weight_decay: float = 0.01
    seed: int = 1
    arch: str = "hydra"
    init: str = ""
    rounding: str = ""

    def check(self) -> None:
        """Raise `UsageError` that names the first value that cannot be used."""
        if self.arch not in ARCHS:
            raise UsageError(f"heads of the kind {self.arch!r} cannot be trained", f"one of {', '.join(ARCHS)}")
        for name in ("n_heads", "n_layers", "vocab", "batch"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, not a positive number")
        if self.epochs < (0 if self.init else 1):
            raise UsageError(f"--epochs {self.epochs} leaves the heads untrained", "give 1 or more, or --init")


#: option on the command line of what a run records
_NAMES = {
    "fingerprint": "model",
    "prompts": "--prompts",
    "tokens": "--tokens",
    "max_tokens": "--max-tokens",
    "temperature": "--temp",
    "seed": "--seed",
    "n_parallel": "--parallel",
    "arch": "--arch",
    "n_heads": "--heads",
    "n_layers": "--blocks",
    "vocab": "--vocab",
    "later_vocab": "--later-vocab",
    "epochs": "--epochs",
    "batch": "--batch",
    "lr": "--lr",
    "weight_decay": "--weight-decay",
    "init": "--init",
    "rounding": "--rounded --type",
}


class WorkFolder:
    """The folder `path`, made if need be, of the training data with these options, and of heads trained on them.

    Raises `UsageError` when it holds other data, is something else, or cannot be written.
    """

    def __init__(self, path: Path, data: DataOptions) -> None:
        self.path = path
        self.data_folder = path / "data"
        self.checkpoint = path / "checkpoint.pt"
        self._data_file, self._heads_file = path / "data.json", path / "heads.json"
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not self._data_file.exists() and any(path.iterdir()):
                raise UsageError(f"{path} holds files, but no training data", "name an empty or a new folder")
            way_out = "give the same options again, or another folder with --work"
            self._claim(self._data_file, asdict(data), way_out)
            self.data_folder.mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(f"the work folder {path} cannot be written: {error.strerror}", "name another") from error

    def claim_heads(self, options: HeadOptions) -> None:
        """Begin or go on with a training of heads. Raises `UsageError` when one with other options is under way."""
        if not self.checkpoint.exists():
            self._heads_file.unlink(missing_ok=True)
        way_out = f"give the same options again, or delete {self.checkpoint} to train other heads on the same data"
        self._claim(self._heads_file, asdict(options), way_out)

    def _claim(self, file: Path, options: dict[str, Any], way_out: str) -> None:
        """Write the options down, or hold them against what is written."""
        if not file.exists():
            atomic_write_json(file, {"format": FORMAT, "version": VERSION, **options})
            return
        written = _read(file)
        for key, value in options.items():
            # an option that came later is empty where nobody gives it
            was = written.get(key, "")
            if (was or None) != (value or None):
                raise UsageError(
                    f"{file} belongs to a training with another {_NAMES[key]}: {was or 'none'}, not {value or 'none'}",
                    way_out,
                )

    def check_space(self, needed: int) -> None:
        """Refuse to begin what the disk cannot hold; `needed` in bytes. Raises `UsageError`."""
        free = shutil.disk_usage(self.path).free
        if needed > free:
            raise UsageError(
                f"the training data take {_size(needed)}, but {self.path} has {_size(free)} free",
                "give fewer --tokens, or a --work folder on another disk",
            )

    def used(self) -> int:
        """Bytes that the data take so far."""
        return sum(
            (Path(folder) / name).stat().st_size for folder, _, names in os.walk(self.data_folder) for name in names
        )


def _read(file: Path) -> dict[str, Any]:
    try:
        written = dict(json.loads(file.read_text(encoding="utf-8")))
        if (written["format"], written["version"]) == (FORMAT, VERSION):
            return written
    except (ValueError, LookupError, TypeError):
        pass
    raise UsageError(f"{file} is not of a training that this localspec could go on with", "name another work folder")


def _size(n: int) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"
