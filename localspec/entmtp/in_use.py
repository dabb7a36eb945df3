"""The heads of a session as a calibration needs them, and the bank that was calibrated for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from localspec import machine
from localspec.entmtp.bank_file import BankKey, Names, find_bank
from localspec.entmtp.prompts import AUTO
from localspec.errors import UsageError
from localspec.fingerprint import file_fingerprint
from localspec.heads.choose import HYDRA_KIND, MEDUSA_KIND
from localspec.heads.embeddings import InputEmbeddings
from localspec.heads.file import read_heads
from localspec.heads.reference import ReferenceHeads
from localspec.heads.spec import HYDRA_PREFIX
from localspec.methods.head_methods import PolicyBank
from localspec.methods.heads import Evaluator

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
        path, names = _file(session)
        kit = session.materials.heads
        evaluator = kit.hydra or kit.medusa
        assert evaluator is not None, "there is a file"
        reference = evaluator
        if not isinstance(reference, ReferenceHeads):
            reference = ReferenceHeads(read_heads(path), InputEmbeddings(session.model.path))
        return cls(evaluator, reference, file_fingerprint(path), names)

    def key(self, session: Session, task: str) -> BankKey:
        """What a bank of these heads belongs to."""
        return BankKey(task, self.fingerprint, session.curve_key)


def _file(session: Session) -> tuple[Path, Names]:
    files = session.materials.head_files
    path = files.get(HYDRA_KIND) or files.get(MEDUSA_KIND)
    if path is None:
        raise UsageError(
            f"there are no draft heads for {session.name}",
            "give some with --heads FILE, or make them: `localspec train-heads --help`",
        )
    return path, Names(session.name, path.name, machine.library().build)


def calibrated_bank(session: Session, task: str) -> PolicyBank:
    """The trees and policies that were calibrated for the heads of a session and a task; those for `AUTO` where the
    task has none.

    Raises `UsageError` when there are neither, which tells why if some were made for another set-up.
    """
    path, names = _file(session)
    fingerprint, setup = file_fingerprint(path), session.curve_key
    missing: UsageError | None = None
    for name in (task, AUTO):
        try:
            stored = find_bank(BankKey(name, fingerprint, setup), names)
        except UsageError as error:
            missing = missing or error
        else:
            return PolicyBank(stored.bank.trees, {name: fitted.policy for name, fitted in stored.policies.items()})
    assert missing is not None, "two tries that came to nothing have a reason"
    raise missing
