"""Heads in memory: a spec with its weights, checked against each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localspec.errors import ModelError, UsageError
from localspec.heads.spec import FloatArray, HeadSpec, IntArray, Shape, tensor_shapes

HINT = "the file is damaged or of another kind: get it again, or convert it again with `localspec convert-heads`"


@dataclass(frozen=True)
class Heads:
    """Draft heads: float32 weights by name, see `tensor_shapes`. `d2t` holds the target token of each row of a trimmed
    vocabulary, shape [n_draft_vocab]; None for the full one.

    The mapping may load a tensor when it is asked for: ask once.
    """

    spec: HeadSpec
    tensors: Mapping[str, FloatArray]
    d2t: IntArray | None = None


class LazyTensors(Mapping[str, FloatArray]):
    """Tensors that are read when they are asked for, so that a file of gigabytes is converted one by one."""

    def __init__(self, loaders: Mapping[str, Callable[[], FloatArray]]) -> None:
        self._loaders = loaders

    def __getitem__(self, name: str) -> FloatArray:
        return self._loaders[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaders)

    def __len__(self) -> int:
        return len(self._loaders)


@contextmanager
def blamed_on(path: str | Path) -> Iterator[None]:
    """A `UsageError` raised inside, about values that stand in a file, becomes a `ModelError` that names the file."""
    try:
        yield
    except UsageError as error:
        raise ModelError(f"{path}: {error.message}", error.hint or HINT) from error


def check_shapes(spec: HeadSpec, shapes: Mapping[str, Shape], what: str) -> None:
    """Hold the shapes of all weights against the spec; `what` names the file. Raises `ModelError`."""
    expected = tensor_shapes(spec)
    for name, shape in expected.items():
        if name not in shapes:
            raise ModelError(f"{what} lacks the tensor {name}", HINT)
        if tuple(shapes[name]) != shape:
            raise ModelError(f"{what}: the tensor {name} has the shape {list(shapes[name])}, not {list(shape)}", HINT)
    for name in shapes:
        if name not in expected:
            raise ModelError(
                f"{what} holds the tensor {name}, which {spec.arch} heads of these sizes do not have", HINT
            )


def checked_values(name: str, values: FloatArray, what: str) -> FloatArray:
    """`values`, when all of them are finite. Raises `ModelError`."""
    if not np.isfinite(values).all():
        raise ModelError(f"{what}: the tensor {name} holds values that are not finite", HINT)
    return values


def check_d2t(spec: HeadSpec, d2t: IntArray | None, what: str) -> None:
    """Check the target tokens of a trimmed vocabulary. Raises `ModelError`."""
    if (d2t is None) != (spec.n_draft_vocab == 0):
        raise ModelError(
            f"{what} lacks the table d2t of its trimmed vocabulary"
            if d2t is None
            else f"{what} holds a table d2t, but its vocabulary is not trimmed",
            HINT,
        )
    if d2t is None:
        return
    if d2t.shape != (spec.n_draft_vocab,):
        raise ModelError(f"{what}: d2t has the shape {list(d2t.shape)}, not [{spec.n_draft_vocab}]", HINT)
    outside = np.flatnonzero((d2t < 0) | (d2t >= spec.n_vocab))
    if len(outside):
        row = int(outside[0])
        raise ModelError(f"{what}: d2t names the token {d2t[row]} in row {row}, outside 0 to {spec.n_vocab - 1}", HINT)
    tokens, counts = np.unique(d2t, return_counts=True)
    if counts.max() > 1:
        raise ModelError(f"{what}: d2t names the token {tokens[counts.argmax()]} more than once", HINT)
