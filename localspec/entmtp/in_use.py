"""The heads of a session as a calibration needs them, and the bank that was calibrated for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from localspec import machine
from localspec.entmtp.bank_file import BankKey, Names, find_bank, stored_banks
from localspec.entmtp.fitting import expected_of_policy
from localspec.entmtp.prompts import AUTO
from localspec.errors import UsageError
from localspec.fingerprint import file_fingerprint
from localspec.heads.choose import HYDRA_KIND
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
    def of(cls, session: Session, kinds: Sequence[str] = (HYDRA_KIND,)) -> HeadsInUse:
        """The heads of a session: of the first of `kinds` that it has.

        Raises `UsageError` when it has none, and `ModelError` for a damaged file.
        """
        kind, path, names = _file(session, kinds)
        kit = session.materials.heads
        evaluator = kit.hydra if kind == HYDRA_KIND else kit.medusa
        assert evaluator is not None, "there is a file"
        reference = evaluator
        if not isinstance(reference, ReferenceHeads):
            reference = ReferenceHeads(read_heads(path), InputEmbeddings(session.model.path))
        return cls(evaluator, reference, file_fingerprint(path), names)

    def key(self, session: Session, task: str) -> BankKey:
        """What a bank of these heads belongs to."""
        return BankKey(task, self.fingerprint, session.curve_key)


def _file(session: Session, kinds: Sequence[str] = (HYDRA_KIND,)) -> tuple[str, Path, Names]:
    files = session.materials.head_files
    kind = next((kind for kind in kinds if kind in files), None)
    if kind is None:
        raise UsageError(
            f"there are no {' or '.join(kinds).capitalize()} heads for {session.name}",
            "give some with --heads FILE, or make them: `localspec train-heads --help`",
        )
    path = files[kind]
    return kind, path, Names(session.name, path.name, machine.library().build)


def require_bank(session: Session, task: str) -> None:
    """Raise `UsageError`, which tells what there is, unless the heads of a session have a bank for just this task."""
    _, path, names = _file(session)
    fingerprint, setup = file_fingerprint(path), session.curve_key
    try:
        find_bank(BankKey(task, fingerprint, setup), names)
    except UsageError as error:
        keys = [stored.key for stored in stored_banks()]
        tasks = [key.task for key in keys if (key.heads, key.setup) == (fingerprint, setup)]
        if tasks:
            error.hint = f"--bank {', '.join(sorted(tasks))} can be had here; or make it: {names.command(task)}"
        raise


def calibrated_bank(session: Session, task: str) -> PolicyBank:
    """The trees and policies that were calibrated for the heads of a session and a task; those for `AUTO` where the
    task has none.

    Raises `UsageError` when there are neither, which tells why if some were made for another set-up.
    """
    _, path, names = _file(session)
    fingerprint, setup = file_fingerprint(path), session.curve_key
    missing: UsageError | None = None
    for name in (task, AUTO):
        try:
            stored = find_bank(BankKey(name, fingerprint, setup), names)
        except UsageError as error:
            missing = missing or error
        else:
            return PolicyBank(
                stored.bank.trees,
                {kind: fitted.policy for kind, fitted in stored.policies.items()},
                {kind: fitted.accepted for kind, fitted in stored.policies.items()},
                {kind: expected_of_policy(stored, kind) for kind in stored.policies},
            )
    assert missing is not None, "two tries that came to nothing have a reason"
    raise missing
