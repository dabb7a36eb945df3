"""The models that could draft for a target: those on this machine, and those that models.txt pairs with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from localspec import hub
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.engine.weightless import open_weightless
from localspec.errors import LocalspecError, ModelNotFoundError
from localspec.fingerprint import file_fingerprint
from localspec.gguf_check import GgufInfo, check_gguf
from localspec.pairs.compare import Fit, fit_of
from localspec.pairs.memory import Need, judged_memory, refuse_oversized

#: works; works, but hardly pays or drafts worse; is not on this machine; is refused
Verdict = Literal["works", "works, but", "not here", "no"]
VERDICTS: tuple[Verdict, ...] = ("works", "works, but", "not here", "no")

#: of what a step of the target reads, the share above which little is left to gain: with a half, three drafts of four
#: accepted and verification at its cheapest, chains of one or two drafts save about a tenth of the time
MOST_SHARE = 0.5

#: called with the share of candidates that were looked at
Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that might draft for a target. `reason` says what follows "but" or "no", empty where it works.

    `size` is that of the file in bytes, None for one that is not here; `share` what a step of it reads of weights,
    relative to a step of the target, None for those that do not work.
    """

    name: str
    verdict: Verdict
    reason: str = ""
    path: Path | None = None
    size: int | None = None
    share: float | None = None

    @property
    def works(self) -> bool:
        """Whether it can be used as it is."""
        return self.verdict in ("works", "works, but")


def step_bytes(info: GgufInfo) -> float:
    """Bytes of weights that a step for one token reads: of experts as many as are used, of an embedding none."""
    used, count = (info.metadata.get(f"{info.arch}.{key}", 0) for key in ("expert_used_count", "expert_count"))
    part = used / count if isinstance(used, int) and isinstance(count, int) and count > 0 else 1.0
    experts = sum(
        len(tensor.at) for name, tensor in info.tensors.items() if len(tensor.shape) > 2 and name.endswith(".weight")
    )
    return info.matrices.n_bytes + part * experts


def candidates(target: Path, progress: Progress = lambda share: None) -> list[Candidate]:
    """What could draft for the model in `target`: what works first, then smaller ones first. Reads no weights.

    Looks among the models of this machine, in the folder of `target`, and for those that models.txt pairs with it.
    Files that cannot be used are among them, with the reason. Raises `ModelError` when `target` itself cannot be used.
    """
    info = check_gguf(target)
    local = hub.local_models()
    local += _beside(target, {model.path.resolve() for model in local})
    with open_weightless(target) as model:
        judge = _Judge(model, step_bytes(info))
        found = []
        for i, candidate in enumerate(local):
            progress(i / len(local))
            found.append(judge.local(candidate))
    here = {candidate.name for candidate in local}
    found += [_absent(name) for name in _paired(target) if name not in here]
    return sorted(found, key=lambda one: (VERDICTS.index(one.verdict), one.size or 0, one.name))


def _beside(target: Path, known: Collection[Path]) -> list[hub.LocalModel]:
    """The other models in the folder of `target`, by their paths; those in `known` are left out."""
    files = [path for path in sorted(target.parent.glob("*.gguf")) if path.is_file() and path.resolve() not in known]
    return [
        hub.LocalModel(str(path), path, path.stat().st_size, None, False) for path in files if not path.samefile(target)
    ]


class _Judge:
    """Knows the target, whose step reads `target_step` bytes."""

    def __init__(self, target: Model, target_step: float) -> None:
        self._target = target
        self._step = target_step
        self._fingerprint = file_fingerprint(target.path)
        self._need = Need.of(target, ContextParams())
        self._available = judged_memory()

    def local(self, model: hub.LocalModel) -> Candidate:
        """The verdict on a file of this machine."""
        path = model.path
        refused = partial(Candidate, model.name, "no", path=path, size=model.size)
        try:
            if path.samefile(self._target.path) or file_fingerprint(path) == self._fingerprint:
                return refused("it is the target itself")
            fit = self._fit(path)
            if fit.reason is not None:
                return refused(fit.reason)
            share = step_bytes(check_gguf(path)) / self._step if self._step else None
        except LocalspecError as error:
            return refused(error.message.removeprefix(f"{path}: "))
        except OSError as error:
            return refused(f"it cannot be read: {error.strerror}")
        reasons = "; ".join([*_slow(share), *fit.notes])
        return Candidate(model.name, "works, but" if reasons else "works", reasons, path, model.size, share)

    def _fit(self, path: Path) -> Fit:
        """How well the model in `path` fits. Raises `LocalspecError` where it cannot be used at all."""
        with open_weightless(path) as draft:
            fit = fit_of(self._target, draft)
            if fit.reason is None and self._available is not None:
                refuse_oversized(self._need, Need.of(draft, ContextParams()), self._available)
        return fit


def _slow(share: float | None) -> Iterator[str]:
    if share is None or share <= MOST_SHARE:
        return
    if share >= 1:
        yield "it is no faster than the target, so it would only slow it down"
    else:
        yield f"its steps read {share:.0%} of what the target's read, so there is hardly anything to gain"


def _paired(target: Path) -> tuple[str, ...]:
    entry = hub.registry().get(hub.name_of(target))
    return entry.pairs if entry else ()


def _absent(name: str) -> Candidate:
    reason = "on this machine after all"  # pulled just now, by another process
    try:
        hub.find_model(name)
    except ModelNotFoundError as error:
        reason = error.hint or error.message
    return Candidate(name, "not here", reason)
