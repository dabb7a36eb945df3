"""The tests of the CPU kernels with ggml compiled under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from tests.background import Background, waits_for

from .native import SOURCES, Build, find_compiler, patched_sources


def cpu_has_avx2() -> bool:
    """Whether programs for AVX2 run here."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    return {"avx2", "fma", "f16c", "bmi2"} <= set(flags)


def require_sanitizers(background: Background) -> None:
    """Skip where a program can not be linked with the sanitizers."""
    compiler, folder = find_compiler(background), background.folder("empty")
    (folder / "empty.cpp").write_text("int main() { return 0; }\n")
    try:
        background.run(*compiler, "-fsanitize=address,undefined", "empty.cpp", "-o", "empty", cwd=folder)
    except pytest.fail.Exception:
        pytest.skip(f"{compiler[0]} has no address and undefined behaviour sanitizers")


def sanitized(background: Background) -> None:
    """Compile and run what is sanitized."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64" or not cpu_has_avx2():
        pytest.skip("the sanitizers are used on Linux only, on CPUs with AVX2")
    require_sanitizers(background)
    # ggml compiles through ccache where that is installed: the same files in another folder are the same to it then
    cached = {"CCACHE_BASEDIR": str(background.root.resolve()), "CCACHE_NOHASHDIR": "1"}
    build = Build(background, "sanitized", SOURCES / "sanitized", f"-DLLAMA_TREE={background.result(patched_sources)}")
    build.compile(**cached)
    build.test()


@pytest.mark.slow
@waits_for(sanitized)
def test_the_row_kernels_touch_no_memory_that_is_not_theirs(background: Background) -> None:
    background.result(sanitized)
