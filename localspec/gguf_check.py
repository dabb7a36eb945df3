"""A bounds-checked look at a GGUF header, done before llama.cpp opens the file.

llama.cpp is fast rather than wary, and a failed assertion there ends the whole process. `check_gguf` reads the same
header with every count, length and offset held against the size of the file, so that a damaged, truncated or
hostile file ends as one `ModelError`. It reads no tensor data and says nothing about whether the weights make sense.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from localspec.errors import ModelError, ModelNotFoundError
from localspec.gguf_cursor import HINT, Cursor, show
from localspec.gguf_matrices import Matrices
from localspec.gguf_tensors import StoredTensor

Scalar = int | float | bool | str

SUPPORTED_VERSIONS = (2, 3)
MAX_DIMS = 4
MAX_TENSOR_NAME = 63  # bytes; ggml keeps 64 with the terminator
DEFAULT_ALIGNMENT = 32
INT64_MAX = 2**63 - 1

STRING, ARRAY = 8, 9
# GGUF value type -> struct format
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
SCALAR_SIZES = {kind: struct.calcsize("<" + fmt) for kind, fmt in SCALARS.items()}
UINT32 = 4
EMBEDDING, OUTPUT = b"token_embd.weight", b"output.weight"
# smallest possible encodings: used to refuse absurd counts before the first one is read
MIN_KV_BYTES = 8 + 1 + 4 + 1
MIN_TENSOR_BYTES = 8 + 4 + 4 + 8

# what people hand over by mistake: first bytes, what it is
LOOKALIKES = (
    (b"version https://git-lfs", "a git-lfs pointer, not the file itself"),
    (b"<", "a web page, not a model"),
    (b"tjgg", "an old GGML (GGJT) file"),
    (b"lmgg", "an old GGML file"),
    (b"fmgg", "an old GGML (GGMF) file"),
    (b"PK\x03\x04", "a zip or PyTorch file, not a GGUF"),
    (b"FUGG", "a GGUF with swapped bytes"),
)


@dataclass(frozen=True, slots=True)
class GgufInfo:
    """What the header of a checked file says. Sizes in bytes; a value that the file does not give is None.

    `metadata` has the scalar and string values of the file by key; arrays are left out.
    """

    path: Path
    size: int
    version: int
    arch: str
    name: str | None
    #: such as "Q4_K_M"
    file_type: str | None
    n_tensors: int
    n_kv: int
    #: elements of all tensors together
    n_params: int
    n_ctx_train: int | None
    n_layers: int | None
    n_embd: int | None
    n_vocab: int | None
    metadata: Mapping[str, Scalar]
    matrices: Matrices
    tensors: Mapping[str, StoredTensor]


def check_gguf(path: str | Path) -> GgufInfo:
    """Check the whole header of `path` against the size of the file and return what it says.

    Raises `ModelNotFoundError` when there is no such file and `ModelError` for anything that is not a sound
    little-endian GGUF of version 2 or 3.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise ModelError(f"{path} is a directory, not a GGUF file", "give the .gguf file inside it")
        if size == 0:
            raise ModelError(f"{path} is empty", HINT)
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Header(path, data).parse()
    except FileNotFoundError:
        raise ModelNotFoundError(f"{path} does not exist", "`localspec models` lists what is here") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}", "check that it is a file that you may read") from error


@cache
def _type_sizes() -> dict[int, tuple[str, int, int]]:
    """ggml type -> (name, elements per block, bytes per block)."""
    from gguf.constants import GGML_QUANT_SIZES

    sizes = {int(kind): (kind.name, *block) for kind, block in GGML_QUANT_SIZES.items()}
    sizes.setdefault(42, ("Q2_0", 64, 18))  # known to llama.cpp before the gguf package
    return sizes


