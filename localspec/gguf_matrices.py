"""What the weights of a model cost a step: their types, elements and bytes, counted from the header of its file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Matrices:
    """The weight matrices that a step multiplies with (an embedding that is only looked up is not among them).

    `types` counts them by type; those of experts, of which a step uses a part, are in `experts` instead and add nothing
    to the elements and bytes.
    """

    types: Counter[str] = field(default_factory=Counter)
    experts: Counter[str] = field(default_factory=Counter)
    n_elements: int = 0
    n_bytes: int = 0

    def add(self, shape: Sequence[int], type_name: str, n_elements: int, n_bytes: int) -> None:
        if len(shape) > 2:
            self.experts[type_name] += 1
            return
        self.types[type_name] += 1
        self.n_elements += n_elements
        self.n_bytes += n_bytes
