"""The C++ tests of the patches, compiled against the installed package and run on a tiny model."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from localspec.engine import kernels, patched
from tests.tiny_models import write_tiny

SOURCES = Path(__file__).parents[2] / "ggml_patches" / "tests"
COMPILERS = ("c++", "g++", "clang++")

pytestmark = [
    pytest.mark.patched,
    pytest.mark.skipif(not patched.available(), reason="llama-cpp-python is not patched: pip install ./ggml_patches"),
]


def find_cmake() -> str | None:
    """CMake from PATH, or from its PyPI package where that is installed without its script."""
    if found := shutil.which("cmake"):
        return found
    spec = importlib.util.find_spec("cmake")
    if spec is None or spec.origin is None:
        return None
    return shutil.which("cmake", path=str(Path(spec.origin).parent / "data" / "bin"))


def run(command: Sequence[str | Path], timeout: float = 300) -> str:
    """The output of a program; a failure of the test, with all of it, when the program fails."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False
    )
    if done.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}", pytrace=False)
    return done.stdout


def configure(folder: Path, *options: str) -> str:
    """Prepare `folder` for compiling against the installed package. Returns CMake's path."""
    import llama_cpp

    cmake = find_cmake()
    if cmake is None:
        pytest.skip("no cmake: install it with the system's package manager, or pip install cmake")
    if not os.environ.get("CXX") and not any(map(shutil.which, COMPILERS)):
        pytest.skip(f"no C++ compiler: none of {', '.join(COMPILERS)} is on PATH")
    prefix = Path(llama_cpp.__file__).parent.parent
    if not (prefix / "include" / "llama-tree.h").is_file():
        pytest.skip(f"the installed llama-cpp-python has no headers: {prefix / 'include' / 'llama-tree.h'} is missing")
    run([cmake, "-S", SOURCES, "-B", folder, f"-DLLAMA_PREFIX={prefix}", "-DCMAKE_BUILD_TYPE=Release", *options])
    return cmake


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the compiled programs."""
    folder = tmp_path_factory.mktemp("native")
    cmake = configure(folder)
    run([cmake, "--build", folder, "--config", "Release"])
    return folder


def program(build: Path, name: str) -> Path:
    """Generators with several configurations put programs in a folder for each."""
    return next(path for path in (build / name, build / "Release" / f"{name}.exe") if path.is_file())


ROW_KERNELS = ("test-row-products", "test-flash-attn-rows") if kernels.covered_types() else ()


@pytest.fixture(scope="module")
def long_runs(build: Path) -> Iterator[dict[str, Future[str]]]:
    """What the programs that need no model and take long will have printed; two run at a time."""
    with ThreadPoolExecutor(2) as pool:
        yield {name: pool.submit(run, [program(build, name)]) for name in (*ROW_KERNELS, "test-tree-ops")}


def test_row_statistics_agree_with_a_reference_in_double_precision(build: Path) -> None:
    assert "ok" in run([program(build, "test-row-stats")])


@pytest.mark.skipif(not ROW_KERNELS, reason="this build has no row kernels")
@pytest.mark.parametrize("name", ROW_KERNELS)
def test_a_row_is_right_and_the_same_whatever_is_computed_beside_it(
    long_runs: dict[str, Future[str]], name: str
) -> None:
    assert "ok" in long_runs[name].result()


def test_the_operations_of_trees_agree_with_what_they_mean(long_runs: dict[str, Future[str]]) -> None:
    assert "ok" in long_runs["test-tree-ops"].result()


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_trees_agree_with_plain_decoding_through_the_c_interface(build: Path, tmp_path: Path, kind: str) -> None:
    assert "ok" in run([program(build, "test-tree"), write_tiny(tmp_path / "tiny.gguf", kind)])


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_masks_and_statistics_of_the_graph_are_those_of_the_host(build: Path, tmp_path: Path, kind: str) -> None:
    assert "ok" in run([program(build, "test-tree-device"), write_tiny(tmp_path / "tiny.gguf", kind)])


def test_draft_heads_through_the_c_interface(build: Path, tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "tiny.gguf")
    assert "ok" in run([program(build, "test-heads"), model, tmp_path / "heads.gguf"])


@pytest.fixture(scope="module")
def build_of_sources(patched_sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the programs that want patched sources; none is compiled yet."""
    folder = tmp_path_factory.mktemp("native-of-sources")
    configure(folder, f"-DLLAMA_SOURCES={patched_sources}")
    return folder


def compiled(build: Path, name: str) -> Path:
    """One of those programs."""
    cmake = find_cmake()
    assert cmake is not None  # it configured the folder
    run([cmake, "--build", build, "--config", "Release", "--target", name])
    return program(build, name)


@pytest.mark.slow
def test_draft_heads_on_a_device_that_stands_in_for_a_gpu(build_of_sources: Path, tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "tiny.gguf")
    assert "ok" in run([compiled(build_of_sources, "test-heads-device"), model, tmp_path / "heads.gguf"])


@pytest.mark.slow
def test_trees_on_a_device_that_stands_in_for_a_gpu(build_of_sources: Path, tmp_path: Path) -> None:
    assert "ok" in run([compiled(build_of_sources, "test-tree-probe"), write_tiny(tmp_path / "tiny.gguf")])


@pytest.mark.slow
def test_the_operations_of_trees_agree_with_plain_loops_in_the_tests_of_ggml(build_of_sources: Path) -> None:
    test = compiled(build_of_sources, "test-backend-ops")
    output = run([test, "test", "-b", "CPU", "-o", "TREE_MASK,TOPK_STATS"])
    assert "1/1 backends passed" in output
    for operation in ("TREE_MASK", "TOPK_STATS"):
        assert f"{operation}(" in output  # a name that nothing has passes too
