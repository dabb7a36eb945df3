"""A wheel is reused only for the same sources, settings, compiler and machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggml_patches.backend import cache, toolchain
from ggml_patches.backend.cache import WheelCache

from .conftest import PATCH, FakeCompile, Workshop


def key(workshop: Workshop, **changes: Any) -> str:
    ingredients: dict[str, Any] = {
        "package": workshop.package,
        "environ": {},
        "settings": {},
        "toolchain": {"CXX": "fake"},
        "machine": {"cpu": "fake"},
    }
    return cache.recipe(**{**ingredients, **changes}).key


CHANGES: dict[str, Callable[[Workshop], dict[str, Any]]] = {
    "sdist": lambda w: {"package": replace(w.package, pin=replace(w.package.pin, sha256="0" * 64))},
    "patch level": lambda w: {"package": replace(w.package, patch_level=4)},
    "CMAKE_ARGS": lambda w: {"environ": {"CMAKE_ARGS": "-DGGML_CUDA=on"}},
    "CC": lambda w: {"environ": {"CC": "clang"}},
    "CXX": lambda w: {"environ": {"CXX": "clang++"}},
    "CFLAGS": lambda w: {"environ": {"CFLAGS": "-O1"}},
    "CXXFLAGS": lambda w: {"environ": {"CXXFLAGS": "-O1"}},
    "CUDACXX": lambda w: {"environ": {"CUDACXX": "nvcc"}},
    "FORCE_CMAKE": lambda w: {"environ": {"FORCE_CMAKE": "1"}},
    "scikit-build's own": lambda w: {"environ": {"SKBUILD_CMAKE_DEFINE": "A=1"}},
    "settings": lambda w: {"settings": {"cmake.define.A": "1"}},
    "compiler": lambda w: {"toolchain": {"CXX": "fake 2"}},
    "cpu": lambda w: {"machine": {"cpu": "another"}},
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_ingredient_changes_the_key(workshop: Workshop, name: str) -> None:
    assert key(workshop, **CHANGES[name](workshop)) != key(workshop)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("patches/0001-three.patch", PATCH + "\n"),
        ("patches/0002-more.patch", PATCH),
        ("src/vendor/new.cpp", "newer\n"),
        ("src/vendor/second.cpp", ""),
        ("backend/code.py", "pass  # changed\n"),
    ],
)
def test_each_file_changes_the_key(workshop: Workshop, path: str, text: str) -> None:
    before = key(workshop)
    workshop.write(path, text)
    assert key(workshop) != before


def test_a_renamed_source_changes_the_key(workshop: Workshop) -> None:
    before = key(workshop)
    source = workshop.package.sources_root / "vendor/new.cpp"
    source.rename(source.with_name("other.cpp"))
    assert key(workshop) != before


def test_what_does_not_reach_the_compiler_leaves_the_key(workshop: Workshop) -> None:
    environ = {"HOME": "/elsewhere", "CMAKE_BUILD_PARALLEL_LEVEL": "1", "LOCALSPEC_LLAMA_SDIST": "x"}
    assert key(workshop, environ=environ) == key(workshop)


def test_this_machine_has_a_cpu_and_a_platform() -> None:
    found = toolchain.machine()
    assert found == toolchain.machine()
    assert all(found[name].strip() for name in ("cpu", "platform", "machine"))


@pytest.fixture
def wheel(workshop: Workshop, tmp_path: Path) -> Path:
    compile_tree = FakeCompile(workshop.package)
    return compile_tree(workshop.tree(tmp_path / "tree"), tmp_path / "made", {}, {})


def test_a_stored_wheel_is_found_under_its_own_name(tmp_path: Path, wheel: Path) -> None:
    wheels = WheelCache(tmp_path / "wheels")
    assert wheels.find("a") is None
    stored = wheels.store("a", wheel)
    assert wheels.find("a") == stored
    assert stored.name == wheel.name
    assert stored.read_bytes() == wheel.read_bytes()
    assert wheels.find("b") is None
    assert sorted(path.name for path in (tmp_path / "wheels").iterdir()) == ["a"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_wheel_is_not_found(tmp_path: Path, wheel: Path, damage: str) -> None:
    wheels = WheelCache(tmp_path / "wheels")
    stored = wheels.store("a", wheel)
    content = bytearray(stored.read_bytes())
    at = content.index(b"three")
    content[at] ^= 1
    stored.write_bytes({"cut": stored.read_bytes()[:-30], "flipped": bytes(content), "empty": b""}[damage])
    assert wheels.find("a") is None
    assert not stored.exists()


def test_old_wheels_make_room(tmp_path: Path, wheel: Path) -> None:
    wheels = WheelCache(tmp_path / "wheels")
    for number in range(cache.KEPT + 2):
        stored = wheels.store(str(number), wheel)
        assert stored.exists()
    assert len(list((tmp_path / "wheels").iterdir())) == cache.KEPT


def test_files_go_to_the_users_cache_or_to_localspec_home(tmp_path: Path) -> None:
    assert cache.cache_root({"LOCALSPEC_HOME": str(tmp_path)}) == tmp_path / "cache" / "ggml_patches"
    assert cache.cache_root({}).parts[-2:] != tmp_path.parts[-2:]
    assert "localspec" in cache.cache_root({}).parts
