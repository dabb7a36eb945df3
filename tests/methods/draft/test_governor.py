"""A second model never makes generation slower by more than a few per cent, and its drafts are used where they pay.

Time is simulated: a plain step takes `PLAIN` seconds, a pass of the draft model a share of that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from localspec.calibrate.curve import CostCurve
from localspec.engine.base import Progress
from localspec.methods.base import Walk
from localspec.methods.draft.cache import DraftCache
from localspec.methods.draft.drafter import DraftDrafter, DraftModel
from localspec.methods.draft.governor import DraftGovernor
from localspec.methods.fly import LooseRule
from localspec.methods.governor import OFF_NOTE, ON_NOTE
from localspec.tree import Tree
from tests.toy import ToyContext, ToyRows

PLAIN = 0.02
RULE = LooseRule()
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def gentle(n: int) -> float:
    """Our CPU kernels: eight tokens cost 1.5 steps, sixteen 2.2."""
    return 1 + 0.07 * (n - 1)


def flat(n: int) -> float:
    return 1 + 0.01 * (n - 1)


class TimedContext(ToyContext):
    """A draft model whose single pass takes `share` of a plain step of the target, and whose reading is cheaper.

    `sure` scales its logits: how confident it looks."""

    def __init__(self, share: float, reading: float, sure: float) -> None:
        super().__init__(n_ctx=1 << 16, n_vocab=24, memory=3)
        self._share, self._reading, self._sure = share, reading, sure

    def decode(self, tokens: Sequence[int], parents: Sequence[int], seq: int = 0) -> ToyRows:
        rows = super().decode(tokens, parents, seq)
        rows._rows = [self._sure * row for row in rows._rows]
        self.native_seconds += self._share * PLAIN * gentle(len(tokens)) - 1e-3
        return rows

    def prefill(self, tokens: Sequence[int], seq: int = 0, progress: Progress | None = None) -> int:
        self.native_seconds += self._reading * PLAIN * len(tokens)
        return super().prefill(tokens, seq, progress)


class Work:
    """Text that is what the draft model would write with chance `right(position)` a token."""

    def __init__(
        self, right: Callable[[int], float], *, share: float = 0.35, reading: float = 0.04, sure: float = 1.0,
        cost: Callable[[int], float] = gentle, calibrated: bool = True, forgiven: float | None = None,
    ) -> None:  # fmt: skip
        self.right, self.cost, self.forgiven = right, cost, forgiven
        self.ctx = TimedContext(share, reading, sure)
        ctx: Any = self.ctx
        model = DraftModel(DraftCache(ctx), 24)
        curve = CostCurve(SIZES, tuple(PLAIN * cost(n) for n in SIZES))
        self.governor = DraftGovernor(curve if calibrated else None, 63, model.cache.times)
        self.governor.forgive(None if forgiven is None else RULE)
        self.drafter = DraftDrafter(model, self.governor)
        self.notes: list[tuple[int, str]] = []
        self.proposals: list[int] = []
        self.n_forgiven = 0
        self.text = [1 + 5 * i % 23 for i in range(40)]

    def run(self, n_tokens: int, seed: int = 1) -> float:
        """Generate, and return the time of plain decoding divided by the time taken."""
        rng = random.Random(seed)
        self.drafter.start(self.text)
        self.governor.start()
        self._own = ToyContext(n_ctx=1 << 16, n_vocab=24, memory=3)
        self._own.prefill(self.text[:-1])
        position, time = 0, 0.0
        while position < n_tokens:
            budget = self.governor.budget()
            before = self.ctx.native_seconds
            tree = Tree.root(self.text[-1])
            if budget > 1:
                tree = self.governor.select(self.drafter.propose(budget, self.governor.least_p))
                self.proposals.append(position)
            proposing = self.ctx.native_seconds - before
            walk = self._walk(tree, position, rng)
            seconds = PLAIN * self.cost(len(tree))
            rows: Any = None
            self.drafter.observe(tree, rows, walk)
            note = self.governor.observe(tree, walk, seconds * max(0.8, rng.gauss(1, 0.03)), proposing)
            if note:
                self.notes.append((position, note))
            self.text += walk.tokens
            self.n_forgiven += len(walk.forgiven)
            position += len(walk.tokens)
            time += seconds + proposing
        return position * PLAIN / time

    def _walk(self, tree: Tree, position: int, rng: random.Random) -> Walk:
        """What is written: the draft model's own next token where that is right, and another one elsewhere, unless
        it is forgiven, with chance `forgiven`; then the window behind it is right."""
        path: list[int] = []
        tokens: list[int] = []
        forgiven: list[int] = []
        node: int | None = 0
        while node is not None:
            best = self._own.decode(tree.tokens[node : node + 1], [-1]).argmax(0)
            self._own.accept([0])
            right = rng.random() < self.right(position + len(tokens))
            if forgiven and len(tokens) <= forgiven[-1] + RULE.followers:
                right = True
            drafted = tree.child(node, best)
            long = drafted is not None and tree.topology.heights[drafted] >= RULE.window
            if not right and self.forgiven is not None and long and rng.random() < self.forgiven:
                forgiven.append(len(tokens))
                right = True
            token = best if right else rng.choice([token for token in range(1, 24) if token != best])
            tokens.append(token)
            node = tree.child(node, token)
            if node is not None:
                path.append(node)
        return Walk(tuple(path), tuple(tokens), tuple(forgiven))


@pytest.mark.parametrize("share", [0.1, 0.35, 0.8])
@pytest.mark.parametrize("sure", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("right", [0.0, 0.15])
@pytest.mark.parametrize("calibrated", [True, False])
def test_text_that_it_cannot_predict_loses_less_than_three_per_cent(
    share: float, sure: float, right: float, calibrated: bool
) -> None:
    for seed in range(4):
        work = Work(lambda _: right, share=share, sure=sure, reading=share / 8, calibrated=calibrated)
        assert work.run(500, seed) > 0.97
        assert right or work.notes[0][1] == OFF_NOTE


def test_while_off_the_draft_model_is_not_run() -> None:
    work = Work(lambda _: 0.0)
    work.run(100)
    off = work.notes[0][0]
    assert not [position for position in work.proposals if position > off]


@pytest.mark.parametrize(("share", "right", "least"), [(0.1, 0.8, 1.9), (0.1, 0.9, 2.3), (0.35, 0.9, 1.45)])
def test_good_drafts_are_turned_into_speed(share: float, right: float, least: float) -> None:
    speeds = [Work(lambda _: right, share=share, reading=share / 8).run(600, seed) for seed in range(3)]
    assert sorted(speeds)[1] > least


def test_cheap_verification_is_discovered_without_a_curve() -> None:
    assert Work(lambda _: 0.9, share=0.1, reading=0.01, calibrated=False).run(600) > 1.8


def test_a_dear_draft_model_of_modest_quality_is_switched_off() -> None:
    work = Work(lambda _: 0.5, share=0.8)
    assert work.run(600) > 0.97
    assert work.notes


def test_it_tries_again_where_what_was_won_pays_for_it() -> None:
    """Good, bad, good again: the first stretch has won more than reading what was missed can lose."""
    work = Work(lambda position: 0.95 if not 200 < position < 400 else 0.0, share=0.1, reading=0.01)
    work.run(1000)
    assert [note for _, note in work.notes][:2] == [OFF_NOTE, ON_NOTE]
    assert 200 < work.notes[0][0] < 260 and 400 < work.notes[1][0] < 700


def test_reading_what_was_missed_is_never_worth_it_where_it_loses_too_much() -> None:
    work = Work(lambda _: 0.0, share=0.35, reading=0.05)
    work.run(2000)
    cheap = Work(lambda _: 0.0, share=0.05, reading=0.001)
    cheap.run(2000)
    after = [len([p for p in one.proposals if p > one.notes[0][0]]) for one in (work, cheap)]
    assert after[0] == 0 < after[1]


def test_the_next_generation_begins_switched_on() -> None:
    work = Work(lambda _: 0.0)
    work.run(100)
    n = len(work.proposals)
    work.right = lambda _: 0.95
    assert work.run(300) > 1.2
    assert len(work.proposals) > n + 50


def test_chains_are_longer_where_passes_and_verification_are_cheap() -> None:
    means = []
    for share, cost in ((0.02, flat), (0.35, gentle)):
        work = Work(lambda _: 0.85, share=share, cost=cost)
        work.run(400)
        means.append(400 / len(work.proposals))
    assert means[0] > means[1]


@pytest.mark.parametrize(("share", "right", "least"), [(0.02, 0.8, 1.15), (0.1, 0.85, 1.1)])
def test_where_forgiving_pays_chains_get_long_enough_for_it(share: float, right: float, least: float) -> None:
    speeds: dict[float | None, float] = {}
    for forgiven in (None, 0.7):
        works = [Work(lambda _: right, share=share, reading=share / 8, forgiven=forgiven) for _ in range(3)]
        speeds[forgiven] = sorted(work.run(600, seed) for seed, work in enumerate(works))[1]
    assert speeds[0.7] > least * speeds[None]
    assert all(work.n_forgiven > 5 for work in works)


@pytest.mark.parametrize("share", [0.1, 0.35, 0.8])
@pytest.mark.parametrize("right", [0.0, 0.3, 0.5])
def test_a_rule_that_forgives_nothing_loses_less_than_three_per_cent(share: float, right: float) -> None:
    for seed in range(3):
        work = Work(lambda _: right, share=share, reading=share / 8, forgiven=0.0)
        assert work.run(500, seed) > 0.97


def test_what_is_forgiven_does_not_make_drafts_look_right() -> None:
    """After the rule is strict again, estimates are those of a text in which nothing was forgiven."""
    gains = []
    for forgiven in (None, 0.9):
        work = Work(lambda _: 0.7, share=0.05, cost=flat, reading=0.005, forgiven=forgiven)
        work.run(800)
        work.governor.forgive(None)
        gains.append(work.drafter._confidence.chance(0.5))
        assert work.governor.further([0.9, 0.8], 0) == []
    assert gains[1] == pytest.approx(gains[0], abs=0.12)
