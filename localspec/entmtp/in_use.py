"""The heads of a session as a calibration needs them, and the bank that was calibrated for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec import machine
from localspec.entmtp.bank_file import BankKey, Names, find_bank
from localspec.errors import UsageError
from localspec.fingerprint import file_fingerprint
from localspec.heads.choose import HYDRA_KIND, MEDUSA_KIND
from localspec.heads.file import read_heads
from localspec.heads.reference import ReferenceHeads
from localspec.heads.spec import HYDRA_PREFIX
from localspec.methods.head_methods import PolicyBank
from localspec.methods.heads import Evaluator
from localspec.train.base import BaseMatrices

if TYPE_CHECKING:
    from localspec.session import Session


@dataclass(frozen=True)
class HeadsInUse:
    """Heads that a session drafts with. `evaluator` does; `reference` are the same with NumPy, which look up ranks.
    `fingerprint` is that of their file, `names` what people call them and what they belong to.

    Raises `UsageError` for heads with a prefix layer.
    """

    evaluator: Evaluator
    reference: ReferenceHeads
    fingerprint: str
    names: Names

    def __post_init__(self) -> None:
        if self.reference.spec.arch == HYDRA_PREFIX:
            raise UsageError(
                "heads with a prefix layer cannot be calibrated: the ranks would need its output at every position",
                "use heads without one",
            )

    @classmethod
    def of(cls, session: Session) -> HeadsInUse:
        """The Hydra heads of a session, or its Medusa heads if it has no others.

        Raises `UsageError` when it has none, and `ModelError` for a damaged file.
        """
        files, kit = session.materials.head_files, session.materials.heads
        path = files.get(HYDRA_KIND) or files.get(MEDUSA_KIND)
        evaluator = kit.hydra or kit.medusa
        if path is None or evaluator is None:
            raise UsageError(
                f"there are no draft heads for {session.name}",
                "give some with --heads FILE, or make them: `localspec train-heads --help`",
            )
        reference = evaluator
        if not isinstance(reference, ReferenceHeads):
            reference = ReferenceHeads(read_heads(path), BaseMatrices(session.model.path).embeddings)
        names = Names(session.name, path.name, machine.library().build)
        return cls(evaluator, reference, file_fingerprint(path), names)

    def key(self, session: Session, task: str) -> BankKey:
        """What a bank of these heads belongs to."""
        return BankKey(task, self.fingerprint, session.curve_key)


def calibrated_bank(session: Session, task: str) -> PolicyBank:
    """The trees and policies that were calibrated for the heads of a session.

    Raises `UsageError` when there are none, which tells why if some were made for another set-up.
    """
    heads = HeadsInUse.of(session)
    stored = find_bank(heads.key(session, task), heads.names)
    return PolicyBank(stored.bank.trees, {name: fitted.policy for name, fitted in stored.policies.items()})
