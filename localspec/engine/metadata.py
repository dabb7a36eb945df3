"""What the native library tells of a model in text."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from llama_cpp import llama_cpp as L


def native_string(read: Callable[[Any, int], int]) -> str:
    """Call an snprintf-like function until its text fits."""
    size = 256
    while True:
        buffer = ctypes.create_string_buffer(size)
        n = read(buffer, size)
        if n < size:
            return buffer.value.decode("utf-8", "replace") if n >= 0 else ""
        size = n + 1


def metadata_of(handle: Any) -> dict[str, str]:
    """The scalar and text values of a model's file, as text, by key."""

    def entry(i: int) -> tuple[str, str]:
        key = native_string(lambda buffer, size: L.llama_model_meta_key_by_index(handle, i, buffer, size))
        return key, native_string(lambda buffer, size: L.llama_model_meta_val_str_by_index(handle, i, buffer, size))

    return dict(entry(i) for i in range(L.llama_model_meta_count(handle)))
