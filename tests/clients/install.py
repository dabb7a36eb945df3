"""Installs the clients of others that tests/clients tries the server with, and prints the folder that they are in.

    export LOCALSPEC_CLIENTS=$(python tests/clients/install.py)

They are never installed beside the product: they have a venv and a node_modules folder of their own, in a cache folder
named after what is to be installed, so that the next run finds them. What cannot be had is said on stderr, the tests
that need it are skipped, and the next run tries again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import platformdirs

HERE = Path(__file__).parent
WANTED, LOCKED = HERE / "requirements.in", HERE / "requirements.txt"
PACKAGES = (HERE / "package.json", HERE / "package-lock.json")
#: written when all is there
DONE = "installed"


def say(text: str) -> None:
    print(f"clients: {text}", file=sys.stderr, flush=True)


def folder() -> Path:
    """Where the clients of these versions, for this Python, belong."""
    digest = hashlib.sha256(sys.version.encode())
    for path in (LOCKED, *PACKAGES, Path(__file__)):
        digest.update(path.read_bytes())
    cache = os.environ.get("LOCALSPEC_CLIENTS_CACHE") or platformdirs.user_cache_dir("localspec-clients")
    return Path(cache) / digest.hexdigest()[:16]


def run(*command: str | Path, cwd: Path | None = None) -> bool:
    """Run a command; what it says is told only if it fails."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = (done.stderr or done.stdout).strip().splitlines()[-3:]
        say(f"{' '.join(str(part) for part in command[:4])} ... failed: {' / '.join(tail)}")
    return done.returncode == 0


def install_python(place: Path) -> bool:
    """The locked versions; where they cannot be had, of each client the newest one that can."""
    if not run(sys.executable, "-m", "venv", place / "venv"):
        return False
    pip = (python_of(place), "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check")
    # the lock has all they need but llama-cpp-python, which would be compiled: whoever needs it uses the product's
    if run(*pip, "--no-deps", "-r", LOCKED):
        return True
    for line in WANTED.read_text().splitlines():
        name = line.partition("==")[0].strip()
        if name and not name.startswith(("#", "llama-index")) and run(*pip, name):
            say(f"the tests run with another version of {name} than {line}")
    return False


def install_node(place: Path) -> bool:
    """The locked versions, or those that npm finds for package.json."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        say("there is no node with npm; tests of its clients are skipped")
        return False
    for path in PACKAGES:
        shutil.copy(path, place)
    # no package that is needed has to run anything when it is installed
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    if run("npm", "ci", *options, cwd=place):
        return True
    (place / PACKAGES[1].name).unlink()
    run("npm", "install", *options, cwd=place)
    return False


def python_of(place: Path) -> Path:
    """The Python of the clients' venv."""
    return place / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def site_packages_of(place: Path) -> list[Path]:
    """The folders that the clients' modules are in."""
    return [*place.glob("venv/lib/python*/site-packages"), *place.glob("venv/Lib/site-packages")]


def main() -> None:
    place = folder()
    if not (place / DONE).exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        say(f"installing into {place}")
        if all([install_python(place), install_node(place)]):
            (place / DONE).touch()
    print(place)


if __name__ == "__main__":
    main()
