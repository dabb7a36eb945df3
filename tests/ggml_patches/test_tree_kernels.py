"""The kernels of TREE_MASK and TOPK_STATS for CUDA and Metal, proven as far as a machine without a GPU can."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.background import Background, waits_for

from .native import SOURCES, Build, patched_sources

PROJECT = SOURCES / "tree-kernels"
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
THREADS = 1024  # of a block of TOPK_STATS: each may have 64 of a multiprocessor's 65536 registers


@pytest.fixture
def llama(background: Background) -> Path:
    """The folder vendor/llama.cpp of the patched sources."""
    return background.result(patched_sources) / "vendor" / "llama.cpp"


def tried_alone(background: Background) -> None:
    """Compile and run the kernels alone and in the file for CUDA."""
    build = Build(background, "tree-kernels", PROJECT)
    build.compile()
    build.test()


def tried_on_metal(background: Background) -> None:
    """Compile and run the kernels behind the encoder for Metal."""
    build = Build(background, "tree-kernels-metal", PROJECT, f"-DLLAMA_SOURCES={background.result(patched_sources)}")
    build.compile("metal-embedded", "metal-files")
    build.test("metal")


@waits_for(tried_alone)
def test_kernels_agree_with_their_definition_alone_and_in_the_file_for_cuda(background: Background) -> None:
    background.result(tried_alone)


@pytest.mark.slow
@waits_for(tried_on_metal)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the threads of a block are coroutines of Linux")
def test_kernels_agree_with_their_definition_behind_the_encoder_for_metal(background: Background) -> None:
    background.result(tried_on_metal)


def test_metal_knows_its_library_of_tree_kernels(llama: Path) -> None:
    """What the programs above do not see of Metal's host code, as it needs Apple's frameworks."""
    metal = llama / "ggml" / "src" / "ggml-metal"
    device = (metal / "ggml-metal-device.m").read_text()
    compiled = re.findall(r"^ +kernels/(\w+)\.metal$", (metal / "CMakeLists.txt").read_text(), re.MULTILINE)
    loaded = re.findall(r"^ +X\(\w+, +(\w+)\)", device, re.MULTILINE)
    assert "tree" in loaded
    assert sorted(loaded) == sorted(compiled)
    supported = device[device.index("bool ggml_metal_device_supports_op(") :]
    assert {"TREE_MASK", "TOPK_STATS"} <= set(re.findall(r"case GGML_OP_(\w+):", supported))

    # C++ tells the threads' positions apart by their order alone
    kernels = (metal / "kernels" / "tree.metal").read_text()
    positions = re.findall(r"^ +u\w+ +\w+\[\[(\w+)\]\]", kernels, re.MULTILINE)
    assert positions == 2 * [
        "threadgroup_position_in_grid",
        "thread_position_in_threadgroup",
        "threads_per_threadgroup",
    ]


def package_folders(*parts: str) -> Iterator[Path]:
    """Folders that NVIDIA's packages for pip brought."""
    for site in map(Path, sys.path):
        yield from sorted((site / "nvidia").glob("/".join(("*", *parts))))


def find_nvcc() -> Path | None:
    """Nvcc from PATH, CUDA_HOME, the usual place, or NVIDIA's packages for pip."""
    roots = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    roots += sorted(Path("/usr/local").glob("cuda*"), reverse=True)
    folders = [root / "bin" for root in roots] + list(package_folders("bin"))
    paths = os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)])
    found = shutil.which("nvcc", path=paths)
    return None if found is None else Path(found).resolve()


def cublas_headers(nvcc: Path) -> Path:
    """A folder with cublas_v2.h, which ggml-cuda's common.cuh includes: NVIDIA's, else what stands in for it here."""
    folders = [nvcc.parents[1] / "include", *package_folders("include")]
    return next((folder for folder in folders if (folder / "cublas_v2.h").is_file()), PROJECT / "cublas-stub")


def compiled_for_cuda(background: Background) -> tuple[list[str], str]:
    """Architectures that the kernels were compiled for, and what the compiler told."""
    nvcc = find_nvcc()
    if nvcc is None:
        pytest.skip("no nvcc: install the CUDA toolkit, or pip install nvidia-cuda-nvcc")
    known = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=False).stdout.split()
    architectures = [str(number) for number in ARCHITECTURES if f"sm_{number}" in known]
    if not architectures:
        pytest.skip(f"{nvcc} compiles for none of {ARCHITECTURES}: {' '.join(known) or 'it does not run'}")

    source = background.result(patched_sources) / "vendor" / "llama.cpp" / "ggml" / "src"
    command = [nvcc, "-std=c++17", "-O3", "-use_fast_math", "-extended-lambda", "-Werror", "all-warnings"]
    command += ["-Xcompiler", "-Wall,-Wno-unused-function", "-Xptxas", "-v"]
    command += [f"-gencode=arch=compute_{number},code=sm_{number}" for number in architectures]
    command += [f"-I{folder}" for folder in (source, source.parent / "include", cublas_headers(nvcc))]
    compiled = background.folder("cuda") / "tree-ops.o"
    return architectures, background.run(*command, "-c", source / "ggml-cuda" / "tree-ops.cu", "-o", compiled)


@pytest.mark.slow
@waits_for(compiled_for_cuda)
def test_cuda_kernels_compile_for_every_architecture_and_keep_to_registers(background: Background) -> None:
    architectures, told = background.result(compiled_for_cuda)
    kernels = re.findall(r"entry function '\w*?(tree_mask|topk_stats)_kernel\w*' for 'sm_(\d+)'", told)
    assert sorted(kernels) == sorted((name, number) for name in ("tree_mask", "topk_stats") for number in architectures)
    assert len(re.findall(r" 0 bytes spill stores", told)) == len(kernels)
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", told)]
    assert len(registers) == len(kernels) and max(registers) <= 65536 // THREADS
