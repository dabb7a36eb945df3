"""Ownership of llama.cpp's samplers, which are plain pointers."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from llama_cpp import llama_cpp as L


class NativeSampler:
    """Owns the native sampler at `pointer`: freed with the last reference to this object, or by `close`."""

    __slots__ = ("__weakref__", "_free", "pointer")

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        self._free = weakref.finalize(self, L.llama_sampler_free, pointer)

    @classmethod
    def chain(cls, samplers: Sequence[Any]) -> NativeSampler:
        """A chain that owns the samplers at these pointers."""
        made = L.llama_sampler_chain_init(L.llama_sampler_chain_default_params())
        for sampler in samplers:
            L.llama_sampler_chain_add(made, sampler)
        return cls(made)

    def last(self) -> Any:
        """The pointer of the last sampler of this chain, which the chain goes on owning."""
        return L.llama_sampler_chain_get(self.pointer, L.llama_sampler_chain_n(self.pointer) - 1)

    def clone(self) -> NativeSampler:
        """A copy of its own, with the same history and random state."""
        return NativeSampler(L.llama_sampler_clone(self.pointer))

    def close(self) -> None:
        """Free it now. Idempotent."""
        self._free()
