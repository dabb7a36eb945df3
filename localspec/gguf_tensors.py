"""A tensor in a GGUF file: its type, its shape, and where its bytes lie."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """`kind` is the number of its ggml type and `kind_name` what people call it. `shape` is in ggml's order, the length
    of a row first; `at` are its bytes in the file."""

    kind: int
    kind_name: str
    shape: tuple[int, ...]
    at: range

    def moved(self, n_bytes: int) -> StoredTensor:
        """The same tensor, so many bytes further on."""
        return StoredTensor(
            self.kind, self.kind_name, self.shape, range(self.at.start + n_bytes, self.at.stop + n_bytes)
        )
