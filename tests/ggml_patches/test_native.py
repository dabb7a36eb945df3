"""The C++ tests of the patches, compiled against the installed package and run on a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.engine import kernels, patched
from tests.background import Background, run, waits_for
from tests.tiny_models import write_tiny

from .native import SOURCES, Build, patched_sources

pytestmark = [
    pytest.mark.patched,
    pytest.mark.skipif(not patched.available(), reason="llama-cpp-python is not patched: pip install ./ggml_patches"),
]


def configured(background: Background, name: str, *options: str) -> Build:
    """A folder for compiling against the installed package."""
    import llama_cpp

    prefix = Path(llama_cpp.__file__).parent.parent
    if not (prefix / "include" / "llama-tree.h").is_file():
        pytest.skip(f"the installed llama-cpp-python has no headers: {prefix / 'include' / 'llama-tree.h'} is missing")
    return Build(background, name, SOURCES, f"-DLLAMA_PREFIX={prefix}", "-DCMAKE_BUILD_TYPE=Release", *options)


def built(background: Background) -> Build:
    """All programs that need no sources of llama.cpp."""
    build = configured(background, "native")
    build.compile()
    return build


def printed(background: Background, name: str) -> str:
    """What one of them prints that needs no model and takes long."""
    return background.run(background.result(built).program(name))


def built_of_sources(background: Background) -> Build:
    """The programs that need patched sources."""
    build = configured(background, "native-of-sources", f"-DLLAMA_SOURCES={background.result(patched_sources)}")
    build.compile("test-heads-device", "test-tree-probe", "test-backend-ops")
    return build


@pytest.fixture
def build(background: Background) -> Build:
    return background.result(built)


@pytest.fixture
def build_of_sources(background: Background) -> Build:
    return background.result(built_of_sources)


ROW_KERNELS = ("test-row-products", "test-flash-attn-rows") if kernels.covered_types() else ()


def slowly(name: str) -> object:
    """A parameter of a test that waits for a program."""
    return pytest.param(name, marks=waits_for(printed, name))


@waits_for(built)
def test_row_statistics_agree_with_a_reference_in_double_precision(build: Build) -> None:
    assert "ok" in run(build.program("test-row-stats"))


@pytest.mark.skipif(not ROW_KERNELS, reason="this build has no row kernels")
@pytest.mark.parametrize("name", map(slowly, ROW_KERNELS))
def test_a_row_is_right_and_the_same_whatever_is_computed_beside_it(background: Background, name: str) -> None:
    assert "ok" in background.result(printed, name)


@waits_for(printed, "test-tree-ops")
def test_the_operations_of_trees_agree_with_what_they_mean(background: Background) -> None:
    assert "ok" in background.result(printed, "test-tree-ops")


@waits_for(built)
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_trees_agree_with_plain_decoding_through_the_c_interface(build: Build, tmp_path: Path, kind: str) -> None:
    assert "ok" in run(build.program("test-tree"), write_tiny(tmp_path / "tiny.gguf", kind))


@waits_for(built)
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_masks_and_statistics_of_the_graph_are_those_of_the_host(build: Build, tmp_path: Path, kind: str) -> None:
    assert "ok" in run(build.program("test-tree-device"), write_tiny(tmp_path / "tiny.gguf", kind))


@waits_for(built)
def test_draft_heads_through_the_c_interface(build: Build, tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "tiny.gguf")
    assert "ok" in run(build.program("test-heads"), model, tmp_path / "heads.gguf")


@pytest.mark.slow
@waits_for(built_of_sources)
def test_draft_heads_on_a_device_that_stands_in_for_a_gpu(build_of_sources: Build, tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "tiny.gguf")
    assert "ok" in run(build_of_sources.program("test-heads-device"), model, tmp_path / "heads.gguf")


@pytest.mark.slow
@waits_for(built_of_sources)
def test_trees_on_a_device_that_stands_in_for_a_gpu(build_of_sources: Build, tmp_path: Path) -> None:
    assert "ok" in run(build_of_sources.program("test-tree-probe"), write_tiny(tmp_path / "tiny.gguf"))


@pytest.mark.slow
@waits_for(built_of_sources)
def test_the_operations_of_trees_agree_with_plain_loops_in_the_tests_of_ggml(build_of_sources: Build) -> None:
    test = build_of_sources.program("test-backend-ops")
    output = run(test, "test", "-b", "CPU", "-o", "TREE_MASK,TOPK_STATS")
    assert "1/1 backends passed" in output
    for operation in ("TREE_MASK", "TOPK_STATS"):
        assert f"{operation}(" in output  # a name that nothing has passes too
