"""Which compiler and which launcher: found as CMake finds them, and told in one line when missing."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from ggml_patches.backend import toolchain
from ggml_patches.backend.errors import BuildError

Make = Callable[..., Path]


def test_definitions_come_from_cmake_args_and_settings() -> None:
    environ = {"CMAKE_ARGS": "-DGGML_CUDA=on -D GGML_NATIVE:BOOL=OFF '-DX=a b' -GNinja"}
    found = toolchain.definitions(environ, {"cmake.define.GGML_VULKAN": "1", "build-dir": "x"})
    assert found == {"GGML_CUDA": "on", "GGML_NATIVE": "OFF", "X": "a b", "GGML_VULKAN": "1"}
    with pytest.raises(BuildError, match="CMAKE_ARGS cannot be read"):
        toolchain.definitions({"CMAKE_ARGS": "-DX='a"}, {})


@pytest.mark.parametrize(("value", "on"), [("on", True), ("1", True), ("TRUE", True), ("off", False), ("0", False)])
def test_switches_are_read_as_cmake_reads_them(value: str, on: bool) -> None:
    assert toolchain.is_on({"GGML_CUDA": value}, "GGML_CUDA") is on
    assert not toolchain.is_on({}, "GGML_CUDA")


@pytest.mark.parametrize(("present", "missing"), [((), "no C compiler"), (("gcc",), r"no C\+\+ compiler")])
def test_no_compiler_names_what_to_install(fake_compiler: Make, present: tuple[str, ...], missing: str) -> None:
    folder = fake_compiler(*present, "unrelated").parent
    with pytest.raises(BuildError, match=f"{missing} found .*; install") as error:
        toolchain.toolchain({"PATH": str(folder)}, {})
    assert "\n" not in str(error.value)


def test_a_compiler_that_does_not_run_is_none(fake_compiler: Make) -> None:
    path = fake_compiler("cc", "c++")  # as on macOS, where cc is there before the tools are
    path.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(BuildError, match=r"no C\+\+ compiler"):
        toolchain.toolchain({"PATH": str(path.parent)}, {})


def test_a_compiler_that_the_user_names_is_the_one(fake_compiler: Make) -> None:
    folder = str(fake_compiler("cc", "c++").parent)
    fake_compiler("special", version="special 7")
    assert "special 7" in toolchain.toolchain({"PATH": folder, "CXX": "special -m64"}, {})["CXX"]
    assert "special 7" in toolchain.toolchain({"PATH": folder}, {"CMAKE_C_COMPILER": "special"})["C"]
    with pytest.raises(BuildError, match=r"the C\+\+ compiler 'absent' was not found"):
        toolchain.toolchain({"PATH": folder, "CXX": "absent"}, {})


def test_a_new_compiler_version_is_another_toolchain(fake_compiler: Make) -> None:
    environ = {"PATH": str(fake_compiler("cc", "c++").parent)}
    before = toolchain.toolchain(environ, {})
    fake_compiler("c++", version="fake 2.0")
    after = toolchain.toolchain(environ, {})
    assert before["C"] == after["C"]
    assert before["CXX"] != after["CXX"]


def test_cuda_counts_its_compiler_and_the_gpu(fake_compiler: Make) -> None:
    environ = {"PATH": str(fake_compiler("cc", "c++").parent)}
    fake_compiler("nvcc", version="release 12.8")
    fake_compiler("nvidia-smi", version="9.0")
    assert "CUDA" not in toolchain.toolchain(environ, {})
    identity = toolchain.toolchain(environ, {"GGML_CUDA": "on"})["CUDA"]
    assert "release 12.8" in identity
    assert "9.0" in identity


def launchers(environ: dict[str, str], arguments: str = "", **defined: str) -> list[str]:
    built = toolchain.build_environment({**environ, "CMAKE_ARGS": arguments}, defined, Path("/work"))
    return [word for word in shlex.split(built["CMAKE_ARGS"]) if "LAUNCHER" in word]


def test_ccache_is_used_where_present(fake_compiler: Make) -> None:
    environ = {"PATH": str(fake_compiler("cc").parent)}
    assert launchers(environ) == []
    fake_compiler("ccache")
    assert launchers(environ) == ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    assert "-DCMAKE_CUDA_COMPILER_LAUNCHER=ccache" in launchers(environ, GGML_CUDA="on")


def test_ccache_leaves_the_choice_to_the_user(fake_compiler: Make) -> None:
    environ = {"PATH": str(fake_compiler("ccache").parent)}
    own = "-DCMAKE_CXX_COMPILER_LAUNCHER=sccache"
    assert launchers(environ, own, CMAKE_CXX_COMPILER_LAUNCHER="sccache") == [own]
    assert launchers({**environ, "CMAKE_C_COMPILER_LAUNCHER": "sccache"}) == []
    assert launchers(environ, GGML_CCACHE="OFF") == []


def test_cmake_args_of_the_user_come_last_and_jobs_are_kept() -> None:
    environ = {"PATH": "", "CMAKE_ARGS": "-DGGML_CUDA=on", "CMAKE_BUILD_PARALLEL_LEVEL": "3", "OTHER": "kept"}
    built = toolchain.build_environment(environ, {"GGML_CUDA": "on"}, Path("/work"))
    assert built["CMAKE_ARGS"].endswith("-DGGML_CUDA=on")
    assert built["CMAKE_BUILD_PARALLEL_LEVEL"] == "3"
    assert built["OTHER"] == "kept"
    assert int(toolchain.build_environment({}, {}, Path("/work"))["CMAKE_BUILD_PARALLEL_LEVEL"]) >= 1
