"""Which way of accepting goes with what, and what a method becomes with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from localspec.engine.params import SamplingParams
from localspec.errors import UsageError
from localspec.heads.draws import SampledDraft
from localspec.heads.reference import HeadDraft
from localspec.methods.acceptance import Acceptance
from localspec.methods.base import Method
from localspec.methods.draft.governor import DraftGovernor
from localspec.methods.draft.methods import make_draft_method
from localspec.methods.fixed import Fixed
from localspec.methods.fly import LooseRule
from localspec.methods.heads import HeadsDrafter
from localspec.methods.loose import LooseVerifier
from localspec.methods.registry import make_method
from localspec.methods.sequoia import SequoiaVerifier
from localspec.methods.strict import StrictVerifier
from localspec.methods.typical import TypicalVerifier
from localspec.static_tree import StaticTree
from tests.methods.draft.steps import toy_model

WARM = SamplingParams(temperature=0.7)


class Heads:
    """Heads that cannot draw."""

    depth = 2

    def draft(self, g: np.ndarray, root: int, tree: StaticTree, least_p: float = 0.0) -> HeadDraft:
        raise AssertionError


class DrawingHeads(Heads):
    def draft_sampled(self, *_: Any) -> SampledDraft:
        raise AssertionError


def heads_method(heads: Heads) -> Method:
    return Method("heads", HeadsDrafter(heads, StaticTree.greedy(2)), Fixed(8), StrictVerifier())


def piece(token: int) -> bytes:
    return b" word"


def lookup() -> Method:
    return make_method("lookup", curve=None, max_nodes=8)


def test_sample_and_match_is_the_default() -> None:
    method = lookup()
    assert Acceptance().apply(method, SamplingParams(), 1, piece) is method
    assert method.verifier.lossless


def test_typical_acceptance_goes_with_any_method_and_is_lossy() -> None:
    for method in (lookup(), heads_method(Heads())):
        made = Acceptance("typical").apply(method, WARM, 1, piece)
        assert isinstance(made.verifier, TypicalVerifier) and not made.verifier.lossless
        assert made.drafter is method.drafter and method.verifier.lossless


def test_loose_acceptance_goes_with_any_method_and_any_sampler_and_is_lossy() -> None:
    rule = LooseRule(0.5, 4)
    for sampling in (WARM, SamplingParams(repeat_penalty=1.1), SamplingParams(json_schema={})):
        for method in (lookup(), heads_method(Heads())):
            made = Acceptance("loose", loose=rule).apply(method, sampling, 1, piece)
            assert isinstance(made.verifier, LooseVerifier) and not made.verifier.lossless
            assert made.verifier.rule == rule and made.drafter is method.drafter


def test_a_draft_model_drafts_for_what_is_forgiven_as_long_as_something_is() -> None:
    method = make_draft_method("draft", toy_model(), None, 32)
    governor = method.scheduler
    assert isinstance(governor, DraftGovernor)
    p = [0.9**depth for depth in range(1, 13)]
    for acceptance, forgives in ((Acceptance("loose"), True), (Acceptance(), False), (Acceptance("typical"), False)):
        made = acceptance.apply(method, WARM, 1, piece)
        assert made.scheduler is governor
        assert bool(governor.further(p, 3)) == forgives


def test_only_loose_acceptance_tells_parameters() -> None:
    assert Acceptance("typical").to_dict() == {"accept": "typical"}
    told = {"accept": "loose", "theta": 0.3, "window": 6, "entropy": "top3", "ratio": 0.0, "literals": "loose"}
    assert Acceptance("loose").to_dict() == told
    assert str(Acceptance("loose", loose=LooseRule(ratio=0.5))).endswith("window 6, top3 entropy, ratio 0.5")
    assert str(Acceptance("loose", loose=LooseRule(literals="exact"))).endswith("ratio 0, exact literals")


def test_heads_that_can_draw_get_the_verifier_that_knows_the_draws() -> None:
    made = Acceptance(draft_sampling=True).apply(heads_method(DrawingHeads()), WARM, 1, piece)
    assert isinstance(made.verifier, SequoiaVerifier) and made.verifier.lossless


@pytest.mark.parametrize(
    "acceptance", [Acceptance("typical"), Acceptance("loose"), Acceptance(draft_sampling=True)], ids=str
)
def test_plain_decoding_has_nothing_to_accept(acceptance: Acceptance) -> None:
    plain = make_method("plain", curve=None, max_nodes=8)
    assert acceptance.apply(plain, WARM, 1, piece) is plain


@pytest.mark.parametrize(
    ("acceptance", "sampling", "words"),
    [
        (Acceptance(draft_sampling=True), SamplingParams(temperature=0.69), "temperature=0.7 or more, not 0.69"),
        (Acceptance(draft_sampling=True), SamplingParams(temperature=0.0), "temperature=0.7 or more, not 0"),
        (Acceptance("typical", True), WARM, "exclude"),
        (Acceptance("loose", True), WARM, "exclude"),
        (Acceptance("typical"), SamplingParams(repeat_penalty=1.1), "no penalty"),
        (Acceptance("typical"), SamplingParams(grammar='root ::= "a"'), "grammar"),
        (Acceptance("typical"), SamplingParams(json_schema={}), "JSON schema"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused_with_the_way_out(
    acceptance: Acceptance, sampling: SamplingParams, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as error:
        acceptance.apply(heads_method(DrawingHeads()), sampling, 1, piece)
    assert error.value.hint


@pytest.mark.parametrize(
    ("method", "words"),
    [(lookup(), "heads alone, and 'lookup' does not"), (heads_method(Heads()), "cannot draft by chance")],
    ids=["no heads", "heads that cannot draw"],
)
def test_draft_sampling_without_heads_that_draw_is_refused(method: Method, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        Acceptance(draft_sampling=True).apply(method, WARM, 1, piece)
    assert error.value.hint
