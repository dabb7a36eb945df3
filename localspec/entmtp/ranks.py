"""Rank logs: how good the heads' guesses were at every position of answers that the model wrote greedily.

Position t of an answer is the step whose root is token t: the base model has just written it, and head d guesses token
t + 1 + d. A log holds the rank that the head gave to the token that did come, *given the true tokens before it*. Under
greedy verification the text does not depend on the tree, so a log tells exactly what any tree would have had accepted
(`localspec.entmtp.replay`). That removes the bias and the second calibration of EntMTP, section 3.

Files are `.npz` archives without pickles: arrays, and one JSON text with version, header, ids and tasks.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from localspec.errors import UsageError
from localspec.paths import atomic_writer
from localspec.static_tree import MAX_RANK

FORMAT, VERSION = "localspec-rank-log", 1
#: rank of a token that is not known (behind the end) or outside the vocabulary of the head
MISSING = -1

RankArray = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float32]

_BROKEN = (ValueError, LookupError, TypeError, EOFError, OverflowError, NotImplementedError, RuntimeError, MemoryError)
_HINT = "record it again"


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


def _array(answer: str, name: str, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> np.ndarray:
    try:
        return np.array(values, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} of answer {answer} is not an array of numbers: {error}", _HINT) from error


def _ranks(answer: str, values: npt.ArrayLike) -> RankArray:
    ranks = _array(answer, "ranks", values)
    if ranks.ndim != 2 or not np.issubdtype(ranks.dtype, np.integer) or 0 in ranks.shape:
        raise UsageError(f"the ranks of answer {answer} are not integers of shape [positions, heads]", _HINT)
    if ranks.min() < MISSING:
        raise UsageError(f"answer {answer} has rank {ranks.min()}; a missing one is {MISSING}", _HINT)
    n, n_heads = ranks.shape
    behind = np.add.outer(np.arange(n), np.arange(n_heads)) >= n - 1
    wrong = np.argwhere(behind & (ranks != MISSING))
    if len(wrong):
        t, d = wrong[0]
        raise UsageError(f"answer {answer} ends after {n} tokens, yet head {d} has a rank at position {t}", _HINT)
    return _frozen(np.minimum(ranks, MAX_RANK).astype(np.int16))


def _shares(answer: str, name: str, values: npt.ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Probabilities, NaN where not known."""
    array = _array(answer, name, values, np.float32)
    if array.shape != shape:
        raise UsageError(f"{name} of answer {answer} has shape {list(array.shape)}, not {list(shape)}", _HINT)
    known = array[~np.isnan(array)]
    # a float32 softmax may end a little above 1
    if known.size and not (known.min() >= 0 and known.max() <= 1 + 1e-5):
        raise UsageError(f"{name} of answer {answer} is not between 0 and 1", _HINT)
    return _frozen(np.minimum(array, 1))


@dataclass(frozen=True, eq=False)
class RankedAnswer:
    """One answer of n >= 1 positions, seen by D heads.

    `ranks`: int16 [n, D], 0-based; larger ones than `MAX_RANK` are capped; `MISSING` where t + 1 + d >= n. `p_base`:
    float32 [n], the base model's probability of the root, its top-1 token. `q`: float32 [n, D], the top-1 probability
    of head d when the heads before it were followed greedily. Both are NaN where not known.

    Raises `UsageError`, which names the answer, for anything else.
    """

    id: str
    task: str
    ranks: RankArray
    p_base: Floats
    q: Floats

    def __post_init__(self) -> None:
        ranks = _ranks(self.id, self.ranks)
        object.__setattr__(self, "ranks", ranks)
        object.__setattr__(self, "p_base", _shares(self.id, "p_base", self.p_base, ranks.shape[:1]))
        object.__setattr__(self, "q", _shares(self.id, "q", self.q, ranks.shape))

    def __len__(self) -> int:
        return len(self.ranks)


