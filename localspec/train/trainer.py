"""The training loop: AdamW with warm-up and a cosine, checkpoints that a later run continues from exactly."""

from __future__ import annotations

import math
import os
import pickle
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from localspec.errors import UsageError
from localspec.train.dataset import RUN, Runs
from localspec.train.device import KINDS
from localspec.train.inputs import Feeder
from localspec.train.loss import distillation_loss
from localspec.train.module import HeadsModule
from localspec.train.work import HeadOptions

#: share of all steps in which the rate rises, and at most so many steps
WARM_UP, MAX_WARM_UP = 0.05, 200
#: what the rate falls to, as a share of its peak
LEAST_RATE = 0.05
#: seconds between checkpoints
CHECKPOINT_SECONDS = 180.0


@dataclass(frozen=True)
class Report:
    """How far a training is. `losses` are means of each head over the last steps; `seconds_left` is an estimate, and
    `rate` positions per second."""

    step: int
    n_steps: int
    losses: list[float]
    seconds_left: float
    rate: float


#: called after every step; returns False to stop
Progress = Callable[[Report], bool]


class Trainer:
    """Trains `module` on `runs`; `checkpoint` is the file to go on from, and to write.

    Raises `UsageError` when that file cannot be used.
    """

    def __init__(self, module: HeadsModule, feeder: Feeder, runs: Runs, options: HeadOptions, checkpoint: Path) -> None:
        self.module = module
        self._feeder = feeder
        self._runs = runs
        self._options = options
        self._checkpoint = checkpoint
        self._batch = max(1, options.batch // RUN)
        matrices = [parameter for parameter in module.parameters() if parameter.ndim > 1]
        vectors = [parameter for parameter in module.parameters() if parameter.ndim < 2]
        groups: list[dict[str, Any]] = [
            {"params": matrices, "weight_decay": options.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, 0.98), fused=True)
        self.step = 0
        self._restore()

    @property
    def kind_name(self) -> str:
        """The type that is computed in, such as "bfloat16"."""
        return str(self._feeder.kind).removeprefix("torch.")

    @property
    def n_steps(self) -> int:
        """Steps of the whole training."""
        return self._options.epochs * self._runs.n_batches(self._batch)

    def train(self, progress: Progress) -> bool:
        """Go on until all steps are done, then return True; False when `progress` said stop. A checkpoint is written
        either way."""
        per_epoch = self._runs.n_batches(self._batch)
        recent: deque[list[float]] = deque(maxlen=50)
        saved = began = perf_counter()
        first = self.step
        goes_on = True
        while goes_on and self.step < self.n_steps:
            epoch, start = divmod(self.step, per_epoch)
            for batch in self._runs.epoch(self._options.seed, epoch, self._batch, start):
                recent.append(self._learn(*self._feeder.feed(batch)))
                now = perf_counter()
                pace = (now - began) / (self.step - first)
                report = Report(
                    step=self.step,
                    n_steps=self.n_steps,
                    losses=[sum(values) / len(recent) for values in zip(*recent, strict=True)],
                    seconds_left=pace * (self.n_steps - self.step),
                    rate=self._batch * RUN / pace,
                )
                if now - saved > CHECKPOINT_SECONDS:
                    self.save()
                    saved = perf_counter()
                goes_on = progress(report)
                if not goes_on:
                    break
        self.save()
        return goes_on

    def _learn(self, u: torch.Tensor, targets: Any) -> list[float]:
        """One step. Returns the loss of each head."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._options.lr * rate_at(self.step, self.n_steps)
        loss, means = distillation_loss(
            self.module(u), self.module.vocabulary(), self._feeder.teacher, targets, self.module.spec.n_later_vocab
        )
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        self.step += 1
        values: list[float] = means.tolist()
        return values

    def save(self) -> None:
        """Write the checkpoint, in one step."""
        state = {
            "step": self.step,
            "kind": str(self._feeder.kind),
            "module": self.module.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        temporary = self._checkpoint.with_name(f".{self._checkpoint.name}.{secrets.token_hex(4)}")
        try:
            with temporary.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._checkpoint)
        except OSError as error:
            raise UsageError(
                f"{self._checkpoint} cannot be written: {error.strerror}", "make room on the disk"
            ) from error
        finally:
            temporary.unlink(missing_ok=True)

    def _restore(self) -> None:
        state = read_checkpoint(self._checkpoint)
        if state is None:
            return
        try:
            self.module.load_state_dict(state["module"])
            self._optimizer.load_state_dict(state["optimizer"])
            self.step = int(state["step"])
        except (KeyError, ValueError, RuntimeError) as error:
            raise _unusable(self._checkpoint) from error


def rate_at(step: int, n_steps: int) -> float:
    """The learning rate of a step as a share of its peak: a linear rise, then a cosine."""
    rise = max(1, min(MAX_WARM_UP, int(WARM_UP * n_steps)))
    if step < rise:
        return (step + 1) / rise
    share = (step - rise) / max(1, n_steps - rise)
    return LEAST_RATE + (1 - LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * share))


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """The checkpoint at `path`, None when there is none. Raises `UsageError` for one that cannot be read."""
    if not path.exists():
        return None
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise _unusable(path) from error
    if not isinstance(state, dict):
        raise _unusable(path)
    return state


def kind_of(path: Path) -> torch.dtype | None:
    """The type that the training of a checkpoint computes in; None without one. Raises `UsageError`."""
    state = read_checkpoint(path)
    if state is None:
        return None
    for kind in KINDS:
        if state.get("kind") == str(kind):
            return kind
    raise _unusable(path)


def _unusable(path: Path) -> UsageError:
    return UsageError(
        f"the checkpoint {path} cannot be used", "delete it to train again from the beginning; the data stay"
    )
