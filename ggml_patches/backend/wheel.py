"""From the pinned sdist to a wheel: out of the cache where it can be, else compiled once, whoever asks."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from . import cache, patching, scikit, sdist, toolchain
from .cache import Settings, WheelCache
from .errors import BuildError, say
from .pins import Package

if TYPE_CHECKING:
    import filelock

Compile = Callable[[Path, Path, Settings, Mapping[str, str]], Path]
# What scikit-build-core reads for the metadata.
_METADATA_INPUTS = {"pyproject.toml", "README.md", "LICENSE.md", "llama_cpp/__init__.py"}


def patched_tree(package: Package, folder: Path, environ: Mapping[str, str]) -> Path:
    """Unpack the sdist below `folder`, lay our changes over it, and return its root."""
    tree = sdist.unpack(sdist.obtain(package.pin, sdist_folder(environ), environ), folder)
    patching.lay_over(package, tree)
    return tree


def sdist_folder(environ: Mapping[str, str]) -> Path:
    """Where the verified sdist is kept."""
    return cache.cache_root(environ) / "sdist"


def metadata(package: Package, folder: Path, settings: Settings, environ: Mapping[str, str]) -> str:
    """Write the .dist-info folder of the wheel-to-be below `folder` and return its name. Compiles nothing.

    It is that of the finished wheel where there is one: then neither the sdist nor CMake is needed.
    """
    finished = cached(package, settings, environ)
    if finished:
        return _metadata_of(finished, folder)
    archive = sdist.obtain(package.pin, sdist_folder(environ), environ)

    def is_needed(path: PurePosixPath) -> bool:
        return path.as_posix() in _METADATA_INPUTS

    with tempfile.TemporaryDirectory(prefix="localspec-metadata-") as temporary:
        tree = sdist.unpack(archive, Path(temporary), is_needed)
        patching.set_version(package, tree)
        return scikit.prepare_metadata(tree, folder, settings, environ)


def cached(package: Package, settings: Settings, environ: Mapping[str, str]) -> Path | None:
    """The finished wheel for these settings and this machine, if there is one."""
    try:
        return _wheels(environ).find(_key(package, settings, environ))
    except BuildError:
        return None  # without a compiler: told when a wheel is asked for, as metadata can be had without one


def _metadata_of(wheel: Path, folder: Path) -> str:
    """Copy the .dist-info folder out of a wheel, less the list of its files, and return its name."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.split("/")[0].endswith(".dist-info")]
        archive.extractall(folder, [name for name in names if not name.endswith("/RECORD")])
    return names[0].split("/")[0]


def build(
    package: Package,
    folder: Path,
    settings: Settings,
    environ: Mapping[str, str],
    compile_tree: Compile = scikit.build_wheel,
) -> str:
    """Put the wheel into `folder` and return its name. Compiles only what is not cached.

    Raises BuildError: no compiler, no sdist, a patch that does not apply, or a compilation that fails.
    """
    key = _key(package, settings, environ)
    root, wheels = cache.cache_root(environ), _wheels(environ)
    wheel = wheels.find(key)
    if wheel is None:
        root.mkdir(parents=True, exist_ok=True)
        with _build_lock(root / "build.lock"):
            # somebody else may have built it while this one waited
            wheel = wheels.find(key) or _compile(package, key, settings, environ, compile_tree)
    else:
        say(f"using the wheel that was built before: {wheel}")
    shutil.copyfile(wheel, folder / wheel.name)
    return wheel.name


def _key(package: Package, settings: Settings, environ: Mapping[str, str]) -> str:
    defined = toolchain.definitions(environ, settings)
    compilers = toolchain.toolchain(environ, defined)
    return cache.recipe(package, environ, settings, compilers, toolchain.machine()).key


def _wheels(environ: Mapping[str, str]) -> WheelCache:
    return WheelCache(cache.cache_root(environ) / "wheels")


def _build_lock(path: Path) -> filelock.AcquireReturnProxy:
    """One build at a time: the folder is the same for all of them, so that ccache finds what it has seen before."""
    import filelock  # here, so that the sources can be made where nothing is installed

    lock = filelock.FileLock(path)
    try:
        return lock.acquire(timeout=0)
    except filelock.Timeout:
        say("waiting for another build of localspec's llama.cpp to end")
        return lock.acquire()


def _compile(package: Package, key: str, settings: Settings, environ: Mapping[str, str], compile_tree: Compile) -> Path:
    """Build under the lock, in a folder that a killed build may have left full."""
    work = cache.cache_root(environ) / "build"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        tree = patched_tree(package, work, environ)
        say(f"compiling {package.pin.name} {package.version}; this takes some minutes")
        compiler_environment = toolchain.build_environment(environ, toolchain.definitions(environ, settings), work)
        build_settings = {"build-dir": str(work / "cmake"), **settings}
        wheel = compile_tree(tree, work / "wheel", build_settings, compiler_environment)
        return _wheels(environ).store(key, wheel)
    finally:
        shutil.rmtree(work, ignore_errors=True)
