"""Texts drafted by chance, through the whole loop on a tiny model, have the law that its logits say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from localspec.calibrate.curve import CostCurve
from localspec.decode import Generator, Limits
from localspec.engine.base import TreeContext
from localspec.engine.model import Model
from localspec.engine.params import ContextParams, SamplingParams
from localspec.engine.sampler import ChainSampler
from localspec.entmtp.policies import Ladder, Policy
from localspec.events import StepEvent
from localspec.heads.reference import ReferenceHeads
from localspec.heads.spec import HeadSpec, tensor_shapes
from localspec.heads.tensors import Heads
from localspec.methods.acceptance import Acceptance
from localspec.methods.bank import BankGovernor, TreeBank
from localspec.methods.base import Method, Walk
from localspec.methods.fixed import Fixed
from localspec.methods.governor import Governor
from localspec.methods.heads import HeadsDrafter
from localspec.methods.sampled import DraftSampling
from localspec.methods.strict import StrictVerifier
from localspec.static_tree import StaticTree
from localspec.tree import Tree
from tests.engine.conftest import PlainDecoder

PROMPT = [5 + byte for byte in b"to be"]
TOP_K, TEMPERATURE, N_TOKENS = 3, 0.9, 4
PARAMS: dict[str, Any] = {"temperature": TEMPERATURE, "top_k": TOP_K, "top_p": 1.0, "min_p": 0.0}
TREE = StaticTree.from_paths([[0], [1], [2], [0, 0], [0, 1], [1, 0], [2, 0], [2, 1]])
N = 2_500
#: small trees pay
CURVE = CostCurve((1, 4, 64), (0.01, 0.0102, 0.05))

Law = dict[tuple[int, ...], float]


@pytest.fixture(scope="module")
def model(tiny: dict[str, Model]) -> Model:
    return tiny["llama"]


@pytest.fixture(scope="module")
def target(model: Model) -> Law:
    """The exact law of the first tokens, from logits that llama.cpp computes without trees."""
    decoder = PlainDecoder(model)
    decoder.prompt(PROMPT[:-1])
    law: Law = {(): 1.0}
    for _ in range(N_TOKENS):
        longer: Law = {}
        for text, chance in law.items():
            if text and text[-1] in model.eog:
                longer[text] = chance
                continue
            logits = decoder.logits([PROMPT[-1], *text]).astype(np.float64)
            best = np.argsort(-logits)[:TOP_K]
            p = np.exp((logits[best] - logits[best[0]]) / TEMPERATURE)
            longer |= {(*text, int(t)): chance * share for t, share in zip(best, p / p.sum(), strict=True)}
        law = longer
    decoder.close()
    return law


@pytest.fixture(scope="module")
def heads(model: Model, target: Law) -> ReferenceHeads:
    """Heads that hardly know more than how frequent tokens are, over a vocabulary with half of the tokens that the
    target says here, and two that it does not."""
    shares: dict[int, float] = {}
    for text, chance in target.items():
        for token in text[1:]:
            shares[token] = shares.get(token, 0.0) + chance / (N_TOKENS - 1)
    rng = np.random.default_rng(2)
    known = sorted(shares, key=shares.__getitem__, reverse=True)[: len(shares) // 2]
    d2t = np.array(known + [token for token in range(40, 60) if token not in shares][:2], dtype=np.int32)
    spec = HeadSpec(
        arch="hydra-mlp", n_heads=2, n_layers=1, n_embd=model.n_embd, n_vocab=model.n_vocab, grounded=True,
        n_draft_vocab=len(d2t), shared_output=True, output_bias=True,
    )  # fmt: skip
    tensors = {
        name: (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        for name, shape in tensor_shapes(spec).items()
    }
    bias = next(name for name in tensors if name.endswith("output.bias"))
    tensors[bias] = np.log([shares.get(token, 0.01) for token in d2t.tolist()]).astype(np.float32)
    embedding = rng.standard_normal((model.n_vocab, model.n_embd)).astype(np.float32)
    return ReferenceHeads(Heads(spec, tensors, d2t), embedding)


@pytest.fixture(scope="module")
def context(model: Model) -> Iterator[TreeContext]:
    made = model.new_context(ContextParams(n_ctx=256, n_threads=1, hidden=True))
    yield made
    made.close()


def critical(degrees: int) -> float:
    """The 99.9 % point of chi-square (Wilson and Hilferty's approximation, good to 0.1 here)."""
    spread = 2 / (9 * degrees)
    return float(degrees * (1 - spread + 3.0902 * np.sqrt(spread)) ** 3)


def statistic(model: Model, context: TreeContext, method_of: Callable[[ChainSampler], Method], law: Law) -> Any:
    """(chi-square of N texts over its 99.9 % point, drafts accepted per text)."""
    texts = list(law)
    counts = dict.fromkeys(texts, 0)
    accepted = 0
    generator = Generator(model, context)
    for seed in range(N):
        with ChainSampler(model, SamplingParams(**PARAMS, seed=seed)) as sampler:
            sampler.start(PROMPT)
            events = generator.generate(PROMPT, sampler, method_of(sampler), Limits(N_TOKENS))
            steps = [event for event in events if isinstance(event, StepEvent)]
        counts[tuple(token for step in steps for token in step.tokens)] += 1
        accepted += sum(len(step.path) for step in steps)
    expected = {text: N * p for text, p in law.items()}
    # the rare texts together are one case
    rare = [text for text in texts if expected[text] < 5]
    cases = [[text] for text in texts if text not in rare] + ([rare] if rare else [])
    sums = [(sum(counts[text] for text in case), sum(expected[text] for text in case)) for case in cases]
    chi_square = sum((seen - due) ** 2 / due for seen, due in sums)
    return chi_square / critical(len(sums) - 1), accepted / N


@pytest.mark.parametrize("nodes", [16, 4])
def test_the_first_tokens_have_the_law_of_the_target(
    model: Model, context: TreeContext, heads: ReferenceHeads, target: Law, nodes: int
) -> None:
    """With the whole tree, and cut to the nodes with the best estimates."""
    method = Method("heads", HeadsDrafter(heads, TREE), Fixed(nodes), StrictVerifier())

    def drawing(sampler: ChainSampler) -> Method:
        return Acceptance(draft_sampling=True).apply(method, sampler.params, sampler.seed, model.piece)

    excess, accepted = statistic(model, context, drawing, target)
    assert accepted > 0.3
    assert excess < 1


class Timeless:
    """A governor for which all steps take as long as the curve says, not as the machine is busy."""

    def observe(self, tree: Tree, walk: Walk, seconds: float, propose_seconds: float = 0.0) -> str | None:
        note: str | None = super().observe(tree, walk, CURVE.cost(len(tree)))  # type: ignore[misc]
        return note


class TimelessGovernor(Timeless, Governor):
    pass


class TimelessBank(Timeless, BankGovernor):
    pass


def governed(heads: ReferenceHeads, policy: Policy | None) -> Method:
    """Heads under the governor, or under a policy that picks from a bank."""
    if policy is None:
        return Method("heads", HeadsDrafter(heads, TREE), TimelessGovernor(CURVE, 16), StrictVerifier())
    bank = TreeBank([StaticTree.from_paths([[0], [0, 0]]), TREE])
    drafter = HeadsDrafter(heads, bank.union, scored=True)
    return Method("bank", drafter, TimelessBank(CURVE, 16, bank, policy, drafter.score), StrictVerifier())


@pytest.mark.parametrize("policy", [None, Ladder(2, (0.05,), 1)], ids=["governor", "ladder"])
def test_a_scheduler_that_looks_at_estimates_and_scores_keeps_the_law(
    model: Model, context: TreeContext, heads: ReferenceHeads, target: Law, policy: Policy | None
) -> None:
    method = governed(heads, policy)

    def drawing(sampler: ChainSampler) -> Method:
        return Acceptance(draft_sampling=True).apply(method, sampler.params, sampler.seed, model.piece)

    excess, accepted = statistic(model, context, drawing, target)
    assert accepted > 0.2
    assert excess < 1


class Peeking(HeadsDrafter):
    """Estimates that look at what was drawn: what trees of the most likely tokens are cut by."""

    def _drawn(self, hidden: Any, sampling: DraftSampling, heads: Any) -> Tree:
        tree = super()._drawn(hidden, sampling, heads)
        drawn = sampling.drawn
        assert drawn is not None
        p = [1.0]
        for node, parent in enumerate(tree.topology.parents[1:], start=1):
            p.append(p[parent] * float(drawn.laws[parent][drawn.row_of[tree.tokens[node]]]))
        return replace(tree, p=tuple(p))


def test_the_statistic_finds_a_tree_that_is_cut_by_the_probability_of_its_draws(
    model: Model, context: TreeContext, heads: ReferenceHeads, target: Law
) -> None:
    method = Method("peeking", Peeking(heads, TREE), Fixed(2), StrictVerifier())

    def drawing(sampler: ChainSampler) -> Method:
        return Acceptance(draft_sampling=True).apply(method, sampler.params, sampler.seed, model.piece)

    excess, _ = statistic(model, context, drawing, target)
    assert excess > 1.5


def test_a_seed_repeats_a_text_that_was_drafted_by_chance_in_the_same_trees(
    model: Model, context: TreeContext, heads: ReferenceHeads
) -> None:
    def text(seed: int) -> list[int]:
        method = Method("heads", HeadsDrafter(heads, TREE), Fixed(16), StrictVerifier())
        with ChainSampler(model, SamplingParams(**PARAMS, seed=seed)) as sampler:
            sampler.start(PROMPT)
            made = Acceptance(draft_sampling=True).apply(method, sampler.params, sampler.seed, model.piece)
            events = Generator(model, context).generate(PROMPT, sampler, made, Limits(24))
            return [token for event in events if isinstance(event, StepEvent) for token in event.tokens]

    assert text(1) == text(1) != text(2)
