"""Hand over to scikit-build-core, the backend of llama-cpp-python itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .cache import Settings
from .errors import BuildError

_CALL = """
import json, sys
from scikit_build_core import build
getattr(build, sys.argv[1])(sys.argv[2], json.loads(sys.argv[3]))
"""


def prepare_metadata(tree: Path, folder: Path, settings: Settings, environ: Mapping[str, str]) -> str:
    """Write the .dist-info folder of the package in `tree` below `folder` and return its name. Compiles nothing."""
    _call("prepare_metadata_for_build_wheel", tree, folder, settings, environ, "the metadata cannot be made")
    return _made(folder, "*.dist-info").name


def build_wheel(tree: Path, folder: Path, settings: Settings, environ: Mapping[str, str]) -> Path:
    """Compile the package in `tree` and return the wheel, which is written to `folder`."""
    _call("build_wheel", tree, folder, settings, environ, "llama.cpp did not compile")
    return _made(folder, "*.whl")


def _call(hook: str, tree: Path, folder: Path, settings: Settings, environ: Mapping[str, str], failure: str) -> None:
    """Run a hook in a process of its own: it works in the current directory and changes the environment."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", _CALL, hook, str(folder), json.dumps(dict(settings))]
    if subprocess.run(command, cwd=tree, env=dict(environ), check=False).returncode != 0:
        raise BuildError(
            failure,
            "the cause stands above; if memory ran out, set CMAKE_BUILD_PARALLEL_LEVEL=1, and if CMAKE_ARGS asks for a "
            "GPU, check that its toolkit is installed",
        )


def _made(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise BuildError(f"scikit-build-core made {len(found)} of {pattern} instead of one", "please report this")
    return found[0]
