"""A small package in place of llama-cpp-python: the backend is tested without network and without compiling it."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ggml_patches.backend.cache import Settings
from ggml_patches.backend.pins import Package, Pin

UPSTREAM = "9.8.7"
FILES = {
    "pyproject.toml": """\
[build-system]
requires = ["scikit-build-core[pyproject]>=0.9.2"]
build-backend = "scikit_build_core.build"

[project]
name = "fake_llama"
dynamic = ["version"]
dependencies = ["numpy>=1.20.0"]

[tool.scikit-build]
wheel.packages = ["llama_cpp"]
wheel.py-api = "py3"

[tool.scikit-build.metadata.version]
provider = "scikit_build_core.metadata.regex"
input = "llama_cpp/__init__.py"
""",
    "README.md": "fake\n",
    "llama_cpp/__init__.py": f'from .llama import *\n\n__version__ = "{UPSTREAM}"\n',
    "vendor/a.cpp": "one\ntwo\nthree\nfour\nfive\nsix\nseven\n",
    "vendor/no_newline.txt": "first\nlast",
    "vendor/gone.txt": "bye\n",
    ".git/HEAD": "ref: refs/heads/main\n",
}
PATCH = """\
A test patch
--- a/vendor/a.cpp
+++ b/vendor/a.cpp
@@ -2,3 +2,3 @@ context
 two
-three
+3
 four
"""


def write_sdist(path: Path, files: Mapping[str, str], root: str) -> str:
    """Write a gzipped tar with those files below `root`, and return its sha256."""
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            content = text.encode()
            member = tarfile.TarInfo(f"{root}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass
class Workshop:
    """A package with its sdist, and an environment that keeps every file below the test's folder."""

    package: Package
    sdist: Path
    environ: dict[str, str]
    out: Path

    def write(self, name: str, text: str) -> Path:
        """Write a file of the package, such as a patch."""
        path = self.package.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def tree(self, folder: Path) -> Path:
        """The unpatched sources, written without the code under test."""
        for name, text in FILES.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        return folder


@dataclass
class FakeCompile:
    """Stands for the minutes of compiling: records each call and zips one file of the tree into a wheel."""

    package: Package
    calls: list[dict[str, str]] = field(default_factory=list)

    def __call__(self, tree: Path, folder: Path, settings: Settings, environ: Mapping[str, str]) -> Path:
        self.calls.append(dict(environ))
        folder.mkdir(parents=True, exist_ok=True)
        wheel = folder / f"fake_llama-{self.package.version}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(tree / "vendor/a.cpp", "a.cpp")
            information = f"fake_llama-{self.package.version}.dist-info"
            archive.writestr(f"{information}/METADATA", f"Name: fake_llama\nVersion: {self.package.version}\n")
            archive.writestr(f"{information}/RECORD", "")
        return wheel


@pytest.fixture
def workshop(tmp_path: Path, fake_compiler: Callable[..., Path]) -> Workshop:
    sdist = tmp_path / f"fake_llama-{UPSTREAM}.tar.gz"
    sha256 = write_sdist(sdist, FILES, f"fake_llama-{UPSTREAM}")
    root, out = tmp_path / "package", tmp_path / "out"
    (root / "patches").mkdir(parents=True)
    out.mkdir()
    package = Package(Pin("fake_llama", UPSTREAM, sha256), root, patch_level=3)
    environ = {
        "LOCALSPEC_HOME": str(tmp_path / "home"),
        "LOCALSPEC_LLAMA_SDIST": str(sdist),
        "PATH": str(fake_compiler("cc", "c++").parent),
    }
    workshop = Workshop(package, sdist, environ, out)
    workshop.write("patches/0001-three.patch", PATCH)
    workshop.write("src/vendor/new.cpp", "new\n")
    workshop.write("backend/code.py", "pass\n")
    return workshop


@pytest.fixture
def fake_compiler(tmp_path: Path) -> Callable[..., Path]:
    """Make programs that only tell their version, in one folder that serves as the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(*names: str, version: str = "fake 1.0") -> Path:
        for name in names:
            path = folder / name
            path.write_text(f"#!/bin/sh\necho '{version}'\n")
            path.chmod(0o755)
        return path

    return make
