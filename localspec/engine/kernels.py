"""The CPU kernels of the patched library whose result for a token does not depend on the tokens beside it.

With them the text does not depend on speculation, and checking a few tokens costs little more than one. Weights of
other types, and other libraries, take llama.cpp's own kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from localspec.engine import bindings
from localspec.gguf_matrices import Matrices


@dataclass(frozen=True, slots=True)
class Peaks:
    """What a machine could do at best: bytes read from memory and products of 8-bit integers, both a second."""

    read_bytes: float
    products: float

    def step_seconds(self, n_tokens: int, n_elements: int, n_bytes: int) -> float:
        """The least time of a step over matrices of so many elements and bytes: the roofline."""
        return max(n_bytes / self.read_bytes, n_tokens * n_elements / self.products)


def enabled() -> bool:
    """Whether the kernels are there and in use."""
    lib = bindings.library()
    return lib is not None and bool(lib.llama_row_kernels_enabled())


@contextmanager
def disabled() -> Iterator[None]:
    """Within: models are loaded and evaluated with llama.cpp's own kernels, in the whole process.

    A model belongs to the setting it was loaded under: use it only there.
    """
    lib = bindings.library()
    if lib is None or not lib.llama_row_kernels_enabled():
        yield
        return
    lib.llama_row_kernels_set_enabled(False)
    try:
        yield
    finally:
        lib.llama_row_kernels_set_enabled(True)


@cache
def covered_types() -> frozenset[str]:
    """Names of the weight types that the kernels cover in this build, such as "Q4_K"; empty when there are none."""
    from gguf import GGMLQuantizationType

    lib = bindings.library()
    if lib is None or not lib.llama_row_kernels_supports_attention():
        return frozenset()
    return frozenset(kind.name for kind in GGMLQuantizationType if lib.llama_row_kernels_supports_type(int(kind)))


def uncovered(matrices: Matrices) -> list[str]:
    """What of a model's matrices the kernels do not cover, for people; empty when they cover all.

    There a step over several tokens is not faster than llama.cpp's, and text may differ from plain decoding's at a
    near-tie.
    """
    covered = covered_types()
    missing = [f"{count} {kind}" for kind, count in matrices.types.items() if kind not in covered]
    return missing + [f"{count} {kind} of experts" for kind, count in matrices.experts.items()]


def peaks(n_threads: int) -> Peaks | None:
    """Measure the peaks with so many threads (about a second); None where that is not possible."""
    lib = bindings.library()
    read_bytes, products = ctypes.c_double(), ctypes.c_double()
    if lib is None or not lib.llama_cpu_peaks(n_threads, ctypes.byref(read_bytes), ctypes.byref(products)):
        return None
    return Peaks(read_bytes.value, products.value)
