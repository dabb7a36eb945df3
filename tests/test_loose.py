"""Loose verification on chains and trees: FLy's rule along every path, and a history that is that of the text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from localspec.decode import Generator, Limits
from localspec.engine.base import Rows
from localspec.events import StepEvent
from localspec.methods.base import Method, Walk
from localspec.methods.fixed import Fixed
from localspec.methods.fly import Literals, LooseRule, judge, normalised_entropy, top3_entropy
from localspec.methods.literals import any_literal
from localspec.methods.loose import LooseVerifier
from localspec.methods.strict import StrictVerifier
from localspec.tree import Tree, TreeBuilder
from tests.toy import EOG, Scripted, ToyContext, ToyRows, ToySampler, ToyVocab, collect

SAMPLERS = {
    "greedy": lambda seed: ToySampler(),
    "penalised": lambda seed: ToySampler(penalty=4.0),
    "drawn": lambda seed: ToySampler(1.0, seed, penalty=1.0),
    "banned": lambda seed: ToySampler(banned=range(1, 12)),
}
RULES = [
    *(LooseRule(0.5, 2), LooseRule(0.2, 3), LooseRule(0.2, 2, "normalised"), LooseRule(0.0, 1)),
    *(LooseRule(0.2, 2, ratio=0.1), LooseRule(0.0, 1, ratio=0.02)),
    *(LooseRule(0.2, 2, literals="exact"), LooseRule(0.0, 1, ratio=0.02, literals="exact")),
]
#: texts of the tokens: words, among them a few numbers and what may belong to one
PIECES = {8: b" 2", 9: b".", 18: b" 2", 19: b"."}


def piece(token: int) -> bytes:
    return PIECES.get(token, b" word")


def grown(ctx: ToyContext, sampler: ToySampler, rng: np.random.Generator, n_nodes: int, branching: float) -> Tree:
    """A tree whose drafts are mostly what the sampler would emit after the draft before them."""
    root = int(rng.integers(1, 32))
    builder = TreeBuilder(root)
    states = [(_Row(ctx, -1, root), sampler.fork())]
    node = 0
    while len(builder) < n_nodes:
        if rng.random() < branching:
            node = int(rng.integers(len(builder)))
        row, state = states[node]
        child = state.fork()
        token = child.sample(row, 0)
        if rng.random() < 0.25:
            token = int(rng.integers(32))
        child.accept(token)
        before, node = len(builder), builder.add(node, token, 0.5)
        if len(builder) > before:
            states.append((_Row(ctx, builder.parents[node], token), child))
    ctx.drop()
    return builder.build()


class _Row:
    """The row of one more node of the open tree, which may be read later as well."""

    def __init__(self, ctx: ToyContext, parent: int, token: int) -> None:
        self._logits = ctx.decode([token], [parent]).logits(0)

    def logits(self, i: int) -> np.ndarray:
        return self._logits


def entropy(rule: LooseRule, rows: Rows, i: int) -> float:
    if rule.entropy == "top3":
        return top3_entropy(rows.top_k(i, 3)[1], rows.logsumexp(i))
    return normalised_entropy(rows.entropy(i), 32)


def literal(tree: Tree, rows: Rows, sampler: ToySampler, stop: frozenset[int], limit: int, rule: LooseRule) -> Walk:
    """The rule along every path from root to leaf, all of it computed, and the best outcome."""
    walks = []
    for leaf in tree.topology.leaves:
        path = tree.topology.path(leaf)
        state, target, entropies, ratios, literals = sampler.fork(), [], [], [], []
        for node, child in itertools.zip_longest(path, path[1:]):
            target.append(state.sample(rows, node))
            state.accept(target[-1] if child is None else tree.tokens[child])
            allowed = child is None or state.allows(rows, node, tree.tokens[child])
            entropies.append(entropy(rule, rows, node) if allowed else -1.0)
            row = rows.logits(node).astype(float)
            ratios.append(1.0 if child is None else np.exp(row[tree.tokens[child]] - row.max()))
            drafted = target[-1] if child is None else tree.tokens[child]
            literals.append(any_literal(*map(piece, (tree.tokens[node], target[-1], drafted))))
        nodes = path[1:][:limit]
        draft = [tree.tokens[node] for node in nodes]
        made = judge(draft, target, entropies, ratios, literals, stop, rule)
        tokens = draft[: made.accepted]
        if len(tokens) < limit and not (tokens and tokens[-1] in stop):
            tokens.append(target[made.accepted])
        walks.append(Walk(nodes[: made.accepted], tuple(tokens), made.forgiven))
    return max(walks, key=lambda walk: (len(walk.tokens), -len(walk.forgiven), len(walk.path)))


def cases(n: int, branching: float, kind: str) -> list[tuple[Tree, ToyRows, ToySampler]]:
    made = []
    for seed in range(n):
        rng = np.random.default_rng(seed)
        ctx = ToyContext(max_nodes=64, memory=1 + seed % 3, eog_bias=-3.0)
        ctx.prefill(rng.integers(1, 32, size=3).tolist())
        sampler = SAMPLERS[kind](seed)
        tree = grown(ctx, sampler, rng, int(rng.integers(1, 25)), branching)
        made.append((tree, ctx.decode(tree.tokens, tree.topology.parents), sampler))
    return made


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("branching", [0.0, 0.3])
def test_the_walk_is_the_best_of_the_rule_along_each_path(branching: float, kind: str, rule: LooseRule) -> None:
    n_forgiven = 0
    for n, (tree, rows, sampler) in enumerate(cases(60, branching, kind)):
        stop, limit = frozenset({EOG}), 3 + n % 30
        want = literal(tree, rows, sampler, stop, limit, rule)
        plain = sampler.fork()
        made = LooseVerifier(rule, piece).walk(tree, rows, sampler, stop, limit)
        assert made == want
        n_forgiven += len(made.forgiven)
        # the history is the text, and a token that was not forgiven is what the sampler emits after it
        assert sampler.history == list(made.tokens)
        for i, (node, token) in enumerate(zip((0, *made.path), made.tokens, strict=False)):
            drawn = plain.sample(rows, node)
            assert (drawn != token) == (i in made.forgiven)
            plain.accept(token)
        assert sampler.n_draws == plain.n_draws == len(made.tokens)
        assert sampler.fork().sample(rows, 0) == plain.sample(rows, 0), "the next draw is that of this history"
    assert n_forgiven > 3


@pytest.mark.parametrize("kind", SAMPLERS)
def test_with_infinite_theta_it_is_strict(kind: str) -> None:
    for tree, rows, sampler in cases(60, 0.3, kind):
        other = sampler.fork()
        want = StrictVerifier().walk(tree, rows, other, frozenset({EOG}), 9)
        made = LooseVerifier(LooseRule(math.inf, 1)).walk(tree, rows, sampler, frozenset({EOG}), 9)
        assert made == want
        assert sampler.n_draws == other.n_draws


class Fixed3:
    """Rows with the given best token, and an even split between three tokens."""

    def __init__(self, best: Sequence[int]) -> None:
        self._best = best
        self.asked: list[int] = []

    def argmax(self, i: int) -> int:
        return self._best[i]

    def top_k(self, i: int, k: int) -> tuple[list[int], list[float]]:
        self.asked.append(i)
        return [self._best[i], 30, 31][:k], [0.0] * k

    def logsumexp(self, i: int) -> float:
        return math.log(3)


class Greedy(ToySampler):
    """Takes the best token; counts its forks."""

    n_forks = 0

    def sample(self, rows: Rows, i: int) -> int:
        self.n_draws += 1
        return rows.argmax(i)

    def fork(self) -> ToySampler:
        Greedy.n_forks += 1
        return super().fork()


def chain(draft: Sequence[int]) -> Tree:
    builder = TreeBuilder(1)
    builder.add_path(0, draft, [0.5] * len(draft))
    return builder.build()


def test_matches_ask_for_no_entropy_and_no_fork() -> None:
    Greedy.n_forks = 0
    rows = Fixed3([2, 3, 4, 5, 6, 7, 8, 9, 10])
    made = LooseVerifier().walk(chain([2, 3, 4, 5, 6, 7, 8, 9]), rows, Greedy(), frozenset(), 99)  # type: ignore[arg-type]
    assert made.tokens == (2, 3, 4, 5, 6, 7, 8, 9, 10)
    assert rows.asked == [] and Greedy.n_forks == 0


def test_a_mismatch_that_the_end_of_the_draft_is_too_close_to_costs_nothing() -> None:
    Greedy.n_forks = 0
    rows = Fixed3([2, 20, 4, 5, 6, 7, 8, 9])
    made = LooseVerifier().walk(chain([2, 3, 4, 5, 6, 7, 8]), rows, Greedy(), frozenset(), 99)  # type: ignore[arg-type]
    assert (made.tokens, made.forgiven) == ((2, 20), ())
    assert rows.asked == [] and Greedy.n_forks == 0


def test_a_forgiven_token_is_emitted_and_the_text_goes_on_after_it() -> None:
    rows = Fixed3([2, 20, 4, 5, 6, 7, 8, 9, 10])
    sampler = Greedy()
    made = LooseVerifier().walk(chain([2, 3, 4, 5, 6, 7, 8, 9]), rows, sampler, frozenset(), 99)  # type: ignore[arg-type]
    assert made.tokens == (2, 3, 4, 5, 6, 7, 8, 9, 10) and made.forgiven == (1,)
    assert sampler.history == list(made.tokens)


#: a draft whose first token is not the target's 20; the root is 1
WORDS = {1: b" costs", 2: b" about", 20: b" roughly"}


@pytest.mark.parametrize(
    "texts",
    [{2: b" 7"}, {20: b" 7"}, {2: b" ="}, {20: b"    "}, {1: b"7", 20: b"."}, {1: b"7", 2: b","}],
    ids=str,
)
def test_where_a_number_or_a_sign_is_drafted_or_wanted_nothing_is_forgiven(texts: dict[int, bytes]) -> None:
    def walk(literals: Literals, texts: dict[int, bytes]) -> Walk:
        rows = Fixed3([20, 3, 4, 5, 6, 7, 8, 9])
        verifier = LooseVerifier(LooseRule(literals=literals), lambda token: texts.get(token, b" word"))
        return verifier.walk(chain([2, 3, 4, 5, 6, 7, 8]), rows, Greedy(), frozenset(), 99)  # type: ignore[arg-type]

    assert walk("exact", {**WORDS, **texts}) == Walk((), (20,))
    settings: list[tuple[Literals, dict[int, bytes]]] = [("loose", {**WORDS, **texts}), ("exact", WORDS)]
    for literals, others in settings:
        assert walk(literals, others) == Walk((1, 2, 3, 4, 5, 6, 7), (2, 3, 4, 5, 6, 7, 8, 9), (0,))


def test_without_texts_exact_literals_forgive_nothing() -> None:
    for tree, rows, sampler in cases(20, 0.3, "greedy"):
        want = StrictVerifier().walk(tree, rows, sampler.fork(), frozenset({EOG}), 9)
        rule = LooseRule(0.0, 1, literals="exact")
        assert LooseVerifier(rule).walk(tree, rows, sampler, frozenset({EOG}), 9) == want


def test_a_strict_path_is_preferred_to_an_equally_long_loose_one() -> None:
    builder = TreeBuilder(1)
    builder.add_path(0, [9, 3, 4, 5], [0.5] * 4)  # nodes 1 to 4: 9 is no match, the rest is
    builder.add_path(0, [2, 6, 7, 8], [0.5] * 4)
    rows = Fixed3([2, 3, 4, 5, 10, 6, 7, 8, 11])
    made = LooseVerifier(LooseRule(window=2)).walk(builder.build(), rows, Greedy(), frozenset(), 99)  # type: ignore[arg-type]
    assert (made.tokens, made.forgiven) == ((2, 6, 7, 8, 11), ())


def test_the_loop_tells_the_positions_within_the_answer() -> None:
    vocab = ToyVocab()
    prompt = [3, 4, 5]
    nothing = Method("plain", Scripted(lambda *_: None), Fixed(1), StrictVerifier())
    plain, _, _ = collect(Generator(vocab, ToyContext(memory=1)).generate(prompt, ToySampler(), nothing, Limits(40)))

    def grow(text: list[int], builder: TreeBuilder, max_nodes: int) -> None:
        """What the target would say, but for its second token."""
        ctx = ToyContext(memory=1)
        ctx.prefill(text[:-1])
        token, node = text[-1], 0
        for i in range(10):
            token = ctx.decode([token], [i - 1]).argmax(0)
            token = 7 if i == 1 else token
            node = builder.add(node, token, 0.9)

    ctx = ToyContext(memory=1)
    method = Method("scripted", Scripted(grow), Fixed(16), LooseVerifier(LooseRule(0.0, 3)))
    events = list(Generator(vocab, ctx).generate(prompt, ToySampler(), method, Limits(40)))
    steps = [event for event in events if isinstance(event, StepEvent)]
    tokens, _, done = collect(events)
    assert not done.lossless and done.accept == "loose"
    assert done.stats.n_forgiven == len(done.stats.forgiven) > 0
    ends = np.cumsum([len(step.tokens) for step in steps]).tolist()
    want = [end - len(step.tokens) + i for end, step in zip(ends, steps, strict=True) for i in step.forgiven]
    assert done.stats.forgiven == want
    assert all(tokens[i] == 7 for i in want)
    assert tokens[: want[0]] == plain[: want[0]] and tokens[want[0]] != plain[want[0]]
