"""Building: the patched tree is what is compiled, once for all who ask."""

from __future__ import annotations

import tarfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ggml_patches import backend
from ggml_patches.backend import own_sdist, wheel
from ggml_patches.backend.cache import Settings
from ggml_patches.backend.errors import BuildError

from .conftest import UPSTREAM, FakeCompile, Workshop


def build(workshop: Workshop, compile_tree: wheel.Compile, settings: Settings | None = None) -> str:
    return wheel.build(workshop.package, workshop.out, settings or {}, workshop.environ, compile_tree)


def test_the_patched_tree_is_compiled_and_the_wheel_delivered(workshop: Workshop) -> None:
    compile_tree = FakeCompile(workshop.package)
    name = build(workshop, compile_tree)
    assert name == f"fake_llama-{UPSTREAM}+localspec.3-py3-none-any.whl"
    with zipfile.ZipFile(workshop.out / name) as archive:
        assert archive.read("a.cpp") == b"one\ntwo\n3\nfour\nfive\nsix\nseven\n"
    assert not (Path(workshop.environ["LOCALSPEC_HOME"]) / "cache/ggml_patches/build").exists()


def test_the_second_build_needs_no_compiling_and_no_sdist(workshop: Workshop) -> None:
    compile_tree = FakeCompile(workshop.package)
    name = build(workshop, compile_tree)
    (workshop.out / name).unlink()
    workshop.sdist.unlink()
    assert build(workshop, compile_tree) == name
    assert (workshop.out / name).is_file()
    assert len(compile_tree.calls) == 1


def test_other_settings_are_compiled_anew(workshop: Workshop) -> None:
    compile_tree = FakeCompile(workshop.package)
    build(workshop, compile_tree)
    workshop.environ["CMAKE_ARGS"] = "-DGGML_NATIVE=OFF"
    build(workshop, compile_tree)
    assert len(compile_tree.calls) == 2
    assert "-DGGML_NATIVE=OFF" in compile_tree.calls[1]["CMAKE_ARGS"]


def test_a_damaged_cached_wheel_is_built_again(workshop: Workshop) -> None:
    compile_tree = FakeCompile(workshop.package)
    name = build(workshop, compile_tree)
    intact = (workshop.out / name).read_bytes()
    cached = wheel.cached(workshop.package, {}, workshop.environ)
    assert cached is not None
    cached.write_bytes(intact[:-30])
    build(workshop, compile_tree)
    assert (workshop.out / name).read_bytes()[:4] == b"PK\x03\x04"
    assert len(compile_tree.calls) == 2
    assert wheel.cached(workshop.package, {}, workshop.environ) is not None


def test_no_compiler_is_told_before_anything_is_fetched(workshop: Workshop, tmp_path: Path) -> None:
    workshop.environ.update(PATH=str(tmp_path / "nothing"), LOCALSPEC_LLAMA_SDIST="missing")
    with pytest.raises(BuildError, match="no C compiler found"):
        build(workshop, FakeCompile(workshop.package))


def test_what_a_killed_build_left_does_not_get_into_the_next(workshop: Workshop) -> None:
    left = Path(workshop.environ["LOCALSPEC_HOME"]) / f"cache/ggml_patches/build/fake_llama-{UPSTREAM}/vendor/new.cpp"
    left.parent.mkdir(parents=True)
    left.write_text("left over: copying the new sources would refuse to overwrite it")
    build(workshop, FakeCompile(workshop.package))


def test_a_failed_compilation_caches_nothing(workshop: Workshop) -> None:
    def fail(tree: Path, folder: Path, settings: Settings, environ: Mapping[str, str]) -> Path:
        raise BuildError("llama.cpp did not compile")

    with pytest.raises(BuildError, match="did not compile"):
        build(workshop, fail)
    assert wheel.cached(workshop.package, {}, workshop.environ) is None
    compile_tree = FakeCompile(workshop.package)
    build(workshop, compile_tree)
    assert len(compile_tree.calls) == 1


