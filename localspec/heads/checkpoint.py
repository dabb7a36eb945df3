"""Published checkpoints of heads: a state dict in `.safetensors` or `.pt`, and the `config.json` beside it.

Tensors are read when they are asked for, as float32. Nothing is unpickled beyond plain tensors.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from localspec.errors import ModelError, ModelNotFoundError, UsageError
from localspec.heads.spec import FloatArray, Shape

#: the files of a published folder, the safer format first
FILE_NAMES = tuple(f"{kind}_lm_head.{ending}" for kind in ("hydra", "medusa") for ending in ("safetensors", "pt"))
HINT = "the file is damaged or incomplete: download it again"
# bfloat16 is the upper half of a float32
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class State(Protocol):
    """A state dict whose tensors are read when they are asked for."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Shape of every tensor by key."""

    def array(self, key: str) -> FloatArray:
        """A tensor as float32."""


@dataclass(frozen=True)
class Checkpoint:
    """A state dict, the file that it came from, and its configuration."""

    path: Path
    config: Mapping[str, Any]
    state: State


def open_checkpoint(source: str | Path) -> Checkpoint:
    """Open a folder of published heads, or the file of their weights with `config.json` beside it.

    Raises `ModelNotFoundError` for a path that leads nowhere, `ModelError` for files that cannot be used, and
    `UsageError` when a package is missing that reads them.
    """
    path = _weights_file(Path(source).expanduser())
    config = _read_config(path.with_name("config.json"))
    state: State = _Safetensors(path) if path.suffix == ".safetensors" else _Torch(path)
    return Checkpoint(path, config, state)


def _weights_file(path: Path) -> Path:
    if not path.exists():
        raise ModelNotFoundError(f"{path} does not exist", "give the folder of the heads, or the file of their weights")
    if not path.is_dir():
        if path.suffix not in (".safetensors", ".pt"):
            raise ModelError(f"{path} is no checkpoint of heads", "give a .safetensors or .pt file, or its folder")
        return path
    for name in FILE_NAMES:
        if (path / name).is_file():
            return path / name
    raise ModelError(f"{path} holds no heads: there is none of {', '.join(FILE_NAMES)}", "give the file of the weights")


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelNotFoundError(
            f"{path} does not exist", "the config.json of the heads must lie beside them"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}", "download the config.json of the heads again") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} is not a JSON object", "download the config.json of the heads again")
    return config


def _missing(package: str, path: Path) -> UsageError:
    return UsageError(
        f"{path.name} is read with the package {package}, which is not installed",
        f"pip install {package}, or pip install 'localspec[train]'",
    )


class _Safetensors:
    """A `.safetensors` file. The package checks it; the numbers are read here, as NumPy has no bfloat16."""

    def __init__(self, path: Path) -> None:
        try:
            from safetensors import safe_open
        except ImportError:
            raise _missing("safetensors", path) from None
        self._path = path
        try:
            with safe_open(path, framework="np"):
                pass
        except Exception as error:  # the package's errors have no base class of their own in all versions
            raise ModelError(f"{path} cannot be read: {error}", HINT) from error
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            entries: dict[str, Any] = json.loads(file.read(size))
        self._start = 8 + size
        entries.pop("__metadata__", None)
        for key, entry in entries.items():
            if entry["dtype"] not in _DTYPES:
                raise ModelError(f"{path}: {key} has the type {entry['dtype']}, not one of {', '.join(_DTYPES)}", HINT)
        self._entries = entries
        self.shapes = {key: tuple(entry["shape"]) for key, entry in entries.items()}

    def array(self, key: str) -> FloatArray:
        entry = self._entries[key]
        dtype, shape = _DTYPES[entry["dtype"]], self.shapes[key]
        offset = self._start + entry["data_offsets"][0]
        raw = np.fromfile(self._path, dtype, count=int(np.prod(shape, dtype=np.int64)), offset=offset).reshape(shape)
        if entry["dtype"] == "BF16":
            return (raw.astype(np.uint32) << 16).view(np.float32)
        return raw.astype(np.float32)


class _Torch:
    """A file of `torch.save`; only tensors are accepted, so nothing in it can run."""

    def __init__(self, path: Path) -> None:
        try:
            import torch
        except ImportError:
            raise _missing("torch", path) from None
        try:
            # files of before 2020 are no archives and cannot be mapped
            mapped = zipfile.is_zipfile(path)
            state = torch.load(str(path), weights_only=True, map_location="cpu", mmap=mapped)
        except Exception as error:  # torch raises many kinds, among them pickle's
            reason = str(error).strip().split("\n")[0]
            raise ModelError(f"{path} cannot be read: {reason or type(error).__name__}", HINT) from error
        if not isinstance(state, Mapping) or not all(
            isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in state.items()
        ):
            raise ModelError(f"{path} is not a state dict of tensors", "give the file of the heads' weights")
        self._state = state
        self.shapes: dict[str, Shape] = {key: tuple(value.shape) for key, value in state.items()}

    def array(self, key: str) -> FloatArray:
        values: FloatArray = self._state[key].detach().float().numpy()
        return values
