"""What the methods of a session are made of: the corpus and pool of ptd, draft heads and their bank, a draft model.

Each is made when a method first needs it, and kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from localspec.engine.base import TreeContext
from localspec.engine.heads import make_heads
from localspec.engine.model import Model
from localspec.heads.choose import HYDRA_KIND, MEDUSA_KIND
from localspec.loading import SecondModel
from localspec.methods.draft.drafter import DraftModel
from localspec.methods.head_methods import HeadKit
from localspec.methods.heads import Evaluator
from localspec.methods.ptd.corpus import corpus_text
from localspec.methods.ptd.native import Corpus, Pool, new_corpus, new_pool


class Materials:
    """Of `model` and its context `ctx`. With `pool` what was learned may outlive a text. `head_files` are those of
    draft heads, by kind (see `choose_heads`).
    """

    def __init__(
        self,
        model: Model,
        ctx: TreeContext,
        *,
        pool: bool = True,
        head_files: Mapping[str, Path] | None = None,
        draft: SecondModel | None = None,
    ) -> None:
        self._model = model
        self._ctx = ctx
        self._keep_pool = pool
        self.head_files = dict(head_files or {})
        self._second = draft

    @cached_property
    def corpus(self) -> Corpus:
        """How language usually goes on, in this model's tokens."""
        return new_corpus(self._model.tokenize(corpus_text()))

    @cached_property
    def pool(self) -> Pool | None:
        """What answers taught the drafter for later ones; None when nothing may outlive its text."""
        return new_pool(corpus=self.corpus) if self._keep_pool else None

    @cached_property
    def draft(self) -> DraftModel | None:
        """The draft model as its drafters see it; None without one."""
        return None if self._second is None else self._second.for_drafter(self._model.eog)

    def clear_pool(self) -> None:
        """Forget what answers taught the drafter."""
        if self.pool is not None:
            self.pool.clear()

    @cached_property
    def heads(self) -> HeadKit:
        """What methods on heads need. Raises `ModelError` for a damaged file."""
        return HeadKit(self._evaluator(HYDRA_KIND), self._evaluator(MEDUSA_KIND))

    def _evaluator(self, kind: str) -> Evaluator | None:
        path = self.head_files.get(kind)
        return None if path is None else make_heads(self._model, self._ctx, path)
