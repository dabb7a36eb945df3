"""What is built: the pinned sdist of llama-cpp-python, our version, and where patches and sources lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# Raised by one with every change of the patches or the new sources that a user can notice.
PATCH_LEVEL = 12


@dataclass(frozen=True)
class Pin:
    """One exact source distribution: no other bytes are built."""

    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Name of the sdist, as the index and the cache have it."""
        return f"{self.name}-{self.version}.tar.gz"

    @property
    def requirement(self) -> str:
        """The sdist as a line of a pip requirements file."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


LLAMA_CPP_PYTHON = Pin(
    name="llama_cpp_python",
    version="0.3.36",
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
)


@dataclass(frozen=True)
class Package:
    """The pinned sdist together with what is laid over it."""

    pin: Pin
    root: Path
    patch_level: int

    @property
    def version(self) -> str:
        """`<upstream>+localspec.<level>`: meets `==<upstream>`, and tells a patched build from a stock one."""
        return f"{self.pin.version}+localspec.{self.patch_level}"

    @property
    def patches(self) -> list[Path]:
        """Patch files in the order in which they are applied."""
        return sorted((self.root / "patches").glob("*.patch"))

    @property
    def sources_root(self) -> Path:
        """Folder of the new files; a path below it is the path in the sdist."""
        return self.root / "src"

    @property
    def sources(self) -> list[Path]:
        """New files, relative to `sources_root`; hidden files are not part of the package."""
        found = (path for path in self.sources_root.rglob("*") if path.is_file() and not path.name.startswith("."))
        return sorted(path.relative_to(self.sources_root) for path in found)

    @property
    def backend(self) -> list[Path]:
        """The files of this backend: they decide how the wheel is compiled."""
        return sorted((self.root / "backend").glob("*.py"))


PACKAGE = Package(pin=LLAMA_CPP_PYTHON, root=Path(__file__).resolve().parent.parent, patch_level=PATCH_LEVEL)
