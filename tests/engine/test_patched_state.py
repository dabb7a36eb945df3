"""Results and state of the patched library: statistics, hidden states, graphs, histories of a chain, prompt caches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from localspec.decode import Generator, Limits
from localspec.engine.base import FloatArray
from localspec.engine.model import Model
from localspec.engine.params import SamplingParams
from localspec.engine.patched import PatchedContext
from localspec.engine.sampler import ChainSampler
from localspec.errors import EngineError
from localspec.events import DoneEvent, PromptEvent, StepEvent
from localspec.methods.registry import make_method
from tests.engine.trees import (
    NEEDS_PATCHES,
    MakePatched,
    one_by_one,
    path_to,
    random_tokens,
    random_tree,
)

pytestmark = NEEDS_PATCHES

Models = dict[str, Model]


def test_row_statistics_equal_numpy(tiny_q4: Models, make_patched: MakePatched) -> None:
    ctx = make_patched(tiny_q4["llama"])
    ctx.prefill(list(range(30, 50)))
    rows = ctx.decode(*random_tree(np.random.default_rng(4), 12))
    for i in range(12):
        row = rows.logits(i).astype(np.float64)
        order = np.lexsort((np.arange(len(row)), -row))
        for k in (1, 5, 16):
            ids, logits = rows.top_k(i, k)
            np.testing.assert_array_equal(ids, order[:k])
            np.testing.assert_array_equal(logits, rows.logits(i)[ids])
        p = np.exp(row - row.max())
        lse = np.log(p.sum()) + row.max()
        p /= p.sum()
        assert rows.logsumexp(i) == pytest.approx(lse, rel=1e-6)
        assert rows.entropy(i) == pytest.approx(-(p * np.log(p)).sum(), rel=1e-5)
        assert rows.argmax(i) == order[0]


def test_rows_of_an_earlier_decode_are_refused(tiny_q4: Models, make_patched: MakePatched) -> None:
    ctx = make_patched(tiny_q4["llama"])
    rows = ctx.decode([5], [-1])
    ctx.accept([0])
    assert rows.argmax(0) >= 0  # rows outlive accept
    ctx.decode([6], [-1])
    with pytest.raises(EngineError, match="earlier decode"):
        rows.logits(0)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_hidden_states_are_those_of_plain_decoding(tiny_q4: Models, make_patched: MakePatched, kind: str) -> None:
    ctx, plain = make_patched(tiny_q4[kind]), make_patched(tiny_q4[kind])
    for each in (ctx, plain):
        each.prefill(list(range(30, 50)))
    hidden = ctx.decode([5, 6, 7, 8], [-1, 0, 0, 2]).hidden(3)
    one_by_one(plain, [5, 7])
    np.testing.assert_allclose(hidden, plain.decode([8], [-1]).hidden(0), atol=1e-5)


def test_a_tree_larger_than_a_physical_batch_gives_the_same_rows(tiny_q4: Models, make_patched: MakePatched) -> None:
    """Several physical batches: rows and hidden states come from copies, in node order."""
    tokens, parents = random_tree(np.random.default_rng(8), 50)
    small, large = make_patched(tiny_q4["llama"], n_ubatch=16), make_patched(tiny_q4["llama"], n_ubatch=256)
    rows, expected = small.decode(tokens, parents), large.decode(tokens, parents)
    for i in range(50):
        np.testing.assert_array_equal(rows.logits(i), expected.logits(i))
        np.testing.assert_allclose(rows.hidden(i), expected.hidden(i), atol=1e-5)


def test_changing_the_tree_builds_no_graph_for_a_size_seen_before(tiny_q4: Models, make_patched: MakePatched) -> None:
    rng = np.random.default_rng(2)
    ctx = make_patched(tiny_q4["llama"])
    ctx.prefill(random_tokens(rng, 20))
    sizes = [1, 4, 7, 16, 2]
    for size in sizes:
        ctx.decode(*random_tree(rng, size))
        ctx.drop()
    before = ctx.graph_builds
    for _ in range(20):
        ctx.decode(*random_tree(rng, int(rng.choice(sizes))))
        ctx.drop()
    assert ctx.graph_builds == before
    ctx.decode(*random_tree(rng, 9))
    assert ctx.graph_builds == before + 1


class History:
    """Random calls on two sequences of a context, and what the sequences must hold after each."""

    def __init__(self, ctx: PatchedContext, seed: int) -> None:
        self.ctx = ctx
        self.rng = np.random.default_rng(seed)
        self.chains: list[list[int]] = [[], []]
        self.trees: list[tuple[list[int], list[int]]] = [([], []), ([], [])]

    def step(self) -> None:
        seq = int(self.rng.integers(2))
        chain, (tokens, parents) = self.chains[seq], self.trees[seq]
        call = self.rng.choice(["grow", "grow", "accept", "accept", "drop", "trim", "prefill"])
        if call == "grow" and sum(map(len, self.chains)) < 180 and len(tokens) < 30:
            more = random_tree(self.rng, int(self.rng.integers(1, 9)), len(tokens))
            self.ctx.decode(*more, seq)
            self.trees[seq] = (tokens + more[0], parents + more[1])
            return
        if call == "accept" and tokens:
            path = path_to(parents, int(self.rng.integers(len(tokens))))[: int(self.rng.integers(1, 6))]
            self.ctx.accept(path, seq)
            chain += [tokens[node] for node in path]
        elif call == "prefill" and len(chain) < 60:
            self.ctx.drop(seq)
            more_tokens = random_tokens(self.rng, int(self.rng.integers(1, 20)))
            self.ctx.prefill(more_tokens, seq)
            chain += more_tokens
        elif call == "trim":
            kept = self.ctx.trim(int(self.rng.integers(len(chain) + 1)), seq)
            del chain[kept:]
        else:
            self.ctx.drop(seq)
        self.trees[seq] = ([], [])


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@pytest.mark.parametrize("unified", [False, True], ids=["streams", "unified"])
def test_the_cache_holds_exactly_the_chain_and_the_open_tree_after_every_call(
    tiny_q4: Models, make_patched: MakePatched, kind: str, unified: bool
) -> None:
    """P16: rejected nodes never stay behind, whatever was accepted, dropped or trimmed before."""
    for seed in range(4):
        ctx = make_patched(tiny_q4[kind], {"kv_unified": unified}, n_ctx=512, n_seq_max=2)
        history = History(ctx, seed)
        for _ in range(120):
            history.step()
            for seq in range(2):
                assert ctx.n_past(seq) == len(history.chains[seq])
                assert len(ctx.cells(seq)) == ctx.n_past(seq) + len(history.trees[seq][0])


def row_after(ctx: PatchedContext, cached: Sequence[int], prompt: Sequence[int], token: int) -> FloatArray:
    """The row of `token` behind `prompt`, read as the loop does: the common beginning with `cached` stays."""
    ctx.prefill(cached)
    common = 0
    while common < min(len(cached), len(prompt)) and cached[common] == prompt[common]:
        common += 1
    kept = ctx.trim(common)
    ctx.prefill(prompt[kept:])
    return ctx.decode([token], [-1]).logits(0).copy()


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_cached_prompt_continues_like_a_fresh_one(tiny_q4: Models, make_patched: MakePatched, kind: str) -> None:
    """P42: wherever the cache ends, and however many tokens are read at once, the rows are the same to the bit."""
    rng = np.random.default_rng(13)
    text, other = random_tokens(rng, 150), random_tokens(rng, 20)
    q4 = tiny_q4[kind]
    fresh = row_after(make_patched(q4), [], text, 9)
    for n in (1, 43, 64, 100, 128):
        np.testing.assert_array_equal(row_after(make_patched(q4), text[:n] + other, text, 9), fresh)
    small = make_patched(q4, n_ubatch=32, n_batch=32)
    np.testing.assert_array_equal(row_after(small, [], text, 9), fresh)


def answer(generator: Generator, model: Model, prompt: list[int], method: str) -> tuple[list[int], int]:
    """Sampled tokens, and how much of the prompt was found in the cache."""
    tokens: list[int] = []
    n_cached = -1
    chosen = make_method(method, curve=None, max_nodes=16, governed=False)
    # a text that does not end early
    sampling = SamplingParams(temperature=1.0, seed=99, logit_bias=dict.fromkeys(model.eog, -1000.0))
    with ChainSampler(model, sampling) as sampler:
        sampler.start(prompt)
        for event in generator.generate(prompt, sampler, chosen, Limits(40)):
            if isinstance(event, PromptEvent):
                n_cached = event.n_cached
            elif isinstance(event, StepEvent):
                tokens += event.tokens
            elif isinstance(event, DoneEvent):
                break
    return tokens, n_cached


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_the_same_seed_on_the_same_cache_gives_the_same_text(
    tiny_q4: Models, make_patched: MakePatched, kind: str
) -> None:
    """P42: fresh, cached by an earlier answer, with drafts and without: one text for each state of the cache."""
    model = tiny_q4[kind]
    rng = np.random.default_rng(21)
    first, second = random_tokens(rng, 100), random_tokens(rng, 30)
    texts = []
    for method in ("plain", "lookup", "ptd", "plain"):
        generator = Generator(model, make_patched(model))
        new, n_new = answer(generator, model, first, method)
        again, n_again = answer(generator, model, first + second, method)
        once_more, n_once_more = answer(generator, model, first + second, method)
        assert (n_new, n_again, n_once_more) == (0, 100, 129)
        assert once_more == again
        texts.append((new, again))
        assert [len(text) for text in texts[0]] == [40, 40]
    assert all(text == texts[0] for text in texts)
