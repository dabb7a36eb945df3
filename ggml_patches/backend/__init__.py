"""PEP 517 backend of localspec's llama-cpp-python: the hooks, and nothing else.

A wheel is the pinned sdist with the patches and the new sources of this folder, built by scikit-build-core with
CMAKE_ARGS in its usual meaning. See README.md.
"""

from __future__ import annotations

import os
from pathlib import Path

from . import own_sdist, wheel
from .cache import Settings
from .errors import told_in_one_line
from .pins import PACKAGE

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


@told_in_one_line
def get_requires_for_build_wheel(config_settings: Settings | None = None) -> list[str]:
    """CMake and Ninja where the system has none that will do; nothing when the wheel is there already."""
    if wheel.cached(PACKAGE, config_settings or {}, os.environ):
        return []
    from scikit_build_core import build

    return list(build.get_requires_for_build_wheel(dict(config_settings or {})))


@told_in_one_line
def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings | None = None) -> str:
    """The metadata of llama-cpp-python with our version. Fetches the sdist, compiles nothing."""
    return wheel.metadata(PACKAGE, Path(metadata_directory), config_settings or {}, os.environ)


@told_in_one_line
def build_wheel(
    wheel_directory: str, config_settings: Settings | None = None, metadata_directory: str | None = None
) -> str:
    """The wheel: from the cache, or compiled."""
    return wheel.build(PACKAGE, Path(wheel_directory), config_settings or {}, os.environ)


@told_in_one_line
def build_sdist(sdist_directory: str, config_settings: Settings | None = None) -> str:
    """This folder as an sdist: it fetches the pinned one when it is built."""
    return own_sdist.build(PACKAGE, Path(sdist_directory), os.environ)


def get_requires_for_build_sdist(config_settings: Settings | None = None) -> list[str]:
    """Nothing beyond the static requirements."""
    return []


# The library is compiled code: an editable install is a normal one.
get_requires_for_build_editable = get_requires_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
build_editable = build_wheel