def test_two_builds_at_once_compile_once(workshop: Workshop, tmp_path: Path) -> None:
    inside, go_on = threading.Event(), threading.Event()
    fake = FakeCompile(workshop.package)

    def slow(tree: Path, folder: Path, settings: Settings, environ: Mapping[str, str]) -> Path:
        inside.set()
        assert go_on.wait(30)
        return fake(tree, folder, settings, environ)

    second_out = tmp_path / "out2"
    second_out.mkdir()

    def second_build() -> None:
        wheel.build(workshop.package, second_out, {}, workshop.environ, fake)

    first, second = threading.Thread(target=build, args=(workshop, slow)), threading.Thread(target=second_build)
    first.start()
    assert inside.wait(30)
    second.start()
    second.join(0.5)
    assert second.is_alive(), "the second build did not wait for the first"
    go_on.set()
    first.join(30)
    second.join(30)
    assert len(fake.calls) == 1
    assert len(list(second_out.iterdir())) == 1


def test_a_patch_that_does_not_apply_stops_the_build(workshop: Workshop) -> None:
    patch = workshop.package.patches[0]
    patch.write_text(patch.read_text().replace("-three", "-drei"))
    compile_tree = FakeCompile(workshop.package)
    with pytest.raises(BuildError, match=r"0001-three\.patch does not apply: vendor/a\.cpp, hunk 1"):
        build(workshop, compile_tree)
    assert compile_tree.calls == []


@pytest.fixture
def fake_cmake(fake_compiler: Callable[..., Path]) -> None:
    """scikit-build-core asks CMake for its version even where it compiles nothing."""
    pytest.importorskip("scikit_build_core")
    fake_compiler("cmake", version='{"version": {"string": "3.30.0"}}')


@pytest.mark.usefixtures("fake_cmake")
def test_metadata_has_our_version_and_upstreams_requirements(workshop: Workshop, tmp_path: Path) -> None:
    for compiler in ("cc", "c++"):  # not needed for it
        (Path(workshop.environ["PATH"]) / compiler).unlink()
    folder = tmp_path / "metadata"
    name = wheel.metadata(workshop.package, folder, {}, workshop.environ)
    assert name == f"fake_llama-{UPSTREAM}+localspec.3.dist-info"
    lines = (folder / name / "METADATA").read_text(encoding="utf-8").splitlines()
    assert f"Version: {UPSTREAM}+localspec.3" in lines
    assert "Requires-Dist: numpy>=1.20.0" in lines


def test_metadata_of_a_finished_wheel_needs_nothing_else(workshop: Workshop, tmp_path: Path) -> None:
    build(workshop, FakeCompile(workshop.package))
    workshop.sdist.unlink()
    name = wheel.metadata(workshop.package, tmp_path / "metadata", {}, workshop.environ)
    assert name == f"fake_llama-{UPSTREAM}+localspec.3.dist-info"
    assert [path.name for path in (tmp_path / "metadata" / name).iterdir()] == ["METADATA"]


@pytest.mark.usefixtures("fake_cmake")
def test_an_sdist_of_the_package_holds_what_a_build_needs(workshop: Workshop, tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md", ".gitattributes", "tests/test-a.cpp"):
        workshop.write(name, "x\n")
    name = own_sdist.build(workshop.package, tmp_path, workshop.environ)
    with tarfile.open(tmp_path / name) as archive:
        names = {member.name.removeprefix(f"fake_llama-{UPSTREAM}+localspec.3/") for member in archive}
    assert {
        "PKG-INFO",
        "pyproject.toml",
        "tests/test-a.cpp",
        "backend/code.py",
        "patches/0001-three.patch",
        "src/vendor/new.cpp",
    } <= names


def test_hooks_fail_with_one_line_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_LLAMA_SDIST", str(tmp_path / "missing.tar.gz"))
    with pytest.raises(SystemExit) as stop:
        backend.prepare_metadata_for_build_wheel(str(tmp_path))
    assert stop.value.code == 1
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith("localspec: error: LOCALSPEC_LLAMA_SDIST names ")


def test_a_full_disk_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def full(*arguments: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backend.wheel, "build", full)
    with pytest.raises(SystemExit):
        backend.build_wheel(str(tmp_path))
    assert "No space left on device; check free space" in capsys.readouterr().err


Hook = Callable[..., object]


def test_an_editable_install_is_a_normal_wheel() -> None:
    hooks: list[tuple[Hook, Hook]] = [
        (backend.build_editable, backend.build_wheel),
        (backend.prepare_metadata_for_build_editable, backend.prepare_metadata_for_build_wheel),
        (backend.get_requires_for_build_editable, backend.get_requires_for_build_wheel),
    ]
    assert all(editable is normal for editable, normal in hooks)