@dataclass(frozen=True, eq=False)
class RankLog:
    """Ranked answers of one model with one set of heads, one behind the other: N positions in all.

    `header` is what belongs to the log and fits JSON: fingerprint of the model, id of the heads, date. Raises
    `UsageError` without answers, or when they have different numbers of heads or the same id.
    """

    answers: tuple[RankedAnswer, ...]
    header: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "answers", tuple(self.answers))
        if not self.answers:
            raise UsageError("a rank log needs at least one answer", "record some")
        n_heads = self.answers[0].ranks.shape[1]
        seen: set[str] = set()
        for answer in self.answers:
            if answer.ranks.shape[1] != n_heads:
                raise UsageError(
                    f"answer {answer.id} was seen by {answer.ranks.shape[1]} heads, others by {n_heads}", _HINT
                )
            if answer.id in seen:
                raise UsageError(f"two answers of a rank log have the id {answer.id}", "leave one out")
            seen.add(answer.id)

    def __len__(self) -> int:
        """Positions in all, N: as many as tokens."""
        return len(self.ranks)

    @property
    def n_heads(self) -> int:
        """Number of heads, D."""
        return int(self.answers[0].ranks.shape[1])

    @cached_property
    def ranks(self) -> RankArray:
        """Ranks of all answers, int16 [N, D]."""
        return _frozen(np.concatenate([answer.ranks for answer in self.answers]))

    @cached_property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """First position of each answer and the one behind its last."""
        ends = np.cumsum([len(answer) for answer in self.answers]).tolist()
        return tuple(zip([0, *ends[:-1]], ends, strict=True))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, in the order of their first answers."""
        return tuple(dict.fromkeys(answer.task for answer in self.answers))

    def scores(self, depth: int | None = None) -> npt.NDArray[np.float64]:
        """The score p_base * q_1 * .. * q_depth of every position, float64 [N] (EntMTP, section 4).

        `depth` None takes all heads. A score with an unknown factor is 0, as in `localspec.entmtp.policies.score`.
        """
        depth = self.n_heads if depth is None else depth
        if not 0 <= depth <= self.n_heads:
            raise UsageError(f"a score over {depth} heads needs a log of as many, and this one has {self.n_heads}")
        p_base = np.concatenate([answer.p_base for answer in self.answers]).astype(np.float64)
        q = np.concatenate([answer.q[:, :depth] for answer in self.answers]).astype(np.float64)
        return np.nan_to_num(p_base * q.prod(axis=1), nan=0.0)

    def subset(self, indices: Sequence[int]) -> RankLog:
        """The log of some of the answers, by index: a half to fit on, and one to judge on."""
        return RankLog(tuple(self.answers[i] for i in indices), self.header)

    def of_task(self, task: str) -> RankLog:
        """The log of the answers of one task. Raises `UsageError` that lists the tasks when there are none."""
        answers = tuple(answer for answer in self.answers if answer.task == task)
        if not answers:
            raise UsageError(f"the rank log has no answers of task {task!r}", f"it has {', '.join(self.tasks)}")
        return RankLog(answers, self.header)

    def save(self, path: Path) -> None:
        """Write the file so that a reader sees the old content or the new one. Raises `UsageError` when that fails."""
        meta = {
            "format": FORMAT,
            "version": VERSION,
            "header": dict(self.header),
            "answers": [[answer.id, answer.task, len(answer)] for answer in self.answers],
        }
        try:
            text = json.dumps(meta).encode()
        except (TypeError, ValueError) as error:
            raise UsageError(f"the header of the rank log {path} does not fit JSON: {error}") from error
        try:
            _write(path, text, self.answers)
        except OSError as error:
            raise UsageError(f"the rank log {path} cannot be written: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: Path) -> RankLog:
        """Read a file of `save`. Raises `UsageError`, which names the file and the reason, for anything else."""
        try:
            with path.open("rb") as file:
                archive = np.load(file, allow_pickle=False)
                meta = _meta(path, archive)
                arrays = [np.asarray(archive[name]) for name in ("ranks", "p_base", "q")]
            return cls(_split(meta["answers"], arrays), meta["header"])
        except OSError as error:
            raise UsageError(f"the rank log {path} cannot be read: {error.strerror or error}") from error
        except UsageError as error:
            if str(path) in error.message:
                raise
            _refuse(path, error)
        except (*_BROKEN, zipfile.BadZipFile, zlib.error) as error:
            _refuse(path, error)


def _refuse(path: Path, error: Exception) -> NoReturn:
    reason = error.message if isinstance(error, UsageError) else (str(error) or type(error).__name__)
    raise UsageError(f"the rank log {path} is broken: {reason}", _HINT) from error


def _meta(path: Path, archive: Any) -> dict[str, Any]:
    if not isinstance(archive, np.lib.npyio.NpzFile) or "meta" not in archive:
        raise UsageError(f"{path} is not a rank log", _HINT)
    meta = json.loads(archive["meta"].tobytes())
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise UsageError(f"{path} is not a rank log", _HINT)
    if meta.get("version") != VERSION:
        raise UsageError(f"the rank log {path} has version {meta.get('version')}, not {VERSION}", _HINT)
    if not isinstance(meta.get("header"), dict):
        raise ValueError("it has no header")
    return meta


def _split(rows: Any, arrays: list[np.ndarray]) -> tuple[RankedAnswer, ...]:
    if not isinstance(rows, list):
        raise ValueError("it has no list of answers")
    answers: list[RankedAnswer] = []
    start = 0
    for name, task, n in rows:
        if not (isinstance(name, str) and isinstance(task, str) and isinstance(n, int)) or n < 1:
            raise ValueError(f"answer {len(answers) + 1} has no id, no task or no length")
        answers.append(RankedAnswer(name, task, *(array[start : start + n] for array in arrays)))
        start += n
    if any(array.ndim == 0 or len(array) != start for array in arrays):
        raise ValueError(f"its arrays do not have the {start} positions of its answers")
    return tuple(answers)


def _write(path: Path, meta: bytes, answers: Sequence[RankedAnswer]) -> None:
    with atomic_writer(path) as file:
        np.savez_compressed(
            file,
            meta=np.frombuffer(meta, dtype=np.uint8),
            ranks=np.concatenate([answer.ranks for answer in answers]),
            p_base=np.concatenate([answer.p_base for answer in answers]),
            q=np.concatenate([answer.q for answer in answers]),
        )
