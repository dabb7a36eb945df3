"""Drafting with a second model: its cache follows the text, and its drafts are its own greedy text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.methods.base import Walk
from localspec.methods.draft.confidence import Confidence
from localspec.methods.draft.drafter import MAX_DRAFT, DraftDrafter
from localspec.methods.draft.guesses import Guesses
from localspec.methods.draft.methods import make_draft_method
from localspec.tree import Tree
from tests.methods.draft.steps import N_VOCAB, follow, greedy, toy_model
from tests.with_model import FLAT

TOKEN = st.integers(1, N_VOCAB - 1)
PROMPT = st.lists(TOKEN, min_size=1, max_size=30)


@settings(deadline=None, max_examples=60)
@given(st.data(), st.booleans(), st.sampled_from([1, 2, 3]))
def test_after_any_steps_drafts_are_those_of_a_fresh_draft_model(data: Any, guessing: bool, memory: int) -> None:
    model = toy_model(memory=memory)
    drafter = DraftDrafter(model, guessing=guessing)
    text: list[int] = []
    for _ in range(data.draw(st.integers(1, 3))):
        # a new prompt goes on with a part of the old text, or begins anew
        text = text[: data.draw(st.integers(0, len(text)))] + data.draw(PROMPT)
        drafter.start(text)
        for _ in range(data.draw(st.integers(1, 8))):
            size = data.draw(st.integers(1, 20))
            tree = drafter.propose(size)
            assert tree.tokens[0] == text[-1]
            if size > 1:
                assert list(tree.tokens[1:]) == greedy(model, text, min(size - 1, MAX_DRAFT))
            n_accepted = data.draw(st.integers(0, len(tree) - 1))
            text += follow(drafter, tree, n_accepted, data.draw(TOKEN))


def test_guesses_save_passes_and_change_nothing() -> None:
    """Greedy text of the toy soon repeats itself, so what came before is what comes."""
    plain, guessing = toy_model(), toy_model()
    for model in (plain, guessing):
        drafter = DraftDrafter(model, guessing=model is guessing)
        text = [3, 4]
        drafter.start(text)
        for _ in range(20):
            tree = drafter.propose(12)
            assert list(tree.tokens[1:]) == greedy(model, text, 11)
            text += follow(drafter, tree, 11, greedy(model, [*text, *tree.tokens[1:]], 1)[0])
    passes = [len(model.cache.ctx.trees) for model in (plain, guessing)]  # type: ignore[attr-defined]
    assert passes[1] < passes[0] / 2


def test_estimates_follow_how_often_tokens_of_that_confidence_came_true() -> None:
    """Two classes of tokens, those the draft model is surer of and the others, of which one always comes true."""
    for right_if_sure in (True, False):
        confidence = Confidence()
        for _ in range(60):
            confidence.judge(0.93, right_if_sure)
            confidence.judge(0.4, not right_if_sure)
        assert (confidence.chance(0.95) > 0.9) == right_if_sure == (confidence.chance(0.45) < 0.1)
    model = toy_model(memory=3, n_ctx=4000)
    drafter = DraftDrafter(model, guessing=False)
    drafter.start([5, 6, 7])
    first = drafter.propose(5)
    assert all(0 < deeper < p <= 1 for p, deeper in zip(first.p, first.p[1:], strict=False))
    for accepted in (4, 0):
        p = []
        for _ in range(150):
            tree = drafter.propose(5)
            p.append(tree.p[1])
            follow(drafter, tree, accepted, 1 if accepted else 1 + tree.tokens[1] % 23)
        later = sum(p[-30:]) / 30
        assert later > 0.85 if accepted else later < 0.6


def test_nothing_is_read_twice() -> None:
    """What was accepted stays in the cache, and so does the common beginning of the next prompt."""
    model = toy_model(memory=3)
    drafter = DraftDrafter(model, guessing=False)
    ctx: Any = model.cache.ctx
    drafter.start(list(range(1, 21)))
    assert ctx.prefilled == [19]
    text = list(range(1, 21))
    for n_accepted in (4, 0, 2):
        tree = drafter.propose(6)
        text += follow(drafter, tree, n_accepted, 9)
    # root and the four unverified tokens but the last; then t5 and the bonus, and the same again
    assert ctx.n_past() == 20 + 5
    drafter.start([*text, 1, 2, 3])
    assert sum(ctx.prefilled) <= 19 + 6
    drafter.start([*text[:10], 4, 4])
    assert ctx.n_past() == 11 and ctx.prefilled[-1] == 1


@pytest.mark.parametrize("limit", [lambda n: 0, lambda n: n // 2])
def test_a_cache_that_cannot_step_back_is_read_again(limit: Any) -> None:
    model = toy_model(memory=3, trim_to=limit)
    drafter = DraftDrafter(model)
    drafter.start([1, 2, 3, 4, 5])
    drafter.start([1, 2, 3, 9, 9])
    assert list(drafter.propose(6).tokens[1:]) == greedy(model, [1, 2, 3, 9, 9], 5)


def test_a_text_longer_than_the_draft_context_gets_no_drafts() -> None:
    model = toy_model(n_ctx=24)
    drafter = DraftDrafter(model)
    text = list(range(1, 13))
    drafter.start(text)
    seen = []
    while len(text) < 60:
        tree = drafter.propose(16)
        assert list(tree.tokens[1:]) == greedy(model, text, len(tree) - 1)
        seen.append(len(tree))
        text += follow(drafter, tree, len(tree) - 1, 7)
    assert seen[0] > 10 and seen[-1] == 1
    drafter.start(list(range(1, 20)) * 2)
    assert len(drafter.propose(16)) == 1
    drafter.start([1, 2, 3])
    assert len(drafter.propose(16)) > 8, "a shorter text fits again"


@pytest.mark.parametrize(
    ("prompt", "new", "reason"),
    [
        ([1] * 30, (2,), "context of 24 tokens is full"),
        ([1] * 22, (2, 3), "context of 24 tokens is full"),
        ([1, 9, 2], (2,), "does not know a token"),
        ([1, 2, 3], (9,), "does not know a token"),
        ([1, 2, 3], (2,), None),
    ],
)
def test_a_text_that_gets_no_drafts_says_why_once(prompt: list[int], new: tuple[int, ...], reason: str | None) -> None:
    method = make_draft_method("draft", toy_model(n_common=9, n_ctx=24), FLAT, 16)
    for _ in range(2):
        method.drafter.start(prompt)
        method.scheduler.start()
        notes = []
        for _ in range(2):
            tree, rows = Tree.root(1), cast(Any, None)
            method.scheduler.budget()
            method.drafter.observe(tree, rows, Walk((), new))
            notes.append(method.scheduler.observe(tree, Walk((), new), 0.01))
        assert notes[1] is None
        assert (reason is None) == (notes[0] is None) and (reason or "") in (notes[0] or "")


def test_ids_that_mean_something_else_are_neither_drafted_nor_read() -> None:
    """The toy draws all its ids sooner or later; those from 12 on belong to the draft model alone."""
    model = toy_model(n_common=12, memory=3)
    ctx: Any = model.cache.ctx
    drafter = DraftDrafter(model)
    n_drafted = 0
    for first in range(1, 12):
        drafter.start([first, 3])
        tree = drafter.propose(8)
        assert max(tree.tokens) < 12
        n_drafted += len(tree) - 1
    assert 0 < n_drafted < 7 * 11
    before = ctx.n_decodes
    drafter.start([1, 12, 3])
    assert len(drafter.propose(8)) == 1, "the prompt cannot be read"
    drafter.start([1, 2, 3])
    follow(drafter, drafter.propose(4), 1, 13)
    after = ctx.n_decodes
    assert len(drafter.propose(8)) == 1, "the answer cannot be read any more"
    assert ctx.n_decodes == after > before


def test_nothing_is_drafted_behind_an_end_of_text() -> None:
    model = toy_model(eog_bias=2.0)
    drafter = DraftDrafter(model)
    lengths = set()
    for first in range(1, 20):
        drafter.start([first, first])
        tokens = drafter.propose(12).tokens
        assert 0 not in tokens[:-1]
        lengths.add(len(tokens))
    assert len(lengths) > 1


def test_leaves_are_what_else_the_target_might_take() -> None:
    """The chain is the same as without, leaves cost no pass, and where one was accepted the text goes on from there."""
    chain, tree = toy_model(memory=3), toy_model(memory=3)
    drafters = DraftDrafter(chain, guessing=False), DraftDrafter(tree, guessing=False, width=3)
    text = [3, 4, 5]
    for drafter in drafters:
        drafter.start(text)
    for step in range(6):
        alone, wide = drafters[0].propose(6), drafters[1].propose(20)
        spine = [0]
        while children := wide.topology.children[spine[-1]]:
            spine.append(children[0])
            tokens = [wide.tokens[child] for child in children]
            assert len(set(tokens)) == len(tokens) <= 3
        assert tuple(wide.tokens[node] for node in spine[:6]) == alone.tokens
        assert len(wide) > len(spine)
        assert all(wide.p[node] <= wide.p[wide.topology.parents[node]] for node in range(1, len(wide)))
        leaf = next(node for node in range(len(wide) - 1, 0, -1) if node not in spine)
        rows: Any = None
        path = wide.topology.path(leaf)[1:]
        tokens = [*[wide.tokens[node] for node in path], 7 + step]
        for drafter, one, taken in ((drafters[0], alone, ()), (drafters[1], wide, path)):
            drafter.observe(one, rows, Walk(taken, tuple(tokens)))
        text += tokens
        assert list(drafters[1].propose(2).tokens[1:]) == greedy(tree, text, 1)


class Thrifty:
    """A judge to which tokens below a chance are worth nothing."""

    price = 1.0
    stake = 1e9

    def __init__(self, least: float) -> None:
        self.least = least

    def gain(self, n_nodes: int, depth: int, p: float) -> float:
        return 1.0 if p >= self.least else -1.0

    def further(self, p: Sequence[float], n: int) -> list[float]:
        return []


def test_a_chain_ends_where_a_further_pass_does_not_pay() -> None:
    sizes = []
    for least in (0.0, 0.3, 0.9):
        model = toy_model(memory=3)
        drafter = DraftDrafter(model, Thrifty(least), guessing=False)
        drafter.start([1, 2, 3])
        tree = drafter.propose(16)
        assert list(tree.tokens[1:]) == greedy(model, [1, 2, 3], len(tree) - 1)
        sizes.append(len(tree))
    assert sizes[0] == 16 and sizes[2] == 2 <= sizes[1] < 16


def test_reading_a_prompt_can_be_stopped_and_gone_on_with() -> None:
    model = toy_model(memory=3)
    ctx: Any = model.cache.ctx
    drafter = DraftDrafter(model)
    prompt = [1 + i % 20 for i in range(50)]
    asked: list[int] = []
    drafter.cancelled = lambda: len(asked) >= 2 or bool(asked.append(1))
    drafter.start(prompt)
    assert 0 < ctx.n_past() < 49
    drafter.cancelled = None
    drafter.start(prompt)
    assert sum(ctx.prefilled) == 49
    assert list(drafter.propose(6).tokens[1:]) == greedy(model, prompt, 5)


def test_an_error_of_the_draft_model_leaves_the_drafter_usable() -> None:
    model = toy_model(fail_decode=3)
    drafter = DraftDrafter(model, guessing=False)
    drafter.start([1, 2, 3])
    with pytest.raises(Exception, match="decode failed"):
        drafter.propose(8)
    drafter.start([1, 2, 3])
    assert list(drafter.propose(8).tokens[1:]) == greedy(model, [1, 2, 3], 7)


def test_an_interrupt_in_a_pass_leaves_no_tree_open(monkeypatch: pytest.MonkeyPatch) -> None:
    model = toy_model(memory=3)
    ctx: Any = model.cache.ctx
    drafter = DraftDrafter(model, guessing=False)
    drafter.start([1, 2, 3])

    def interrupted(*args: Any) -> Any:
        decode(*args)
        raise KeyboardInterrupt

    decode = ctx.decode
    monkeypatch.setattr(ctx, "decode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        drafter.propose(8)
    monkeypatch.setattr(ctx, "decode", decode)
    text = [1, 2, 9, 4, 5]
    drafter.start(text)
    assert list(drafter.propose(8).tokens[1:]) == greedy(model, text, 7)


def test_the_most_recent_longest_match_is_guessed_and_goes_on_with_itself() -> None:
    guesses = Guesses()
    guesses.start([1, 2, 3, 4, 9, 2, 3, 5, 9, 2, 3])
    assert guesses.find([], 3)[1] == [5, 9, 2]
    assert guesses.find([4], 2)[1] == [9, 2], "the match may end in the draft"
    assert guesses.find([7], 3)[1] == []
    guesses.start([8, 8])
    assert guesses.find([], 4)[1] == [8, 8, 8, 8]


def test_guesses_are_believed_as_far_as_they_come_true() -> None:
    guesses = Guesses()
    before = guesses.chance(3, 0), guesses.chance(3, 1)
    for _ in range(50):
        guesses.count(3, 2, 1)
    assert guesses.chance(3, 0) > before[0] and guesses.chance(3, 1) < before[1] / 4
