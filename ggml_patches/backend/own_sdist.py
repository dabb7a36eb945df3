"""Pack this folder, without the upstream sources, as an sdist."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from . import wheel
from .pins import Package


def build(package: Package, folder: Path, environ: Mapping[str, str]) -> str:
    """Write the sdist to `folder` and return its name."""
    stem = f"{package.pin.name}-{package.version}"
    files = [package.root / name for name in ("pyproject.toml", "README.md", ".gitattributes")]
    files += [*package.backend, *package.patches, *(package.sources_root / path for path in package.sources)]
    files += sorted(path for path in (package.root / "tests").glob("*") if path.is_file())
    with tempfile.TemporaryDirectory(prefix="localspec-sdist-") as temporary:
        information = wheel.metadata(package, Path(temporary), {}, environ)
        with tarfile.open(folder / f"{stem}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
            archive.add(Path(temporary) / information / "METADATA", f"{stem}/PKG-INFO")
            for path in files:
                archive.add(path, f"{stem}/{path.relative_to(package.root).as_posix()}")
    return f"{stem}.tar.gz"
