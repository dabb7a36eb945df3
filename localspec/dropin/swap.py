"""Put `localspec.Llama` in the place of `llama_cpp.Llama`, for libraries that import the latter by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_original: Any = None


def install() -> None:
    """Have `from llama_cpp import Llama` mean `localspec.Llama` in this process. Idempotent.

    To be called before the libraries that use it are imported, as llama-index does so only once. All other names of
    llama_cpp stay what they are.
    """
    import llama_cpp

    from localspec.dropin.llama import Llama

    global _original
    if _original is None:
        _original = llama_cpp.Llama
    llama_cpp.Llama = llama_cpp.llama.Llama = Llama


def uninstall() -> None:
    """Undo `install`, for whoever imports `Llama` from now on. Idempotent."""
    import llama_cpp

    global _original
    if _original is not None:
        llama_cpp.Llama = llama_cpp.llama.Llama = _original
        _original = None


@contextmanager
def installed() -> Iterator[None]:
    """`install` for the length of a block."""
    install()
    try:
        yield
    finally:
        uninstall()
