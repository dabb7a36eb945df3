"""Heads as a calibration needs them: to draft with, and to look up ranks with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localspec.errors import UsageError
from localspec.fingerprint import file_fingerprint
from localspec.heads.file import read_heads
from localspec.heads.reference import ReferenceHeads
from localspec.heads.spec import HYDRA_PREFIX, BaseFacts, check_base
from localspec.methods.heads import Evaluator
from localspec.session import Session
from localspec.train.base import BaseMatrices


@dataclass(frozen=True)
class HeadsInUse:
    """Heads that a session drafts with. `evaluator` does; `reference` are the same with NumPy, which look up ranks.
    `fingerprint` is that of their file.

    Raises `UsageError` for heads with a prefix layer.
    """

    evaluator: Evaluator
    reference: ReferenceHeads
    fingerprint: str

    def __post_init__(self) -> None:
        if self.reference.spec.arch == HYDRA_PREFIX:
            raise UsageError(
                "heads with a prefix layer cannot be calibrated: the ranks would need its output at every position",
                "use heads without one",
            )

    @classmethod
    def load(cls, session: Session, path: Path, evaluator: Evaluator | None = None) -> HeadsInUse:
        """The heads in `path` for the model of `session`; without an `evaluator` they draft with NumPy.

        Raises `ModelNotFoundError` for no such file, and `ModelError` for one that is damaged, or made for another
        model.
        """
        model = session.model
        heads = read_heads(path)
        check_base(heads.spec, BaseFacts(session.name, model.n_embd, model.n_vocab, model.fingerprint))
        reference = ReferenceHeads(heads, BaseMatrices(model.path).embeddings)
        return cls(evaluator or reference, reference, file_fingerprint(path))
