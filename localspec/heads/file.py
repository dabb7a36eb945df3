"""Draft heads as GGUF: `general.architecture` = "hydra", facts below `hydra.`, tensors named by `tensor_shapes`.

Matrices have the type that the writer was asked for (F16 where their rows are no multiple of a block of 32); biases and
norms are F32, `d2t` is I32. Strings that are empty are left out.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType

from localspec.errors import ModelError, ModelNotFoundError, UsageError
from localspec.gguf_check import Scalar, check_gguf
from localspec.heads.spec import FloatArray, HeadSpec, IntArray, PrefixSpec, tensor_shapes
from localspec.heads.tensors import HINT, Heads, blamed_on, check_d2t, check_shapes, checked_values

ARCH = "hydra"
FORMAT_VERSION = 1
D2T = "d2t"
#: name on the command line -> type of matrices, type of the file
WEIGHT_TYPES: dict[str, tuple[Any, Any]] = {
    "f32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "q4_0": (GGMLQuantizationType.Q4_0, LlamaFileType.MOSTLY_Q4_0),
    "q4_q8": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}
#: types whose first blocks are of another one: these are half of the weights and more, and rounding them costs least
FIRST_BLOCKS: dict[str, Any] = {"q4_q8": GGMLQuantizationType.Q4_0}
DEFAULT_TYPE = "q8_0"

# field of the spec -> key below "hydra.", as llama.cpp names such keys where it has them
_SIZES = {
    "n_heads": "head_count",
    "n_layers": "block_count",
    "n_embd": "embedding_length",
    "n_vocab": "vocab_size",
    "n_draft_vocab": "draft_vocab_size",
}
#: left out where it is 0, as in files from before it
_OPTIONAL_SIZES = {"n_later_vocab": "later_vocab_size"}
_FLAGS = {
    "grounded": "grounded",
    "tied_blocks": "tied_blocks",
    "shared_output": "shared_output",
    "output_bias": "output_bias",
}
_TEXTS = {"base_name": "base.name", "base_fingerprint": "base.fingerprint", "recipe": "recipe"}
_PREFIX_SIZES = {
    "n_head": "attention.head_count",
    "n_head_kv": "attention.head_count_kv",
    "d_head": "attention.key_length",
    "n_ff": "feed_forward_length",
    "n_rope": "rope.dimension_count",
}
_PREFIX_NUMBERS = {"rms_eps": "attention.layer_norm_rms_epsilon", "rope_theta": "rope.freq_base"}

T = TypeVar("T", bool, int, float, str)


def check_weight_type(weight_type: str) -> None:
    """Refuse a type that heads cannot be written in. Raises `UsageError`."""
    if weight_type not in WEIGHT_TYPES:
        raise UsageError(f"the weight type {weight_type!r} is not known", f"known are {', '.join(WEIGHT_TYPES)}")


def write_heads(path: str | Path, heads: Heads, weight_type: str = DEFAULT_TYPE) -> None:
    """Write `heads` to `path`, in one step: a reader sees the old file or the whole new one.

    Raises `UsageError` for an unknown type or a place that cannot be written, and `ModelError` for heads whose tensors
    do not fit their spec.
    """
    path = Path(path)
    check_weight_type(weight_type)
    if path.is_dir():
        raise UsageError(f"{path} is a directory", "name the file to write in it")
    # it stands beside the target: os.replace is atomic within one file system only
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        _write(temporary, heads, weight_type, f"the heads for {path.name}")
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}", "choose another place") from error
    finally:
        temporary.unlink(missing_ok=True)


def _write(path: Path, heads: Heads, weight_type: str, what: str) -> None:
    spec = heads.spec
    matrix_type, file_type = WEIGHT_TYPES[weight_type]
    first_type = FIRST_BLOCKS.get(weight_type, matrix_type)
    check_d2t(spec, heads.d2t, what)
    # made before the file is begun, so that heads that do not fit leave nothing behind
    writer = GGUFWriter(path, ARCH)
    _add_facts(writer, spec)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(file_type)
    if heads.d2t is not None:
        writer.add_tensor(D2T, heads.d2t.astype(np.int32), raw_dtype=GGMLQuantizationType.I32)
    # a tensor is asked for once, as the mapping may load it each time
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(heads.tensors, ())
    for name in tensor_shapes(spec):
        if name not in shapes:
            continue
        values = checked_values(name, np.ascontiguousarray(heads.tensors[name], dtype=np.float32), what)
        shapes[name] = values.shape
        kind = _type_of(values, first_type if spec.grounded and ".blk.0." in name else matrix_type)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    check_shapes(spec, shapes, what)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _type_of(values: FloatArray, matrix_type: Any) -> Any:
    if values.ndim < 2 or matrix_type == GGMLQuantizationType.F32:
        return GGMLQuantizationType.F32
    block, _ = gguf.GGML_QUANT_SIZES[matrix_type]
    return GGMLQuantizationType.F16 if values.shape[-1] % block else matrix_type


def _add_facts(writer: GGUFWriter, spec: HeadSpec) -> None:
    writer.add_name(f"{spec.arch} heads" + (f" for {spec.base_name}" if spec.base_name else ""))
    if spec.licence:
        writer.add_license(spec.licence)
    writer.add_uint32(f"{ARCH}.format_version", FORMAT_VERSION)
    writer.add_string(f"{ARCH}.head_arch", spec.arch)
    for field, key in _SIZES.items():
        writer.add_uint32(f"{ARCH}.{key}", getattr(spec, field))
    for field, key in _OPTIONAL_SIZES.items():
        if getattr(spec, field):
            writer.add_uint32(f"{ARCH}.{key}", getattr(spec, field))
    for field, key in _FLAGS.items():
        writer.add_bool(f"{ARCH}.{key}", getattr(spec, field))
    for field, key in _TEXTS.items():
        if getattr(spec, field):
            writer.add_string(f"{ARCH}.{key}", getattr(spec, field))
    if spec.prefix is not None:
        for field, key in _PREFIX_SIZES.items():
            writer.add_uint32(f"{ARCH}.{key}", getattr(spec.prefix, field))
        for field, key in _PREFIX_NUMBERS.items():
            writer.add_float32(f"{ARCH}.{key}", getattr(spec.prefix, field))


def read_spec(path: str | Path) -> HeadSpec:
    """What the header of a file of heads says; no weights are read.

    Raises `ModelNotFoundError` for no such file, and `ModelError` for one that is damaged or not of heads.
    """
    try:
        info = check_gguf(path)
    except ModelNotFoundError as error:  # its hint is about models
        hint = "`localspec train-heads` and `localspec convert-heads` make such files"
        raise ModelNotFoundError(error.message, hint) from None
    if info.arch != ARCH:
        raise ModelError(
            f"{path} holds no draft heads: its architecture is {info.arch!r}, not {ARCH!r}",
            "give a file that `localspec convert-heads` wrote",
        )
    version = _fact(info.metadata, "format_version", int, path)
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{path} has version {version} of the format of heads, this localspec reads {FORMAT_VERSION}",
            "update localspec, or convert the heads again",
        )
    with blamed_on(path):
        return _spec(info.metadata, path)


def _spec(metadata: Mapping[str, Scalar], path: str | Path) -> HeadSpec:
    arch = _fact(metadata, "head_arch", str, path)
    values: dict[str, Any] = {field: _fact(metadata, key, int, path) for field, key in _SIZES.items()}
    values |= {field: _fact(metadata, key, int, path, 0) for field, key in _OPTIONAL_SIZES.items()}
    values |= {field: _fact(metadata, key, bool, path) for field, key in _FLAGS.items()}
    values |= {field: _fact(metadata, key, str, path, "") for field, key in _TEXTS.items()}
    prefix = None
    if f"{ARCH}.{_PREFIX_SIZES['n_head']}" in metadata:
        parts: dict[str, Any] = {field: _fact(metadata, key, int, path) for field, key in _PREFIX_SIZES.items()}
        parts |= {field: _fact(metadata, key, float, path) for field, key in _PREFIX_NUMBERS.items()}
        prefix = PrefixSpec(**parts)
    licence = metadata.get("general.license", "")
    return HeadSpec(arch=arch, prefix=prefix, licence=str(licence), **values)


def _fact(metadata: Mapping[str, Scalar], key: str, kind: type[T], path: str | Path, default: T | None = None) -> T:
    """A value of the header. Raises `ModelError` when it is missing or of another type."""
    value = metadata.get(f"{ARCH}.{key}", default)
    if value is None:
        raise ModelError(f"{path} does not say {ARCH}.{key}", HINT)
    if type(value) is not kind:
        raise ModelError(f"{path}: {ARCH}.{key} is {value!r}, not of the type {kind.__name__}", HINT)
    return value


def read_heads(path: str | Path) -> Heads:
    """Read and check a whole file of heads; weights become float32, whatever their type.

    Raises `ModelNotFoundError` for no such file, and `ModelError` for one that is damaged or not of heads.
    """
    spec = read_spec(path)
    try:
        stored = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    except (ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read: {error}", HINT) from error
    d2t = _d2t(stored.pop(D2T, None), path)
    check_d2t(spec, d2t, str(path))
    # ggml counts the elements of a row first, NumPy last
    shapes = {name: tuple(int(n) for n in reversed(tensor.shape)) for name, tensor in stored.items()}
    check_shapes(spec, shapes, str(path))
    return Heads(spec, {name: _weights(stored[name], path) for name in shapes}, d2t)


def _weights(tensor: Any, path: str | Path) -> FloatArray:
    kinds = (GGMLQuantizationType.BF16, *(kind for kind, _ in WEIGHT_TYPES.values()))
    if tensor.tensor_type not in kinds:
        raise ModelError(
            f"{path}: the tensor {tensor.name} has the type {tensor.tensor_type.name}, which heads do not have",
            f"convert the heads again, with --type {', '.join(WEIGHT_TYPES)}",
        )
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    # copied, as float32 data would be a view that keeps the file mapped
    return checked_values(tensor.name, np.array(values, dtype=np.float32), str(path))


def _d2t(tensor: Any, path: str | Path) -> IntArray | None:
    if tensor is None:
        return None
    if tensor.tensor_type != GGMLQuantizationType.I32:
        raise ModelError(f"{path}: d2t has the type {tensor.tensor_type.name}, not I32", HINT)
    return np.array(tensor.data, dtype=np.int32)
