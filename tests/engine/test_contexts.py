"""The contract of `TreeContext`, for both modes: a tree never changes what the model computes.

Rows are compared with `PlainDecoder`. Accepted rows may lie out of position order in the cache of a stock context, and
flash attention sums in half precision in that order. So the models here have float weights, and contexts a float cache
and no flash attention: then a correct row differs by rounding alone, and one that saw a token too many or too few by
orders of magnitude more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from localspec.engine.base import TreeContext
from localspec.engine.host import HostRows
from localspec.engine.model import Model
from localspec.engine.stock import StockContext
from localspec.errors import ContextLengthError, EngineError, UsageError
from tests.engine.conftest import MakeContext, PlainDecoder
from tests.tiny_models import N_SWA, N_VOCAB

ATOL = 1e-3
N_PROMPT = 40

EXACT: dict[str, Any] = {"flash_attn": False, "type_k": "f32", "type_v": "f32"}

MakePair = Callable[..., tuple[TreeContext, PlainDecoder]]


@pytest.fixture(params=["llama", "gemma3"])
def attention(request: pytest.FixtureRequest, tiny: dict[str, Model]) -> Model:
    return tiny[request.param]


@pytest.fixture
def make_pair(mode: str, make_context: MakeContext, make_plain: Callable[..., PlainDecoder]) -> MakePair:
    """A context and a plain decoder that compute in the same way."""

    def make(model: Model, **params: Any) -> tuple[TreeContext, PlainDecoder]:
        context = make_context(model, mode, **EXACT, **params)
        return context, make_plain(model, flash_attn=False)

    return make


def random_tokens(rng: random.Random, n: int) -> list[int]:
    return [rng.randrange(5, N_VOCAB) for _ in range(n)]


def random_parents(rng: random.Random, n_open: int, n: int) -> list[int]:
    """Parents of `n` nodes below `n_open` open ones: chains, bushes and what is between."""
    spread = rng.choice([1, 2, 4, 64])
    return [
        -1 if node == 0 or rng.random() < 0.05 else rng.randrange(max(0, node - spread), node)
        for node in range(n_open, n_open + n)
    ]


def path_to(parents: Sequence[int], node: int) -> list[int]:
    path = [node]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path[::-1]


class OpenTree:
    """A random tree, grown in several decodes, whose every row is compared with the plain decoder."""

    def __init__(self, context: TreeContext, plain: PlainDecoder, behind: Sequence[int] = (), seq: int = 0) -> None:
        self.context, self.plain, self.behind, self.seq = context, plain, list(behind), seq
        self.tokens: list[int] = []
        self.parents: list[int] = []

    def path_tokens(self, node: int) -> list[int]:
        return [self.tokens[step] for step in path_to(self.parents, node)]

    def grow(self, rng: random.Random, n: int) -> None:
        first = len(self.tokens)
        tokens, parents = random_tokens(rng, n), random_parents(rng, first, n)
        rows = self.context.decode(tokens, parents, self.seq)
        self.tokens += tokens
        self.parents += parents
        assert len(rows) == n
        for i in range(n):
            want = self.plain.logits(self.behind + self.path_tokens(first + i))
            np.testing.assert_allclose(rows.logits(i), want, atol=ATOL, rtol=0)

    def accept(self, node: int) -> list[int]:
        self.context.accept(path_to(self.parents, node), self.seq)
        return self.behind + self.path_tokens(node)


def assert_continues(
    context: TreeContext, plain: PlainDecoder, behind: Sequence[int], n: int = 20, seq: int = 0
) -> None:
    """The next `n` tokens after the prompt and `behind` get the rows of a context that never held a tree."""
    rng = random.Random(99)
    text = list(behind)
    for token in random_tokens(rng, n):
        text.append(token)
        row = context.decode([token], [-1], seq).logits(0)
        np.testing.assert_allclose(row, plain.logits(text), atol=ATOL, rtol=0)
        context.accept([0], seq)


@pytest.mark.parametrize("seed", range(6))
def test_every_node_sees_exactly_its_path(attention: Model, make_pair: MakePair, seed: int) -> None:
    rng = random.Random(seed)
    context, plain = make_pair(attention)
    prompt = random_tokens(rng, N_PROMPT)
    context.prefill(prompt)
    plain.prompt(prompt)
    tree = OpenTree(context, plain)
    for n in rng.choice([[1], [20], [64], [1, 7, 9], [10, 1, 1, 20], [3, 3, 3, 3, 3, 3]]):
        tree.grow(rng, n)
    assert context.n_past() == N_PROMPT


@pytest.mark.parametrize("seed", range(4))
def test_text_after_accepted_paths_is_that_of_a_clean_context(attention: Model, make_pair: MakePair, seed: int) -> None:
    rng = random.Random(seed)
    context, plain = make_pair(attention)
    prompt = random_tokens(rng, N_PROMPT)
    context.prefill(prompt)
    plain.prompt(prompt)
    behind: list[int] = []
    for _ in range(5):
        tree = OpenTree(context, plain, behind)
        for n in rng.choice([[12], [5, 5], [1]]):
            tree.grow(rng, n)
        behind = tree.accept(rng.randrange(len(tree.tokens)))
        assert context.n_past() == N_PROMPT + len(behind)
    assert_continues(context, plain, behind)


def test_dropped_tree_leaves_no_trace(attention: Model, make_pair: MakePair) -> None:
    rng = random.Random(1)
    context, plain = make_pair(attention)
    prompt = random_tokens(rng, N_PROMPT)
    context.prefill(prompt)
    plain.prompt(prompt)
    for _ in range(3):
        tree = OpenTree(context, plain)
        tree.grow(rng, 9)
        tree.grow(rng, 9)
        context.drop()
    context.drop()
    assert context.n_past() == N_PROMPT
    assert_continues(context, plain, [])


def test_trimmed_chain_continues_like_a_fresh_one(attention: Model, make_pair: MakePair) -> None:
    rng = random.Random(2)
    context, plain = make_pair(attention)
    prompt = random_tokens(rng, N_PROMPT)
    context.prefill(prompt)
    plain.prompt(prompt[:25])
    tree = OpenTree(context, plain, prompt[25:])
    tree.grow(rng, 12)
    tree.accept(11)
    tree = OpenTree(context, plain, prompt[25:] + tree.path_tokens(11))
    tree.grow(rng, 5)

    assert context.trim(10**6) == context.n_past()
    kept = context.trim(25)
    assert kept == context.n_past()
    assert kept in (0, 25)
    context.prefill(prompt[kept:25])
    assert_continues(context, plain, [])


@pytest.mark.parametrize("seed", range(4))
def test_any_history_of_calls_leads_to_the_same_rows(attention: Model, make_pair: MakePair, seed: int) -> None:
    rng = random.Random(seed)
    context, plain = make_pair(attention, n_ctx=256)
    prompt = random_tokens(rng, 10)
    context.prefill(prompt)
    plain.prompt(prompt)
    behind: list[int] = []
    for _ in range(12):
        tree = OpenTree(context, plain, behind)
        tree.grow(rng, rng.randrange(1, 12))
        if rng.random() < 0.7:
            behind = tree.accept(rng.randrange(len(tree.tokens)))
        else:
            context.drop()
        if rng.random() < 0.5:
            behind = behind[: rng.randrange(len(behind) + 1)]
            kept = context.trim(10 + len(behind))
            behind += random_tokens(rng, rng.randrange(1, 6))
            context.prefill((prompt + behind)[kept:])
        assert context.n_past() == 10 + len(behind)
    assert_continues(context, plain, behind, n=5)


def test_window_that_moved_on_is_either_kept_or_reported(tiny: dict[str, Model], make_pair: MakePair) -> None:
    rng = random.Random(3)
    context, plain = make_pair(tiny["gemma3"])
    prompt = random_tokens(rng, 3 * N_SWA)
    context.prefill(prompt)
    plain.prompt(prompt[: N_SWA + 10])
    tree = OpenTree(context, plain, prompt[N_SWA + 10 :])
    tree.grow(rng, 20)
    context.drop()
    kept = context.trim(N_SWA + 10)
    context.prefill(prompt[kept : N_SWA + 10])
    assert_continues(context, plain, [])


@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba", "lfm2"])
@pytest.mark.parametrize("asks", [0, 3, 12])
def test_stopping_inside_a_chunk_of_the_prompt_leaves_a_plain_chain(
    tiny: dict[str, Model], make_pair: MakePair, name: str, asks: int
) -> None:
    rng = random.Random(6)
    (context, _), (clean, _) = make_pair(tiny[name]), make_pair(tiny[name])
    prompt = random_tokens(rng, 90)
    context.prefill(prompt[:20])
    asked = iter(range(asks))
    done = context.prefill(prompt[20:], progress=lambda _: next(asked, None) is not None)
    kept = context.n_past()
    assert done == 0 and kept in ((20,) if name in ("llama", "gemma3") else (0, 20))
    context.prefill(prompt[kept:])
    clean.prefill(prompt)
    for token in random_tokens(rng, 3):
        rows = [each.decode([token], [-1]).logits(0) for each in (context, clean)]
        np.testing.assert_allclose(*rows, atol=ATOL, rtol=0)
        context.accept([0])
        clean.accept([0])


def test_an_error_of_the_progress_callback_ends_the_prompt_and_reaches_the_caller(
    attention: Model, make_pair: MakePair
) -> None:
    rng = random.Random(7)
    context, plain = make_pair(attention)
    prompt = random_tokens(rng, 64)

    def interrupted(_done: int) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        context.prefill(prompt, progress=interrupted)
    assert context.n_past() == 0
    context.prefill(prompt)
    plain.prompt(prompt)
    assert_continues(context, plain, [], n=3)


def test_tree_larger_than_a_physical_batch(attention: Model, make_pair: MakePair) -> None:
    rng = random.Random(4)
    context, plain = make_pair(attention, n_ubatch=16)
    prompt = random_tokens(rng, 16)
    context.prefill(prompt)
    plain.prompt(prompt)
    tree = OpenTree(context, plain)
    tree.grow(rng, 40)
    assert_continues(context, plain, tree.accept(39))


def test_tree_fills_the_cache_to_the_last_cell(attention: Model, make_pair: MakePair) -> None:
    rng = random.Random(5)
    context, plain = make_pair(attention, n_ctx=256)
    prompt = random_tokens(rng, 256 - 12)
    context.prefill(prompt[:100])
    context.prefill(prompt[100:])
    plain.prompt(prompt[:100])
    behind = prompt[100:]
    tree = OpenTree(context, plain, behind)
    tree.grow(rng, 8)
    tree.grow(rng, 4)
    with pytest.raises(ContextLengthError):
        context.decode([7], [0])
    assert context.n_past() == 256 - 12
    assert_continues(context, plain, behind, n=12)
    with pytest.raises(ContextLengthError):
        context.decode([7], [-1])
    assert context.n_past() == 256


def test_prompt_that_does_not_fit_changes_nothing(tiny: dict[str, Model], mode: str, make_context: MakeContext) -> None:
    context = make_context(tiny["llama"], mode, n_ctx=256)
    context.prefill([7] * 200)
    with pytest.raises(ContextLengthError):
        context.prefill([7] * 57)
    assert context.n_past() == 200
    assert context.prefill([7] * 56) == 56


def test_sequences_do_not_see_each_other(attention: Model, make_pair: MakePair) -> None:
    rng = random.Random(6)
    context, plain = make_pair(attention, n_seq_max=3)
    prompts = [random_tokens(rng, n) for n in (12, 20, 28)]
    for seq, prompt in enumerate(prompts):
        context.prefill(prompt, seq)
    trees = [OpenTree(context, plain, prompt[10:], seq) for seq, prompt in enumerate(prompts)]
    for _ in range(2):
        for prompt, tree in zip(prompts, trees, strict=True):
            plain.prompt(prompt[:10])
            tree.grow(rng, 10)
    behind = [tree.accept(19) for tree in (trees[0], trees[1])]
    context.drop(2)
    assert [context.n_past(seq) for seq in range(3)] == [10 + len(behind[0]), 10 + len(behind[1]), 28]
    context.trim(0, 1)
    plain.prompt(prompts[0][:10])
    assert_continues(context, plain, behind[0], seq=0)
    plain.prompt(prompts[2][:10])
    assert_continues(context, plain, prompts[2][10:], seq=2)


@pytest.mark.parametrize(
    ("tokens", "parents", "error"),
    [
        ([9, N_VOCAB + 5], [-1, 0], (EngineError, UsageError)),
        ([9, 9], [-1, 50], UsageError),
        ([9, 9], [-1], UsageError),
        ([], [], UsageError),
        ([9] * 257, [-1] * 257, UsageError),
    ],
    ids=["unknown token", "parent after child", "missing parent", "no node", "too many nodes"],
)
def test_refused_tree_leaves_a_working_chain(
    tiny: dict[str, Model], make_pair: MakePair, tokens: list[int], parents: list[int], error: Any
) -> None:
    rng = random.Random(7)
    context, plain = make_pair(tiny["llama"])
    prompt = random_tokens(rng, N_PROMPT)
    context.prefill(prompt)
    plain.prompt(prompt)
    OpenTree(context, plain).grow(rng, 6)
    with pytest.raises(error):
        context.decode(tokens, parents)
    assert context.n_past() == N_PROMPT
    assert_continues(context, plain, [], n=5)


def test_accepting_what_is_no_path_leaves_a_working_chain(tiny: dict[str, Model], make_pair: MakePair) -> None:
    context, plain = make_pair(tiny["llama"])
    prompt = random_tokens(random.Random(8), N_PROMPT)
    context.prefill(prompt)
    plain.prompt(prompt)
    for path in ([0, 2], [1], [0, 1, 7]):
        context.decode([10, 11, 12], [-1, 0, 1])
        with pytest.raises(UsageError):
            context.accept(path)
        assert context.n_past() == N_PROMPT
    assert_continues(context, plain, [], n=5)


def test_reductions_agree_with_the_row(tiny: dict[str, Model], mode: str, make_context: MakeContext) -> None:
    context = make_context(tiny["llama"], mode)
    context.prefill([7, 8, 9])
    rows = context.decode([10, 11, 12], [-1, 0, 0])
    for i in range(3):
        row = rows.logits(i).astype(np.float64)
        order = np.lexsort((np.arange(len(row)), -row))[:16]
        ids, logits = rows.top_k(i, 16)
        assert rows.argmax(i) == order[0]
        assert ids == order.tolist()
        assert logits == row[order].tolist()
        p = np.exp(row - row.max())
        p /= p.sum()
        assert rows.logsumexp(i) == pytest.approx(row.max() - np.log(p.max()), abs=1e-4)
        assert rows.entropy(i) == pytest.approx(-(p * np.log(p)).sum(), abs=1e-3)


def test_host_reductions_with_ties_and_banned_tokens() -> None:
    row = np.array([[1.0, 3.0, -np.inf, 3.0, 2.0, 3.0]], dtype=np.float32)
    rows = HostRows(row, lambda i: row[i], lambda: True)
    assert rows.argmax(0) == 1
    assert rows.top_k(0, 2)[0] == [1, 3]
    assert rows.top_k(0, 16)[0] == [1, 3, 5, 4, 0, 2]
    p = np.exp(row[0, [0, 1, 3, 4, 5]].astype(np.float64))
    assert rows.logsumexp(0) == pytest.approx(np.log(p.sum()))
    assert rows.entropy(0) == pytest.approx(-(p / p.sum() * np.log(p / p.sum())).sum())
    with pytest.raises(UsageError):
        rows.top_k(0, 17)


@pytest.mark.parametrize("n", [1, 127, 1000, 4096])
def test_the_best_of_a_long_row_are_found_wherever_they_lie(n: int) -> None:
    rng = np.random.default_rng(n)
    row = rng.integers(0, 40, (1, n)).astype(np.float32)  # many ties
    rows = HostRows(row, lambda i: row[i], lambda: True)
    order = np.lexsort((np.arange(n), -row[0]))
    for k in (1, 4, 16):
        assert rows.top_k(0, k)[0] == order[:k].tolist()


def test_rows_of_an_earlier_decode_are_refused(tiny: dict[str, Model], make_context: MakeContext) -> None:
    context = make_context(tiny["llama"], "stock")
    rows = context.decode([10], [-1])
    context.decode([11], [0])
    with pytest.raises(EngineError, match="earlier decode"):
        rows.logits(0)


def test_hidden_state_of_a_node_is_that_of_its_path(attention: Model, make_pair: MakePair) -> None:
    rng = random.Random(9)
    context, plain = make_pair(attention, hidden=True)
    prompt = random_tokens(rng, N_PROMPT)
    context.prefill(prompt)
    plain.prompt(prompt)
    tokens, parents = random_tokens(rng, 10), random_parents(rng, 0, 10)
    rows = context.decode(tokens, parents)
    for node in range(10):
        want = plain.after([tokens[step] for step in path_to(parents, node)])[1]
        np.testing.assert_allclose(rows.hidden(node), want, atol=ATOL, rtol=0)


def test_hidden_state_must_be_asked_for(tiny: dict[str, Model], make_context: MakeContext) -> None:
    context = make_context(tiny["llama"], "stock")
    with pytest.raises(EngineError, match="hidden"):
        context.decode([10], [-1]).hidden(0)


def test_prefill_stops_when_progress_says_so(tiny: dict[str, Model], make_pair: MakePair) -> None:
    context, plain = make_pair(tiny["llama"], n_ubatch=32)
    prompt = random_tokens(random.Random(10), 100)
    seen: list[int] = []
    done = context.prefill(prompt, progress=lambda n: seen.append(n) or n < 64)  # type: ignore[func-returns-value]
    assert done == seen[-1] == context.n_past() == 64
    plain.prompt(prompt[:64])
    assert_continues(context, plain, [], n=3)


def test_recurrent_model_decodes_plainly_and_says_why(
    tiny: dict[str, Model], make_context: MakeContext, make_plain: Callable[..., PlainDecoder]
) -> None:
    context = make_context(tiny["mamba"], "auto")
    plain = make_plain(tiny["mamba"])
    prompt = random_tokens(random.Random(11), N_PROMPT)
    assert context.max_nodes == 1
    assert "recurrent" in (context.tree_limit_reason or "")
    context.prefill(prompt)
    plain.prompt(prompt)
    assert_continues(context, plain, [], n=5)
    with pytest.raises(UsageError, match="1 of this context"):
        context.decode([10, 11], [-1, 0])
    # its state cannot step back, so a dropped node or a trimmed chain empties the sequence, and says so
    context.decode([10], [-1])
    context.drop()
    assert context.n_past() == 0
    context.prefill(prompt)
    assert context.trim(N_PROMPT - 3) == 0
    context.prefill(prompt)
    assert_continues(context, plain, [], n=5)


def test_closed_context_is_refused(tiny: dict[str, Model], mode: str, make_context: MakeContext) -> None:
    context = make_context(tiny["llama"], mode)
    context.close()
    context.close()
    with pytest.raises(EngineError, match="closed"):
        context.decode([10], [-1])


def test_more_sequences_than_native_ids_are_refused(tiny: dict[str, Model], make_context: MakeContext) -> None:
    assert make_context(tiny["llama"], "stock", n_seq_max=64).max_nodes == 4
    with pytest.raises(UsageError, match="n_seq_max"):
        make_context(tiny["llama"], "stock", n_seq_max=65)


@pytest.mark.model
def test_rows_of_a_real_model_with_flash_attention(
    model: Model, mode: str, make_context: MakeContext, make_plain: Callable[..., PlainDecoder]
) -> None:
    context, plain = make_context(model, mode), make_plain(model)
    prompt = model.tokenize("The harbour master wrote every arrival into a ledger: the name of the ship, the hour")
    context.prefill(prompt)
    plain.prompt(prompt)
    tokens = model.tokenize(" and the cargo, or nothing at all")[:6]
    parents = [-1, 0, 0, 1, 2, 4]
    rows = context.decode(tokens, parents)
    for node in range(6):
        want = plain.logits([tokens[step] for step in path_to(parents, node)])
        np.testing.assert_allclose(rows.logits(node), want, atol=1e-2, rtol=0)
    context.accept([0, 1, 3])
    assert isinstance(context, StockContext) == (mode == "stock")
