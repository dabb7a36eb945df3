"""One training from beginning to end: prompts, data, heads, accuracy, file. Every part goes on where it was stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from localspec.engine.base import IntArray
from localspec.engine.model import Model
from localspec.errors import UsageError
from localspec.heads.base import base_facts
from localspec.heads.file import write_heads
from localspec.heads.spec import HeadSpec
from localspec.train import data as making
from localspec.train.accuracy import Accuracy, measure
from localspec.train.answers import new_answering_context
from localspec.train.base import BaseMatrices
from localspec.train.dataset import Runs, choose_vocabulary, count_tokens
from localspec.train.device import choose_device, choose_kind
from localspec.train.inputs import Feeder
from localspec.train.module import HeadsModule, trained_spec
from localspec.train.prompts import check_shares, digest, is_held_out
from localspec.train.rounding import roundings
from localspec.train.shards import Shard, ShardFolder, bytes_per_token
from localspec.train.start import Start
from localspec.train.trainer import Progress as TrainingProgress
from localspec.train.trainer import Trainer, kind_of
from localspec.train.work import ARCHS, DataOptions, HeadOptions, WorkFolder


@dataclass(frozen=True)
class Facts:
    """What a training keeps of the model: its own name, sizes, end tokens and file."""

    name: str
    path: Path
    n_embd: int
    n_vocab: int
    fingerprint: str
    end_tokens: frozenset[int]


@dataclass(frozen=True)
class Data:
    """The training data: shards, and which prompts are held out."""

    shards: list[Shard]
    held_out: list[bool]

    @property
    def n_tokens(self) -> int:
        return sum(len(shard.tokens) for shard in self.shards)


@dataclass(frozen=True)
class Plan:
    """What is about to be done: disk that the data will take in all and took already, in bytes."""

    n_prompts: int
    disk_bytes: int
    disk_used: int


class Training:
    """Makes heads for the model in `path`, in the folder `work`.

    `device` is one of `device.DEVICES`; `n_threads` None means one a physical core; `start` is what is trained further.
    The model is needed here and for `make_data`, and may be closed then.

    Raises `UsageError` for options that cannot be used and for a folder that holds another training, and `ModelError`
    for a model that heads cannot be trained for.
    """

    def __init__(
        self,
        model: Model,
        prompts: Sequence[str],
        work: Path,
        data: DataOptions,
        heads: HeadOptions,
        *,
        device: str = "auto",
        n_threads: int | None = None,
        start: Start | None = None,
    ) -> None:
        heads = replace(heads, init=start.digest if start else "")
        heads.check()
        if heads.rounding:
            roundings(heads.rounding, model.n_embd)  # refused now, not when the data are made
        check_shares(prompts)
        self.device = choose_device(device)
        base = base_facts(model)
        self.facts = Facts(base.name, model.path, model.n_embd, model.n_vocab, base.fingerprint, model.eog)
        data = replace(data, fingerprint=model.fingerprint, prompts=digest(prompts))
        tokenized = making.tokenize(model, prompts)
        making.check_lengths(tokenized, data.max_tokens, model.n_ctx_train)
        self._head_options = heads
        spec = self._spec()  # raises for sizes that make no heads
        self.folder = WorkFolder(work, data)
        self._data_options = data
        self._start = start
        if start:
            start.check(spec)
        self._longest = tokenized.longest
        self._n_threads = n_threads
        self._held_out = [is_held_out(text) for text in prompts]
        shards = ShardFolder(self.folder.data_folder, model.n_embd)
        self._maker = making.DataMaker(data, tokenized, shards, model.eog)
        self._matrices = BaseMatrices(model.path)

    def plan(self) -> Plan:
        """What the data will take. Raises `UsageError` when the disk cannot hold what is missing."""
        # the last shard may go beyond the tokens wanted
        tokens = self._data_options.tokens * (1 + 1 / making.MIN_SHARDS)
        total, used = int(tokens * bytes_per_token(self.facts.n_embd)), self.folder.used()
        self.folder.check_space(max(0, total - used))
        return Plan(len(self._held_out), total, used)

    def make_data(self, model: Model, progress: making.Progress) -> Data:
        """Make what is missing of the data. Raises `Stopped` when `progress` says so."""
        options = self._data_options
        n_cells = self._longest + options.max_tokens

        shards = self._maker.make(
            lambda: new_answering_context(model, options.n_parallel, n_cells, self._n_threads), progress
        )
        self._matrices.check_logits(shards[0])
        return Data(shards, self._held_out)

    def train(self, data: Data, progress: TrainingProgress) -> Trained:
        """Train to the end, or until `progress` says stop; what was learned is kept either way.

        Raises `UsageError` when there are too few data, and when other heads are being trained in the folder.
        """
        options = self._head_options
        learned, held_out = (Runs(data.shards, data.held_out, want, options.n_heads) for want in (False, True))
        if not len(learned) or not len(held_out):
            raise UsageError("the data are too few to train and to measure with", "give more --tokens")
        self.folder.claim_heads(options)
        if self._n_threads:
            torch.set_num_threads(self._n_threads)
        module, feeder, d2t = self._module(data)
        trainer = Trainer(module, feeder, learned, options, self.folder.checkpoint)
        began = perf_counter()
        done = trainer.train(progress)
        return Trained(trainer, feeder, d2t, held_out, done, perf_counter() - began, learned.n_positions)

    def _module(self, data: Data) -> tuple[HeadsModule, Feeder, IntArray]:
        """Heads to train, what feeds them, and the tokens that they can draft."""
        options, facts = self._head_options, self.facts
        counts = count_tokens(data.shards, data.held_out, facts.n_vocab)
        first = self._start.vocabulary.tolist() if self._start else facts.end_tokens
        spec = self._spec()
        d2t = choose_vocabulary(counts, spec.n_draft_vocab, first, by_count=spec.n_later_vocab > 0)
        used = np.unique(np.concatenate([shard.tokens for shard in data.shards])).astype(np.int32)
        # a training goes on in the type that it began with, so that it goes on exactly
        kind = kind_of(self.folder.checkpoint) or choose_kind(self.device)
        feeder = Feeder(self._matrices, used, d2t, options.n_heads, self.device, kind)
        torch.manual_seed(options.seed)
        scale = feeder.scale(data.shards[0].hidden)
        module = HeadsModule(spec, torch.from_numpy(feeder.output), scale, options.rounding).to(self.device)
        if self._start:
            self._start.apply(module, d2t)
        return module, feeder, d2t

    def _spec(self) -> HeadSpec:
        """What the heads will be."""
        options, facts = self._head_options, self.facts
        return trained_spec(
            facts.n_embd,
            facts.n_vocab,
            n_heads=options.n_heads,
            n_layers=options.n_layers,
            n_draft_vocab=min(options.vocab, facts.n_vocab),
            n_later_vocab=options.later_vocab,
            base_name=facts.name,
            fingerprint=facts.fingerprint,
            arch=ARCHS[options.arch],
        )

    def export(self, heads: Trained, accuracy: Accuracy, data: Data, output: Path, weight_type: str) -> str:
        """Write the heads to `output` and return the recipe that stands in the file, with their accuracy."""
        options, how = self._head_options, self._data_options
        recipe = (
            f"localspec train-heads: {data.n_tokens} tokens at temperature {how.temperature:g} as answers to"
            f" {len(data.held_out)} prompts, seed {how.seed}; {heads.trainer.step} of {heads.trainer.n_steps} steps of"
            f" {options.batch} positions, lr {options.lr:g}, {heads.trainer.kind_name}; held-out prompts:"
            f" {accuracy.text()}"
        )
        if options.rounding:
            recipe += f"; trained as {options.rounding}"
        if self._start:
            recipe += f"; begun from: {self._start.recipe or self._start.digest}"
        made = heads.trainer.module.to_heads(heads.d2t)
        write_heads(output, replace(made, spec=replace(made.spec, recipe=recipe)), weight_type)
        return recipe


@dataclass(frozen=True)
class Trained:
    """Heads as far as they were trained: `done` is False when that was stopped. `d2t` are the tokens that they can
    draft, `n_positions` those of an epoch."""

    trainer: Trainer
    feeder: Feeder
    d2t: IntArray
    held_out: Runs
    done: bool
    seconds: float
    n_positions: int

    def accuracy(self) -> Accuracy:
        """Measure the heads on answers to held-out prompts."""
        return measure(self.trainer.module, self.feeder, self.held_out)
