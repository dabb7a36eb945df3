"""Where localspec keeps its files, and how it writes them.

The directories are those of the platform (platformdirs); `LOCALSPEC_HOME` puts all of them below one folder.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import platformdirs

APP = "localspec"


def _dir(kind: str) -> Path:
    home = os.environ.get("LOCALSPEC_HOME")
    if home:
        return Path(home).expanduser() / kind
    return Path(getattr(platformdirs, f"user_{kind}_path")(APP, appauthor=False))


def data_dir() -> Path:
    """What is worth keeping: models and measured cost curves. Not created here."""
    return _dir("data")


def cache_dir() -> Path:
    """What can be made again: built wheels. Not created here."""
    return _dir("cache")


def config_dir() -> Path:
    """What a person writes. Not created here."""
    return _dir("config")


@contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """A file to write whose content takes the place of `path` at the end: a reader sees the old content or the new
    one, never a part. Makes the folder; after an exception all is as before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # the temporary file stands beside the target: os.replace is atomic within one file system only
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def atomic_write_text(path: Path, text: str) -> None:
    """Write UTF-8 text with `atomic_writer`."""
    with atomic_writer(path) as file:
        file.write(text.encode("utf-8"))


def atomic_write_json(path: Path, value: Any) -> None:
    """`atomic_write_text` of indented JSON."""
    atomic_write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
