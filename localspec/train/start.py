"""Heads to go on from: what an earlier training made, trained further on other data."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from localspec.engine.base import IntArray
from localspec.errors import UsageError
from localspec.heads.file import read_heads
from localspec.heads.spec import HeadSpec
from localspec.heads.tensors import Heads
from localspec.train.dataset import rows_of
from localspec.train.module import HeadsModule

#: option of `train-heads` for what has to be as it was
_SAME = {"arch": "--arch", "n_layers": "--blocks"}
#: and for what may have grown
_AT_LEAST = {"n_heads": "--heads", "n_draft_vocab": "--vocab"}


class Start:
    """The heads in the file `path`. `digest` is 16 hex digits of its content, `vocabulary` the tokens that they draft.

    Raises `ModelError` for a file that is no heads, and `UsageError` for heads that `train-heads` does not make.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._heads: Heads = read_heads(path)
        if self._heads.d2t is None or not self._heads.spec.shared_output or self._heads.spec.tied_blocks:
            raise UsageError(
                f"{path} holds heads of another make, which cannot be trained further",
                "give heads that `localspec train-heads` wrote",
            )
        self.vocabulary: IntArray = self._heads.d2t
        self.recipe = self._heads.spec.recipe
        self.digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]

    def check(self, wanted: HeadSpec) -> None:
        """Refuse heads of other sizes, or for another model; more heads and tokens than these may be wanted. Raises
        `UsageError` that names the first difference."""
        spec = self._heads.spec
        for name, option in _SAME.items():
            was, asked = getattr(spec, name), getattr(wanted, name)
            if was != asked:
                raise UsageError(f"{self._path} has another {option}: {was}, not {asked}", f"give {option} {was}")
        for name, option in _AT_LEAST.items():
            was, asked = getattr(spec, name), getattr(wanted, name)
            if was > asked:
                raise UsageError(
                    f"{self._path} has a larger {option}: {was}, not {asked}", f"give {option} {was} or more"
                )
        of_model = replace(
            spec, n_heads=wanted.n_heads, n_draft_vocab=wanted.n_draft_vocab, n_later_vocab=wanted.n_later_vocab,
            recipe=wanted.recipe, licence=wanted.licence, base_name=wanted.base_name,
        )  # fmt: skip
        if of_model != wanted:
            raise UsageError(
                f"{self._path} was trained for another model, {spec.base_name or 'of no name'}",
                f"give heads for {wanted.base_name}",
            )

    def apply(self, module: HeadsModule, d2t: IntArray) -> None:
        """Put the weights into `module`, which drafts the tokens `d2t`: all of `vocabulary`, and perhaps others, and
        perhaps further ahead."""
        module.go_on_from(self._heads, rows_of(self.vocabulary, d2t))
