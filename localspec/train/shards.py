"""Training data on disk: shards of answers, each a folder that appears in one step and is checked when it is read.

A shard holds the arrays below as .npy files. A position is an answered token: its row has the token, and the hidden
state that it was drawn from. A shard that was cut or never finished counts as missing, and is made again.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from localspec.engine.base import FloatArray, IntArray
from localspec.errors import UsageError

HalfArray = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Shard:
    """Answers, one after the other, `n` tokens in all.

    `hidden` float16 [n, n_embd]: the state after the final norm that the token was drawn from. `tokens` int32 [n].
    `best_ids` int32 and `best_logits` float32 [n]: the model's best candidate there. `lengths` int32 [n_answers].
    `prompts` int32 [n_answers]: the number of the prompt of each answer.
    """

    hidden: HalfArray
    tokens: IntArray
    best_ids: IntArray
    best_logits: FloatArray
    lengths: IntArray
    prompts: IntArray

    def is_sound(self, n_embd: int) -> bool:
        """Whether the parts fit together, for hidden states of this width."""
        n = len(self.tokens)
        kinds = {"hidden": np.float16, "best_logits": np.float32}
        return (
            all(getattr(self, field.name).dtype == kinds.get(field.name, np.int32) for field in fields(self))
            and self.hidden.shape == (n, n_embd)
            and self.best_ids.shape == self.best_logits.shape == (n,)
            and self.lengths.shape == self.prompts.shape == (len(self.lengths),)
            and int(self.lengths.sum()) == n
        )


def bytes_per_token(n_embd: int) -> int:
    """Disk that one position takes."""
    return 2 * n_embd + 12


class ShardFolder:
    """The shards in a folder, numbered from 0. `n_embd` is the width of hidden states."""

    def __init__(self, folder: Path, n_embd: int) -> None:
        self._folder = folder
        self._n_embd = n_embd

    def _path(self, number: int) -> Path:
        return self._folder / f"shard-{number:05d}"

    def read(self, number: int) -> Shard | None:
        """A shard, with hidden states that are read from disk when they are used; None if it is not there, whole."""
        path = self._path(number)
        try:
            parts = {
                field.name: np.load(path / f"{field.name}.npy", mmap_mode="r" if field.name == "hidden" else None)
                for field in fields(Shard)
            }
        except (OSError, ValueError, EOFError):  # ValueError: the file is shorter than its header says
            return None
        shard = Shard(**parts)
        return shard if shard.is_sound(self._n_embd) else None

    def write(self, number: int, shard: Shard) -> None:
        """Put a shard in its place: a reader sees all of it or nothing, whenever this is interrupted.

        Raises `UsageError` when the disk does not take it.
        """
        try:
            self._write(number, shard)
        except OSError as error:
            raise UsageError(
                f"training data cannot be written to {self._folder}: {error.strerror}",
                "make room on the disk; the same command goes on from there",
            ) from error

    def _write(self, number: int, shard: Shard) -> None:
        temporary = self._folder / f".shard-{number:05d}.part"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for field in fields(Shard):
            with (temporary / f"{field.name}.npy").open("wb") as file:
                np.save(file, getattr(shard, field.name))
                file.flush()
                os.fsync(file.fileno())
        shutil.rmtree(self._path(number), ignore_errors=True)
        temporary.rename(self._path(number))
