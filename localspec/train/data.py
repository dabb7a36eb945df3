"""Makes the training data: the model answers all prompts, round after round, until there are enough tokens.

Work is cut into shards of a fixed list of answers each. What a shard holds follows from the options and its number, so
a run that was killed makes the same data as one that was not; it loses the shard that it was at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.chat import ChatTemplate, chat_tokens
from localspec.engine.base import TreeContext
from localspec.engine.model import Model
from localspec.errors import ContextLengthError, ModelError, UsageError
from localspec.train.answers import Answer, Job, Watch, answer_all
from localspec.train.prompts import sample_seed
from localspec.train.shards import Shard, ShardFolder
from localspec.train.work import DataOptions

#: answers of a shard, at most: some minutes of work on a CPU
MAX_ANSWERS = 512
#: shards that the tokens are spread over, at least, where that leaves enough answers in each
MIN_SHARDS = 12

#: called with tokens made and tokens wanted; returns False to stop
Progress = Callable[[int, int], bool]


@dataclass(frozen=True)
class TokenizedPrompts:
    """The prompts as the model reads them, chat template included."""

    texts: list[str]
    tokens: list[list[int]]

    @property
    def longest(self) -> int:
        return max(map(len, self.tokens))


def tokenize(model: Model, texts: Sequence[str]) -> TokenizedPrompts:
    """Put every prompt into the chat template. Raises `UsageError` when that refuses."""
    template = ChatTemplate(model.chat_template, bos=model.special_text(model.bos), eos=model.special_text(model.eos))
    return TokenizedPrompts(
        list(texts), [chat_tokens(model, template, [{"role": "user", "content": text}]) for text in texts]
    )


def check_lengths(prompts: TokenizedPrompts, max_tokens: int, n_ctx_train: int) -> None:
    """Refuse prompts whose answers would leave the model's context. Raises `ContextLengthError`."""
    for text, tokens in zip(prompts.texts, prompts.tokens, strict=True):
        if len(tokens) + max_tokens > n_ctx_train:
            raise ContextLengthError(
                f"the prompt {text[:40]!r}.. takes {len(tokens)} tokens, which leaves no room for {max_tokens} in"
                f" the {n_ctx_train} of the model",
                "leave it out, or give a smaller --max-tokens",
            )


def shard_jobs(options: DataOptions, n_prompts: int, number: int) -> list[tuple[int, int]]:
    """(prompt, round) of each answer in a shard; every round has all prompts, in an order of its own."""
    size = min(MAX_ANSWERS, max(1, math.ceil(options.tokens / options.max_tokens / MIN_SHARDS)))
    jobs = []
    for at in range(number * size, (number + 1) * size):
        which, place = divmod(at, n_prompts)
        order = np.random.default_rng([options.seed, which]).permutation(n_prompts)
        jobs.append((int(order[place]), which))
    return jobs


class DataMaker:
    """Makes the shards of one run in `folder`. `end_tokens` are those of the model."""

    def __init__(
        self, options: DataOptions, prompts: TokenizedPrompts, folder: ShardFolder, end_tokens: frozenset[int]
    ) -> None:
        self._options = options
        self._prompts = prompts
        self._folder = folder
        self._end_tokens = end_tokens

    def existing(self) -> list[Shard]:
        """The shards that are there, from the first on, as far as the run needs them."""
        return list(self._existing())

    def _existing(self) -> Iterator[Shard]:
        n = number = 0
        while n < self._options.tokens and (shard := self._folder.read(number)) is not None:
            yield shard
            n += len(shard.tokens)
            number += 1

    def make(self, new_context: Callable[[], TreeContext], progress: Progress) -> list[Shard]:
        """All shards of the run; those that are missing are made, in a context that is then asked for.

        Raises `Stopped` when `progress` says so, `EngineError` when the library fails, and `ModelError` for hidden
        states that float16 cannot hold.
        """
        shards = self.existing()
        n = sum(len(shard.tokens) for shard in shards)
        if n >= self._options.tokens:
            return shards
        ctx = new_context()
        try:
            while n < self._options.tokens:
                done = n

                def watch(new: int, done: int = done) -> bool:
                    return progress(done + new, self._options.tokens)

                self._make(ctx, len(shards), watch)
                shard = self._folder.read(len(shards))
                if shard is None:
                    raise UsageError(f"shard {len(shards)} of the training data could not be written and read again")
                shards.append(shard)
                n += len(shard.tokens)
        finally:
            ctx.close()
        return shards

    def _make(self, ctx: TreeContext, number: int, watch: Watch) -> None:
        options = self._options
        wanted = shard_jobs(options, len(self._prompts.texts), number)
        jobs = [
            Job(self._prompts.tokens[prompt], sample_seed(options.seed, self._prompts.texts[prompt], which))
            for prompt, which in wanted
        ]
        answers = answer_all(
            ctx,
            jobs,
            end_tokens=self._end_tokens,
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            watch=watch,
        )
        self._folder.write(number, to_shard(answers, [prompt for prompt, _ in wanted]))


def to_shard(answers: Sequence[Answer], prompts: Sequence[int]) -> Shard:
    """Answers, and the number of the prompt of each, as a shard. Raises `ModelError` for values beyond float16."""
    hidden = np.concatenate([np.stack(answer.hidden) for answer in answers])
    with np.errstate(over="ignore"):
        half = hidden.astype(np.float16)
    if not np.isfinite(half).all():
        raise ModelError("the hidden states of this model do not fit float16", "heads cannot be trained for it here")
    return Shard(
        hidden=half,
        tokens=np.concatenate([answer.tokens for answer in answers]).astype(np.int32),
        best_ids=np.concatenate([answer.best_ids for answer in answers]).astype(np.int32),
        best_logits=np.concatenate([answer.best_logits for answer in answers]).astype(np.float32),
        lengths=np.array([len(answer.tokens) for answer in answers], dtype=np.int32),
        prompts=np.array(prompts, dtype=np.int32),
    )
