"""Where the build keeps its files, and the finished wheels.

A wheel lies in a folder named after the key of everything that went into it. It gets there by one atomic rename, so
that a reader never meets half a wheel, whoever is killed or builds at the same time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .pins import Package

Settings = Mapping[str, "str | bool | list[str] | None"]

# Variables that CMake, the compilers, scikit-build-core or ggml's build read.
# fmt: off
ENVIRONMENT = frozenset((
    "AR", "ARCHFLAGS", "ASM", "ASMFLAGS", "CC", "CFLAGS", "CMAKE_ARGS", "CMAKE_BUILD_TYPE", "CMAKE_GENERATOR",
    "CMAKE_GENERATOR_PLATFORM", "CMAKE_GENERATOR_TOOLSET", "CMAKE_PREFIX_PATH", "CMAKE_TOOLCHAIN_FILE", "CPATH",
    "CPLUS_INCLUDE_PATH", "CPPFLAGS", "CUDAARCHS", "CUDACXX", "CUDAFLAGS", "CUDAHOSTCXX", "CUDATOOLKIT_ROOT",
    "CUDA_HOME", "CUDA_PATH", "CXX", "CXXFLAGS", "C_INCLUDE_PATH", "FORCE_CMAKE", "HIPCXX", "HIPFLAGS",
    "HIP_PATH", "LDFLAGS", "LIBRARY_PATH", "MACOSX_DEPLOYMENT_TARGET", "OBJC", "OBJCFLAGS", "ONEAPI_ROOT",
    "PKG_CONFIG_PATH", "ROCM_PATH", "SDKROOT", "VULKAN_SDK", "_PYTHON_HOST_PLATFORM",
))
# fmt: on
ENVIRONMENT_PREFIXES = ("SKBUILD_",)
KEPT = 4  # wheels; a developer makes a new one with every change of a patch


@dataclass(frozen=True)
class Recipe:
    """All that decides what is in a wheel. Two equal recipes give interchangeable wheels."""

    sdist: str
    version: str
    files: str
    environment: dict[str, str]
    settings: dict[str, str | bool | list[str] | None]
    toolchain: dict[str, str]
    machine: dict[str, str]

    @property
    def key(self) -> str:
        """A name for the recipe: equal for equal recipes only."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:32]


def recipe(
    package: Package,
    environ: Mapping[str, str],
    settings: Settings,
    toolchain: Mapping[str, str],
    machine: Mapping[str, str],
) -> Recipe:
    """Collect a recipe. `toolchain` and `machine` come from the module `toolchain`."""
    environment = {
        name: value
        for name, value in environ.items()
        if name.upper() in ENVIRONMENT or name.startswith(ENVIRONMENT_PREFIXES)
    }
    files = [*package.patches, *(package.sources_root / path for path in package.sources), *package.backend]
    return Recipe(
        sdist=package.pin.sha256,
        version=package.version,
        files=_digest(package.root, files),
        environment=environment,
        settings=dict(settings),
        toolchain=dict(toolchain),
        machine=dict(machine),
    )


def _digest(root: Path, files: Iterable[Path]) -> str:
    """One hash of the names and the contents."""
    digest = hashlib.sha256()
    for path in files:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def cache_root(environ: Mapping[str, str]) -> Path:
    """Folder of this build below localspec's cache directory. Not created here."""
    if home := environ.get("LOCALSPEC_HOME"):
        return Path(home).expanduser() / "cache" / "ggml_patches"
    import platformdirs  # here, so that the sources can be made where nothing is installed

    return platformdirs.user_cache_path("localspec", appauthor=False) / "ggml_patches"


class WheelCache:
    """Finished wheels by key, the latest few."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find(self, key: str) -> Path | None:
        """The whole and readable wheel of that key. A damaged one is removed, and None returned."""
        for wheel in (self._root / key).glob("*.whl"):
            if _is_intact(wheel):
                os.utime(wheel.parent)
                return wheel
            wheel.unlink(missing_ok=True)
        return None

    def store(self, key: str, wheel: Path) -> Path:
        """Keep a copy of a finished wheel, and drop those that were not used for longest."""
        folder = self._root / key
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".store-", dir=self._root) as temporary:
            copy = Path(temporary) / wheel.name
            shutil.copyfile(wheel, copy)
            target = copy.replace(folder / wheel.name)
        os.utime(folder)
        self._prune()
        return target

    def _prune(self) -> None:
        folders = [path for path in self._root.iterdir() if path.is_dir() and not path.name.startswith(".")]
        for folder in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
            shutil.rmtree(folder, ignore_errors=True)


def _is_intact(wheel: Path) -> bool:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError):
        return False
