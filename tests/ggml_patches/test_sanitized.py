"""The tests of the CPU kernels with ggml compiled under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ggml_patches.backend import dev
from ggml_patches.backend.errors import BuildError
from ggml_patches.backend.pins import PACKAGE

from .test_native import COMPILERS, SOURCES, find_cmake, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sanitizers are used on Linux only"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the row kernels are for x86-64"),
    pytest.mark.skipif(shutil.which("git") is None, reason="needs git"),
]


def cpu_has_avx2() -> bool:
    """Whether programs for AVX2 run here."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    return {"avx2", "fma", "f16c", "bmi2"} <= set(flags)


def require_sanitizers(folder: Path) -> None:
    """Skip where a program can not be linked with the sanitizers."""
    compiler = os.environ.get("CXX", "").split() or [name for name in COMPILERS if shutil.which(name)][:1]
    if not compiler:
        pytest.skip(f"no C++ compiler: none of {', '.join(COMPILERS)} is on PATH")
    source = folder / "empty.cpp"
    source.write_text("int main() { return 0; }\n")
    command = [*compiler, "-fsanitize=address,undefined", str(source), "-o", str(folder / "empty")]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{compiler[0]} has no address and undefined behaviour sanitizers")


def test_the_row_kernels_touch_no_memory_that_is_not_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cmake = find_cmake()
    if cmake is None:
        pytest.skip("no cmake: install it with the system's package manager, or pip install cmake")
    if not cpu_has_avx2():
        pytest.skip("this CPU has no AVX2")
    require_sanitizers(tmp_path)
    tree, build = tmp_path / "tree", tmp_path / "build"
    # ggml compiles through ccache where that is installed: the same files in another folder are the same to it then
    monkeypatch.setenv("CCACHE_BASEDIR", str(tmp_path.resolve()))
    monkeypatch.setenv("CCACHE_NOHASHDIR", "1")
    try:
        dev.make_tree(PACKAGE, tree)
    except BuildError as error:
        if "could not download" not in str(error):
            raise
        pytest.skip(str(error))
    run([cmake, "-S", SOURCES / "sanitized", "-B", build, f"-DLLAMA_TREE={tree}"])
    run([cmake, "--build", build, "--parallel", "2"], timeout=900)
    run([Path(cmake).with_name("ctest"), "--test-dir", build, "--output-on-failure", "--parallel", "2"], timeout=900)
