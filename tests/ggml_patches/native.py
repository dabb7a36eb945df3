"""Native programs for tests, as jobs of the background: CMake, compilers, and the patched sources."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from tests.background import Background

PACKAGE = Path(__file__).parents[2] / "ggml_patches"
SOURCES = PACKAGE / "tests"
COMPILERS = ("c++", "g++", "clang++")


def find_cmake(path: str | None = None) -> Path:
    """CMake from PATH, or from its PyPI package where that is installed without its script; else a skip."""
    found = shutil.which("cmake", path=path)
    spec = importlib.util.find_spec("cmake")
    if found is None and spec is not None and spec.origin is not None:
        found = shutil.which("cmake", path=str(Path(spec.origin).parent / "data" / "bin"))
    if found is None:
        pytest.skip("no cmake: install it with the system's package manager, or pip install cmake")
    return Path(found)


def find_compiler(background: Background) -> list[str]:
    """The C++ compiler from CXX or PATH; else a skip."""
    path = background.environ.get("PATH")
    named = background.environ.get("CXX", "").split()
    found = named or [name for name in COMPILERS if shutil.which(name, path=path)][:1]
    if not found:
        pytest.skip(f"no C++ compiler: none of {', '.join(COMPILERS)} is on PATH")
    return found


class Build:
    """A folder in which CMake compiles."""

    def __init__(self, background: Background, name: str, project: Path, *options: str) -> None:
        self._run, self._cmake = background.run, find_cmake(background.environ.get("PATH"))
        find_compiler(background)
        self.folder = background.folder(name)
        self._run(self._cmake, "-S", project, "-B", self.folder, *options)

    def compile(self, *targets: str, **environ: str) -> None:
        """Compile those targets, or everything."""
        what = ["--target", *targets] if targets else []
        self._run(self._cmake, "--build", self.folder, "--config", "Release", "--parallel", "2", *what, **environ)

    def test(self, names: str = ".") -> None:
        """Run the tests that CMake knows by names that match."""
        command = [self._cmake.with_name("ctest"), "--test-dir", self.folder, "-C", "Release", "--tests-regex", names]
        self._run(*command, "--no-tests=error", "--output-on-failure", "--parallel", "2")

    def program(self, name: str) -> Path:
        """Generators with several configurations put programs in a folder for each."""
        places = self.folder / name, self.folder / "Release" / f"{name}.exe"
        return next(path for path in places if path.is_file())


def patched_sources(background: Background) -> Path:
    """The real package's patched sources, to be read only; skips the test where the sdist cannot be had."""
    folder = background.root / "sources"
    try:
        background.run(sys.executable, "-m", "backend", "sources", folder, cwd=PACKAGE)
    except pytest.fail.Exception as failure:
        if "could not download" not in str(failure):
            raise
        pytest.skip(str(failure))
    return folder
