"""FLy's loose acceptance: which mismatches of a draft are forgiven, and where it is rejected first. Pure functions.

A drafted token that is not the target's is forgiven where the target itself is unsure and the target, reading on from
the drafted token, agrees with what follows (FLy, arXiv 2511.22972, sections 3.2 and 3.3, equations 5 to 11). Paper and
official code differ, so the form is a switch:

- "top3", as the official code does it: the entropy of the three likeliest tokens, in nats, is at least theta; and the
  window - 1 tokens after the mismatch match.
- "normalised", as the paper writes it: the entropy of the whole distribution divided by log |V| is at least theta; and
  the `window` tokens after the mismatch match.

In both forms at least `window` drafted tokens follow a forgiven one, so the end of a draft is strict, and only true
matches count inside a window: a second mismatch there rejects the first one.

Three guards are in neither. End tokens are never forgiven: an answer that is cut short, or that does not end, is not a
matter of words. With a `ratio` above 0 only tokens are forgiven that the target itself finds likely enough beside its
best one: an entropy tells that it is unsure, perhaps between others than the drafted token. And with "exact" `literals`
no mismatch is forgiven that has a number or a sign of code on either side: see `literals`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from localspec.errors import UsageError

EntropyForm = Literal["top3", "normalised"]
ENTROPY_FORMS: tuple[EntropyForm, ...] = ("top3", "normalised")

Literals = Literal["loose", "exact"]
LITERALS: tuple[Literals, ...] = ("loose", "exact")

#: how many of the largest logits "top3" looks at
TOP = 3


@dataclass(frozen=True, slots=True)
class LooseRule:
    """FLy's parameters. `theta` is in nats for "top3" (whose entropies go up to ln 3 = 1.10) and a share of log |V| for
    "normalised"; infinity forgives nothing. `window` counts tokens; for "top3" the mismatch is one of them. `ratio` is
    the least probability of a forgiven token, as a share of that of the target's best one; 0 is the published rule, and
    so are "loose" `literals`, which are forgiven as words are.

    Raises `UsageError` for values that mean nothing.
    """

    theta: float = 0.3
    window: int = 6
    entropy: EntropyForm = "top3"
    ratio: float = 0.0
    literals: Literals = "loose"

    def __post_init__(self) -> None:
        if not self.theta >= 0.0:
            raise UsageError(f"--theta {self.theta:g} is no entropy: it has to be 0 or more", "leave it out for 0.3")
        if self.window < 1:
            raise UsageError(f"--window {self.window} is too small: it has to be 1 or more", "leave it out for 6")
        if self.entropy not in ENTROPY_FORMS:
            raise UsageError(f"there is no --entropy {self.entropy!r}", f"one of {', '.join(ENTROPY_FORMS)}")
        if not 0.0 <= self.ratio <= 1.0:
            raise UsageError(
                f"--ratio {self.ratio:g} is no share of a probability: it has to be from 0 to 1",
                "leave it out for the published rule, which asks for none",
            )
        if self.literals not in LITERALS:
            raise UsageError(f"there is no --literals {self.literals!r}", f"one of {', '.join(LITERALS)}")

    @property
    def followers(self) -> int:
        """How many tokens right after a mismatch have to match."""
        return self.window - 1 if self.entropy == "top3" else self.window

    def unsure(self, entropy: float) -> bool:
        """Whether the target is unsure enough to forgive; `entropy` is in the rule's own form."""
        return entropy >= self.theta

    def likely(self, ratio: float) -> bool:
        """Whether a drafted token is likely enough to forgive; `ratio` is p(it) / p(the target's best token)."""
        return ratio >= self.ratio

    def worded(self, literal: bool) -> bool:
        """Whether a mismatch is one of wording; `literal` tells whether one of its two tokens is literal."""
        return not literal or self.literals == "loose"

    def __str__(self) -> str:
        exact = ", exact literals" if self.literals == "exact" else ""
        return f"theta {self.theta:g}, window {self.window}, {self.entropy} entropy, ratio {self.ratio:g}{exact}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """`accepted` drafted tokens are emitted, the one after them is rejected (if the draft goes on); `forgiven` are the
    positions among them that the target disagreed with."""

    accepted: int
    forgiven: tuple[int, ...] = ()


def judge(
    draft: Sequence[int],
    target: Sequence[int],
    entropies: Sequence[float],
    ratios: Sequence[float],
    literals: Sequence[bool],
    end: Set[int],
    rule: LooseRule,
) -> Judgement:
    """Judge the chain `draft` [K]. `target[i]` is the target's token after `draft[:i]`, `entropies[i]` the entropy of
    its distribution there, in the form of the rule, `ratios[i]` what it gives `draft[i]` as a share of the probability
    of its best token, and `literals[i]` whether `draft[i]` or `target[i]` is literal there. A draft ends with its first
    token of `end`."""

    def forgivable(i: int) -> bool:
        return rule.unsure(entropies[i]) and rule.likely(ratios[i]) and rule.worded(literals[i])

    return judge_lazily(draft, target.__getitem__, forgivable, end, rule)


def judge_lazily(
    draft: Sequence[int],
    target: Callable[[int], int],
    forgivable: Callable[[int], bool],
    end: Set[int],
    rule: LooseRule,
) -> Judgement:
    """The same, asking for no more than is needed: `target(i)` when all before i is accepted or looked at as followers
    of a mismatch, in order; `forgivable(i)` only at a mismatch that nothing else rejects, before its followers."""
    length = next((i + 1 for i, token in enumerate(draft) if token in end), len(draft))
    forgiven: list[int] = []
    for i in range(length):
        token = target(i)
        if token == draft[i]:
            continue
        # the draft's own end token is its last one, and so never has a window behind it
        if i + rule.window >= length or token in end or not forgivable(i):
            return Judgement(i, tuple(forgiven))
        if any(target(j) != draft[j] for j in range(i + 1, i + 1 + rule.followers)):
            return Judgement(i, tuple(forgiven))
        forgiven.append(i)
    return Judgement(length, tuple(forgiven))


def top3_entropy(logits: Sequence[float], logsumexp: float) -> float:
    """- sum p ln p over the tokens with these (largest) logits, in nats. Each p is that of the softmax over the whole
    vocabulary: the three are not scaled up to a sum of 1."""
    total = 0.0
    for logit in logits:
        log_p = logit - logsumexp
        if log_p > -math.inf:
            total -= math.exp(log_p) * log_p
    return total


def ratio_to_best(logit: float, best: float) -> float:
    """p(a token) / p(the best one) of a softmax, by their logits."""
    return math.exp(logit - best)


def normalised_entropy(nats: float, n_vocab: int) -> float:
    """An entropy as a share of the largest that there can be over `n_vocab` tokens, 0 to 1."""
    return nats / math.log(n_vocab)
