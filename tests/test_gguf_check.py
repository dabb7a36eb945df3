"""A bad GGUF ends as one clear error before llama.cpp sees it; a good one is described."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec import hub
from localspec.errors import ModelError, ModelNotFoundError
from localspec.gguf_check import check_gguf
from tests.fake_hub import gguf_header, write_gguf

UINT32, STRING, ARRAY, UINT64 = 4, 8, 9, 10


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def kv(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: bytes, shape: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


ARCH = kv(b"general.architecture", STRING, text(b"llama"))
ROOM = bytes(4096)


@pytest.fixture
def refuse(tmp_path: Path):
    """Write the bytes and return the message of the error that they must cause."""

    def check(content: bytes) -> str:
        path = tmp_path / "bad.gguf"
        path.write_bytes(content)
        with pytest.raises(ModelError) as caught:
            check_gguf(path)
        assert "bad.gguf" in caught.value.message
        assert "\n" not in str(caught.value)
        assert caught.value.hint
        return caught.value.message

    return check


def test_a_good_file_is_described(tmp_path):
    size = len(write_gguf(tmp_path / "good.gguf"))
    info = check_gguf(tmp_path / "good.gguf")
    assert (info.arch, info.name, info.file_type, info.version, info.size) == ("llama", "tiny", "F32", 3, size)
    assert (info.n_ctx_train, info.n_embd, info.n_layers, info.n_vocab) == (512, 64, 2, 4)
    assert (info.n_tensors, info.n_params) == (2, 96)
    assert info.metadata["tokenizer.ggml.add_bos_token"] is True


def test_what_the_gguf_package_quantises_is_accepted(tmp_path):
    """The block sizes agree with those that real files are written with."""
    import numpy as np

    path = tmp_path / "quants.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    kinds = (gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.BF16)
    for kind in kinds:
        data = gguf.quants.quantize(np.ones((3, 64), dtype=np.float32), kind)
        writer.add_tensor(f"{kind.name}.weight", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert check_gguf(path).n_params == 3 * 3 * 64


@pytest.mark.model
def test_the_default_model_passes():
    path = hub.embedded_model()
    if path is None:
        pytest.skip("the demo extra is not installed")
    info = check_gguf(path)
    assert (info.arch, info.file_type, info.n_vocab, info.n_layers) == ("llama", "Q4_1", 49152, 30)


def test_a_truncated_file_says_how_much_is_missing(tmp_path, refuse):
    content = write_gguf(tmp_path / "good.gguf")
    assert "100 are missing" in refuse(content[:-100])


@pytest.mark.parametrize("keep", [1, 4, 7, 8, 15, 23, 24, 40, 100, 200, 400])
def test_a_file_cut_anywhere_in_its_header_is_refused(tmp_path, refuse, keep):
    content = write_gguf(tmp_path / "good.gguf")
    refuse(content[:keep])


def test_an_empty_file_a_folder_and_a_missing_file_are_told_apart(tmp_path, refuse):
    assert "empty" in refuse(b"")
    with pytest.raises(ModelError, match="directory"):
        check_gguf(tmp_path)
    with pytest.raises(ModelNotFoundError, match="does not exist"):
        check_gguf(tmp_path / "none.gguf")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "git-lfs pointer"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"PK\x03\x04" + ROOM, "zip"),
        (b"tjgg" + ROOM, "old GGML"),
        (b"hello, I am text", "not a GGUF"),
        (gguf_header(version=1) + ROOM, "version 1 is not"),
        (gguf_header(version=99) + ROOM, "version 99 is not"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + ROOM, "big-endian"),
    ],
)
def test_what_is_not_a_usable_gguf_is_named(refuse, content, reason):
    assert reason in refuse(content)


@pytest.mark.parametrize("count", [2**60, 2**63, 2**64 - 1, 1000])
def test_absurd_counts_are_refused_before_anything_is_read(refuse, count):
    assert f"{count} metadata entries" in refuse(gguf_header(n_kv=count) + ROOM)
    assert f"{count} tensors" in refuse(gguf_header(n_tensors=count) + ROOM)


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 5000])
def test_a_length_beyond_the_end_is_refused(refuse, length):
    long = struct.pack("<Q", length)
    assert "key of metadata entry 0" in refuse(gguf_header(n_kv=1) + long + ROOM)
    refuse(gguf_header(n_kv=1) + text(b"k") + struct.pack("<I", STRING) + long + ROOM)
    for kind in (UINT32, UINT64, STRING):
        array = struct.pack("<IQ", kind, length)
        refuse(gguf_header(n_kv=1) + kv(b"k", ARRAY, array) + ROOM)
    inside = struct.pack("<IQ", STRING, 2) + text(b"fine") + long
    assert "after the end" in refuse(gguf_header(n_kv=1) + kv(b"k", ARRAY, inside) + ROOM)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([kv(b"", UINT32, bytes(4))], "empty key"),
        ([kv(b"k", UINT32, bytes(4)), kv(b"k", UINT32, bytes(4))], "twice"),
        ([kv(b"k", 13, bytes(4))], "unknown type 13"),
        ([kv(b"k", ARRAY, struct.pack("<IQ", 99, 1))], "unknown type 99"),
        ([kv(b"k", ARRAY, struct.pack("<IQ", ARRAY, 1))], "array of arrays"),
        ([kv(b"general.name", STRING, text(b"x"))], "no architecture"),
        ([kv(b"general.architecture", UINT32, bytes(4))], "no architecture"),
        ([ARCH, kv(b"general.alignment", UINT32, struct.pack("<I", 48))], "power of two"),
        ([ARCH, kv(b"general.alignment", UINT32, struct.pack("<I", 0))], "power of two"),
        ([ARCH, kv(b"general.alignment", UINT64, struct.pack("<Q", 32))], "not a 32-bit"),
        # llama.cpp ends the process with an assertion on this one
        ([ARCH, kv(b"tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, 2) + text(b"a") * 2)], "1 tokens twice"),
    ],
)
def test_bad_metadata_is_refused(refuse, entries, reason):
    assert reason in refuse(gguf_header(n_kv=len(entries)) + b"".join(entries) + ROOM)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ([tensor(b"t", [32], offset=2**40)], "expected 0"),
        ([tensor(b"t", [32], offset=2**64 - 32)], "expected 0"),
        ([tensor(b"t", [32], offset=7)], "expected 0"),
        ([tensor(b"t", [8]), tensor(b"u", [8], offset=0)], "expected 32"),
        ([tensor(b"t", [8]), tensor(b"t", [8], offset=32)], "twice"),
        ([tensor(b"t", [2**32, 2**32])], "impossible shape"),
        ([tensor(b"t", [2**63, 2])], "impossible shape"),
        ([tensor(b"t", [2**64 - 1, 0])], "impossible shape"),
        ([tensor(b"t", [2**30, 2**30])], "truncated"),
        ([tensor(b"t", [4096])], "are missing"),
        ([tensor(b"t", [1] * 5)], "5 dimensions"),
        ([tensor(b"t", [33], kind=2)], "not a multiple of 32"),
        ([tensor(b"t", [32], kind=4)], "unknown type 4"),
        ([tensor(b"t", [32], kind=2**31)], "unknown type"),
        ([tensor(b"n" * 64, [32])], "more than 63"),
    ],
)
def test_bad_tensors_are_refused(refuse, tensors, reason):
    assert reason in refuse(gguf_header(n_tensors=len(tensors), n_kv=1) + ARCH + b"".join(tensors) + ROOM)


def test_names_from_the_file_cannot_write_on_the_terminal(refuse):
    message = refuse(gguf_header(n_kv=2) + kv(b"\x1b[2J\nboo", UINT32, bytes(4)) * 2 + ROOM)
    assert "\x1b" not in message


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> tuple[Path, bytes]:
    folder = tmp_path_factory.mktemp("fuzz")
    return folder / "fuzz.gguf", write_gguf(folder / "seed.gguf")


@pytest.fixture(scope="module")
def native_accepts():
    """ggml's own header reader: path -> whether it takes the file; None where the library is not installed."""
    try:
        from llama_cpp import llama_cpp
    except ImportError:
        return None

    class Params(ctypes.Structure):
        _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))

    read, free = llama_cpp._lib.gguf_init_from_file, llama_cpp._lib.gguf_free
    read.argtypes, read.restype = [ctypes.c_char_p, Params], ctypes.c_void_p
    free.argtypes, free.restype = [ctypes.c_void_p], None

    def accepts(path: Path) -> bool:
        context = read(str(path).encode(), Params(True, None))
        free(context)
        return context is not None

    return accepts


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_causes_another_error_than_model_error(small, native_accepts, data):
    """Flipped bytes, numbers blown up and files cut short: refused or described, never a crash. And whatever passes
    is a header that ggml takes too, so that no damage reaches its less friendly errors."""
    path, seed = small
    content = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 4), label="changes")):
        at = data.draw(st.integers(0, len(content) - 1), label="at")
        new = data.draw(st.binary(min_size=1, max_size=1) | st.sampled_from([b"\xff" * 8, bytes(8), b"\0\0\0\x80"]))
        content[at : at + len(new)] = new
    keep = data.draw(st.none() | st.integers(0, len(content)), label="keep")
    path.write_bytes(content[:keep])
    try:
        info = check_gguf(path)
    except ModelError as error:
        assert "\n" not in str(error)
    else:
        assert info.size == path.stat().st_size
        assert native_accepts is None or native_accepts(path)