def file_type_name(value: Scalar | None) -> str | None:
    """The name of a file type, such as "Q4_K_M"; None for what is no number."""
    from gguf.constants import LlamaFileType

    if not isinstance(value, int):
        return None
    try:
        name = LlamaFileType(value & ~1024).name  # bit 1024: guessed, not stated
    except ValueError:
        return f"type {value}"
    return name.removeprefix("MOSTLY_").removeprefix("ALL_")


def _pad(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment


class _Header(Cursor):
    """The parts of a GGUF header in the order of the file; see the GGUF specification in ggml."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        super().__init__(path, data)
        self.scalars: dict[bytes, Scalar] = {}
        self.arrays: dict[bytes, int] = {}
        self.kinds: dict[bytes, int] = {}
        self.matrices = Matrices()
        self.tensors: dict[str, StoredTensor] = {}

    def parse(self) -> GgufInfo:
        version = self._magic_and_version()
        n_tensors = self.number("Q", "the header")
        n_kv = self.number("Q", "the header")
        self.plausible(n_kv, MIN_KV_BYTES, "metadata entries")
        self.plausible(n_tensors, MIN_TENSOR_BYTES, "tensors")
        for index in range(n_kv):
            self._key_value(index)
        n_params = self._tensors(n_tensors)
        arch = self._text(b"general.architecture")
        if not arch:
            self.fail("names no architecture, so it is not a model", "choose a model in GGUF format")
        prefix = arch.encode()
        n_vocab = self.arrays.get(b"tokenizer.ggml.tokens")
        return GgufInfo(
            path=self.path,
            size=self.size,
            version=version,
            arch=arch,
            name=self._text(b"general.name"),
            file_type=file_type_name(self.scalars.get(b"general.file_type")),
            n_tensors=n_tensors,
            n_kv=n_kv,
            n_params=n_params,
            n_ctx_train=self._int(prefix + b".context_length"),
            n_layers=self._int(prefix + b".block_count"),
            n_embd=self._int(prefix + b".embedding_length"),
            n_vocab=n_vocab if n_vocab is not None else self._int(prefix + b".vocab_size"),
            metadata={key.decode("utf-8", "replace"): value for key, value in self.scalars.items()},
            matrices=self.matrices,
            tensors=self.tensors,
        )

    def _magic_and_version(self) -> int:
        magic = self.data[:32]
        if magic[:4] != b"GGUF":
            for start, meaning in LOOKALIKES:
                if magic.startswith(start):
                    self.fail(f"this is {meaning}", "download the .gguf file of the model")
            self.fail(f"not a GGUF file (it starts with {show(magic[:4])})", "choose a model in GGUF format")
        self.pos = 4
        version = self.number("I", "the header")
        if version not in SUPPORTED_VERSIONS:
            if version & 0xFFFF == 0:
                self.fail("a big-endian GGUF, which this machine cannot run", "download the little-endian file")
            self.fail(f"GGUF version {version} is not supported (2 and 3 are)", "convert the model with a current tool")
        return version

    def _key_value(self, index: int) -> None:
        key = self.string(f"the key of metadata entry {index}")
        if not key:
            self.fail(f"metadata entry {index} has an empty key")
        if key in self.kinds:
            self.fail(f"metadata key {show(key)} appears twice")
        what = f"the value of {show(key)}"
        kind = self.kinds[key] = self.number("I", what)
        if kind == STRING:
            self.scalars[key] = self.string(what).decode("utf-8", "replace")
        elif kind == ARRAY:
            self._array(key, what)
        elif kind in SCALARS:
            start = self.take(SCALAR_SIZES[kind], what)
            self.scalars[key] = struct.unpack_from("<" + SCALARS[kind], self.data, start)[0]
        else:
            self.fail(f"{what} has the unknown type {kind}")

    def _array(self, key: bytes, what: str) -> None:
        kind = self.number("I", what)
        count = self.arrays[key] = self.number("Q", what)
        if kind in SCALAR_SIZES:
            self.take(count * SCALAR_SIZES[kind], what)
        elif kind == STRING:
            self.plausible(count, 8, f"strings in {what}")
            self.strings(count, what, unique=key == b"tokenizer.ggml.tokens")
        elif kind == ARRAY:
            self.fail(f"{what} is an array of arrays, which llama.cpp does not read")
        else:
            self.fail(f"{what} is an array of the unknown type {kind}")

    def _alignment(self) -> int:
        key = b"general.alignment"
        if key not in self.kinds:
            return DEFAULT_ALIGNMENT
        value = self.scalars.get(key)
        if self.kinds[key] != UINT32 or not isinstance(value, int):
            self.fail("general.alignment is not a 32-bit number")
        if value == 0 or value & (value - 1):
            self.fail(f"general.alignment is {value}, not a power of two")
        return value

    def _tensors(self, n_tensors: int) -> int:
        """Check the tensor table and the room for its data; returns the number of elements of all tensors."""
        alignment = self._alignment()
        names: set[bytes] = set()
        n_params = 0
        embedding: tuple[Sequence[int], str, int, int] | None = None
        end = expected = 0  # in bytes, from the start of the data section
        for index in range(n_tensors):
            name, shape, kind, offset = self._tensor(index)
            elements = math.prod(shape)
            type_name, block, block_bytes = _type_sizes()[kind]
            n_bytes = elements // block * block_bytes
            if name in names:
                self.fail(f"tensor {show(name)} appears twice")
            names.add(name)
            if offset != expected:
                self.fail(f"tensor {show(name)} is at offset {offset} of the data, expected {expected}")
            n_params += elements
            if name == EMBEDDING:
                embedding = (shape, type_name, elements, n_bytes)
            elif name.endswith(b".weight") and len(shape) > 1:
                self.matrices.add(shape, type_name, elements, n_bytes)
            end = offset + n_bytes
            at = range(offset, end)
            self.tensors[name.decode("utf-8", "replace")] = StoredTensor(kind, type_name, tuple(shape), at)
            expected = _pad(end, alignment)
        start = _pad(self.pos, alignment)
        if n_tensors and max(start, start + end) > self.size:
            self.fail(f"truncated: {self.size} of {start + end} bytes, {start + end - self.size} are missing")
        self.tensors = {name: tensor.moved(start) for name, tensor in self.tensors.items()}
        if embedding is not None and OUTPUT not in names:
            self.matrices.add(*embedding)  # it serves as the output layer as well
        return n_params

    def _tensor(self, index: int) -> tuple[bytes, list[int], int, int]:
        """Name, shape, type and offset (in bytes) of the next tensor of the table."""
        name = self.string(f"the name of tensor {index}")
        if len(name) > MAX_TENSOR_NAME:
            self.fail(f"the name of tensor {index} has {len(name)} bytes, more than {MAX_TENSOR_NAME}")
        what = f"tensor {show(name)}"
        n_dims = self.number("I", what)
        if n_dims > MAX_DIMS:
            self.fail(f"{what} has {n_dims} dimensions, more than {MAX_DIMS}")
        shape = [self.number("Q", what) for _ in range(n_dims)]
        elements = math.prod(shape)
        # zero-sized dimensions must not hide an absurd one
        if max(shape, default=1) > INT64_MAX or elements > INT64_MAX:
            self.fail(f"{what} has the impossible shape {shape}")
        kind = self.number("I", what)
        if kind not in _type_sizes():
            self.fail(f"{what} has the unknown type {kind}", "use a model made for this version of llama.cpp")
        type_name, block, _ = _type_sizes()[kind]
        row = shape[0] if shape else 1
        if row % block:
            self.fail(f"{what} ({type_name}) has rows of {row} elements, not a multiple of {block}")
        return name, shape, kind, self.number("Q", what)

    def _text(self, key: bytes) -> str | None:
        value = self.scalars.get(key)
        return value if isinstance(value, str) else None

    def _int(self, key: bytes) -> int | None:
        value = self.scalars.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None
