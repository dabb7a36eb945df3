"""Compares speculated text with plain text, token by token, and judges the first difference.

On a CPU both should be the same to the byte. Where kernels change with the batch size (GPUs), the texts may part where
the two best tokens are nearly equal; so at the first difference the logits there are evaluated once more, on their
own, and the gap between the two best is reported.

A lossy rule of acceptance may part from plain text only where it forgave something, so that is what is checked of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from localspec.bench.prompts import Prompt
from localspec.decode import Limits
from localspec.engine.base import FloatArray
from localspec.engine.params import SamplingParams
from localspec.events import StepEvent
from localspec.methods.acceptance import Acceptance
from localspec.session import Session

#: called with prompts done and prompts in all
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference: `index` counts generated tokens from 0; a token is None where that text had ended.

    `gap` is the distance of the two best logits there, `top` the ids of the two. `between_best` tells whether the two
    texts took just these two; a text that had ended took an end token.
    """

    index: int
    plain: int | None
    speculated: int | None
    plain_text: str
    speculated_text: str
    top: tuple[int, int]
    gap: float
    between_best: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """One prompt: how many tokens plain made, steps that the speculated run took, and the first difference if any.

    `forgiven` are the positions in the speculated text of drafts that were accepted against the model.
    """

    prompt_id: str
    task: str
    n_tokens: int
    n_steps: int
    n_drafted: int
    divergence: Divergence | None
    forgiven: tuple[int, ...] = ()

    @property
    def by_forgiving(self) -> bool:
        """Whether the first difference is the first draft that was forgiven: that is what a lossy rule does."""
        return self.divergence is not None and self.forgiven[:1] == (self.divergence.index,)

    def passes(self, eps: float, greedy: bool) -> bool:
        """Whether the texts are identical, or differ first at a forgiven draft or a near tie: each took one of the two
        best tokens, and these are less than `eps` logits apart. A seeded draw has no such excuse."""
        difference = self.divergence
        near_tie = difference is not None and greedy and difference.between_best and difference.gap < eps
        return difference is None or self.by_forgiving or near_tie

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "identical": self.divergence is None}


def verify(
    session: Session,
    prompts: Sequence[Prompt],
    method: str,
    *,
    sampling: SamplingParams,
    max_tokens: int,
    governed: bool = False,
    acceptance: Acceptance | None = None,
    progress: Progress | None = None,
) -> list[Verdict]:
    """Run each prompt plain and with `method` (with the same seed) and compare the tokens.

    Without `governed` every draft is verified, so that there is something to compare even where it does not pay.
    `acceptance` holds for the speculated runs.
    """
    limits = Limits(max_tokens=max_tokens, stops=session.template.stops)
    verdicts: list[Verdict] = []
    for prompt in prompts:
        tokens = session.chat_prompt([{"role": "user", "content": prompt.text}])
        plain, *_ = _run(session, tokens, sampling, limits, "plain", governed)
        speculated, steps, drafted, forgiven = _run(session, tokens, sampling, limits, method, governed, acceptance)
        difference = first_difference(plain, speculated)
        divergence = None
        if difference is not None:
            logits = session.next_logits([*tokens, *plain[:difference]])
            divergence = judge(difference, plain, speculated, logits, session.model.piece, session.model.eog)
        verdicts.append(Verdict(prompt.id, prompt.task, len(plain), steps, drafted, divergence, tuple(forgiven)))
        if progress is not None:
            progress(len(verdicts), len(prompts))
    return verdicts


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first token in which two texts differ, the end of one counting as a difference."""
    for i, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))


def judge(
    index: int,
    plain: Sequence[int],
    speculated: Sequence[int],
    logits: FloatArray,
    piece: Callable[[int], bytes],
    eog: Set[int],
) -> Divergence:
    """Describe the difference at `index`, given the logits there and the tokens that end a text."""
    best = np.argpartition(logits, -2)[-2:]
    second, first = (int(token) for token in best[np.argsort(logits[best])])

    def at(tokens: Sequence[int]) -> tuple[int | None, str]:
        if index >= len(tokens):
            return None, ""
        return tokens[index], piece(tokens[index]).decode("utf-8", "replace")

    (plain_token, plain_text), (other_token, other_text) = at(plain), at(speculated)
    gap = float(logits[first]) - float(logits[second])
    pair = ((plain_token, other_token), (other_token, plain_token))
    between_best = any(_is(a, first, eog) and _is(b, second, eog) for a, b in pair)
    return Divergence(index, plain_token, other_token, plain_text, other_text, (first, second), gap, between_best)


def _is(token: int | None, wanted: int, eog: Set[int]) -> bool:
    return wanted in eog if token is None else token == wanted


def _run(
    session: Session,
    prompt: Sequence[int],
    sampling: SamplingParams,
    limits: Limits,
    method: str,
    governed: bool,
    acceptance: Acceptance | None = None,
) -> tuple[list[int], int, int, list[int]]:
    """Tokens, steps, drafted tokens and positions of forgiven ones of one generation."""
    tokens: list[int] = []
    forgiven: list[int] = []
    steps = drafted = 0
    for event in session.generate(prompt, sampling, limits, method, governed=governed, acceptance=acceptance):
        if isinstance(event, StepEvent):
            forgiven += [len(tokens) + i for i in event.forgiven]
            tokens += event.tokens
            steps += 1
            drafted += event.topology.n_nodes - 1
    return tokens, steps, drafted, forgiven
