"""The evaluation in NumPy against the description of the papers, written down naively."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from localspec.errors import UsageError
from localspec.heads.prefix import MAX_ROWS, PrefixLayer
from localspec.heads.reference import ReferenceHeads
from localspec.heads.tensors import Heads
from localspec.static_tree import StaticTree
from tests.heads import naive
from tests.heads.checkpoints import N_HEADS, H, V, embedding
from tests.heads.random_heads import SPECS, heads_of, hidden_states, spec_of

#: branches at every depth, a rank left out, and leaves that are not the last of their level
PATHS = (
    [0],
    [1],
    [2],
    [4],
    [0, 0],
    [0, 1],
    [2, 0],
    [2, 3],
    [0, 0, 0],
    [0, 1, 0],
    [2, 3, 1],
    [0, 0, 0, 0],
    [2, 3, 1, 2],
)
EMBED = embedding()
G = hidden_states(1)[0]


@pytest.fixture(params=SPECS)
def heads(request: pytest.FixtureRequest) -> Heads:
    return heads_of(spec_of(**SPECS[request.param]))


def test_a_tree_is_what_the_naive_evaluation_drafts(heads):
    tree = StaticTree.from_paths(PATHS)
    draft = ReferenceHeads(heads, EMBED).draft(G, 7, tree)
    tokens, q = naive.draft(heads, EMBED, G, 7, list(tree.topology.parents), list(tree.ranks))
    assert draft.tokens.tolist() == tokens
    assert draft.tokens.dtype == np.int32
    np.testing.assert_allclose(draft.q, q, rtol=1e-4)


@pytest.mark.parametrize("kind", ["hydra-mlp", "medusa", "trimmed"])
def test_levels_below_unlikely_nodes_are_not_evaluated(kind):
    asked = []

    def embed(ids):
        asked.append(len(ids))
        return EMBED[ids]

    reference = ReferenceHeads(heads_of(spec_of(**SPECS[kind])), embed)
    tree = StaticTree.from_paths(PATHS)
    whole = reference.draft(G, 7, tree)
    assert whole.n_levels == 4 and (whole.tokens >= 0).all()
    p = np.ones(tree.n_nodes, dtype=np.float32)
    for node, parent in enumerate(tree.topology.parents[1:], start=1):
        p[node] = p[parent] * whole.q[node]
    best = [p[list(level.parents)].max() for level in tree.levels]
    for least_p in (0.0, *best[1:], best[1] * 1.01, best[2] * 1.01, 2.0):
        asked.clear()
        draft = reference.draft(G, 7, tree, float(least_p))
        # no level's best is better than that of the level above
        n_levels = sum(above >= least_p for above in best[1:]) + 1
        n = tree.ends[n_levels]
        assert draft.n_levels == n_levels
        assert len(asked) == (n_levels if reference.spec.grounded else 0)
        assert draft.tokens.tolist() == [*whole.tokens[:n], *[-1] * (tree.n_nodes - n)]
        assert draft.q.tolist() == [*whole.q[:n], *[0] * (tree.n_nodes - n)]
        assert draft.top1 == (*whole.top1[:n_levels], *[0.0] * (4 - n_levels))


def test_partial_sums_give_the_logits_of_the_concatenation(heads):
    reference = ReferenceHeads(heads, EMBED)
    g = hidden_states(6)
    paths = np.random.default_rng(8).integers(0, V, (6, N_HEADS))
    for head in range(N_HEADS):
        ours = reference.logits(head, g, paths[:, : head + 1])
        for row, path, h in zip(ours, paths, g, strict=True):
            expected = naive.logits(heads, head, h, [EMBED[token] for token in path[: head + 1]])
            np.testing.assert_allclose(row, expected, atol=2e-5, rtol=1e-5)


def test_the_greedy_path_tells_its_probabilities(heads):
    reference = ReferenceHeads(heads, EMBED)
    greedy = reference.greedy(G, 7)
    assert len(greedy.top1) == N_HEADS
    np.testing.assert_allclose(greedy.top1, greedy.q[1:], rtol=1e-6)
    # a tree tells as many as it evaluates, and they are the same
    tree = reference.draft(G, 7, StaticTree.from_paths([[0], [1], [1, 0], [0, 0]]))
    np.testing.assert_allclose(tree.top1, greedy.top1[:2], rtol=1e-5)
    # below a first candidate that is not in the tree nothing is known
    assert len(reference.draft(G, 7, StaticTree.from_paths([[1], [1, 0]])).top1) == 1
    assert reference.greedy(G, 7, 0).tokens.tolist() == [7]


def test_a_function_serves_as_embedding_and_is_asked_for_inner_nodes_only():
    heads = heads_of(spec_of(arch="hydra-mlp"))
    asked: list[int] = []

    def look_up(ids: np.ndarray) -> np.ndarray:
        asked.extend(ids.tolist())
        return EMBED[ids]

    tree = StaticTree.from_paths(PATHS)
    ours = ReferenceHeads(heads, look_up).draft(G, 7, tree)
    assert ours.tokens.tolist() == ReferenceHeads(heads, EMBED).draft(G, 7, tree).tokens.tolist()
    inner = [node for node, children in enumerate(tree.topology.children) if children]
    assert asked == [ours.tokens[node] for node in inner]


def test_ungrounded_heads_draft_the_same_candidates_below_every_parent():
    heads = heads_of(spec_of(**SPECS["medusa"]))
    tree = StaticTree.from_paths([[0], [1], [2], [0, 0], [0, 1], [1, 0], [1, 1], [2, 1]])
    tokens = ReferenceHeads(heads, EMBED).draft(G, 7, tree).tokens
    assert tokens[4] == tokens[6]
    assert tokens[5] == tokens[7] == tokens[8]


def test_trimmed_heads_draft_target_tokens():
    heads = heads_of(spec_of(**SPECS["trimmed"]))
    tokens = ReferenceHeads(heads, EMBED).draft(G, 7, StaticTree.from_paths([[i] for i in range(37)])).tokens[1:]
    assert heads.d2t is not None
    assert sorted(tokens) == sorted(heads.d2t)
    assert max(tokens) > 37


def test_equal_logits_rank_by_token():
    heads = heads_of(spec_of(**SPECS["medusa"]))
    for head in range(N_HEADS):
        heads.tensors[f"head.{head}.output.weight"][:] = 0  # type: ignore[index]
    draft = ReferenceHeads(heads, EMBED).draft(G, 7, StaticTree.from_paths([[0], [1], [2], [5]]))
    assert draft.tokens.tolist() == [7, 0, 1, 2, 5]
    np.testing.assert_allclose(draft.q[1:], 1 / V, rtol=1e-5)


def test_what_does_not_fit_is_refused():
    reference = ReferenceHeads(heads_of(spec_of(arch="hydra-mlp")), EMBED)
    with pytest.raises(UsageError, match="too deep for 4 heads"):
        reference.greedy(G, 7, 5)
    with pytest.raises(UsageError, match="width 32"):
        reference.greedy(G[:16], 7)
    for root in (101, -1, 2**40):
        with pytest.raises(UsageError, match=f"token {root} is outside"):
            reference.greedy(G, root)
    with pytest.raises(UsageError, match="token 101 is outside"):
        reference.logits(1, G, [[1, 101]])
    with pytest.raises(UsageError, match="2 hidden states"):
        reference.greedy(hidden_states(2), 7)
    with pytest.raises(UsageError, match="rank 101 is asked"):
        reference.draft(G, 7, StaticTree.from_paths([[101]]))
    with pytest.raises(UsageError, match="no head 4"):
        reference.logits(4, G, [[1, 2, 3, 4, 5]])
    with pytest.raises(UsageError, match="do not fit head 1"):
        reference.logits(1, G, [[1, 2, 3]])
    with pytest.raises(UsageError, match=r"the shape \[100, 32\]"):
        ReferenceHeads(heads_of(spec_of(arch="hydra-mlp")), EMBED[:100])
    with pytest.raises(UsageError, match="width 32"):
        ReferenceHeads(heads_of(spec_of(arch="hydra-mlp")), lambda ids: EMBED[ids][:, :8]).greedy(G, 7)


# --- the prefix layer ---


def test_the_prefix_layer_is_a_llama_layer():
    heads = heads_of(spec_of(**SPECS["hydra-prefix-mlp"]))
    hidden = hidden_states(12)
    expected = naive.prefix(heads, hidden)
    np.testing.assert_allclose(PrefixLayer(heads).append(hidden), expected, atol=1e-5)
    # in pieces, as steps bring them
    layer = PrefixLayer(heads)
    pieces = [layer.append(hidden[a:b]) for a, b in ((0, 5), (5, 6), (6, 6), (6, 10), (10, 12))]
    np.testing.assert_allclose(np.concatenate(pieces), expected, atol=1e-5)
    assert len(layer) == 12


def test_part_of_a_head_may_be_rotated_and_the_rest_stays():
    values = SPECS["hydra-prefix-mlp"]
    heads = heads_of(spec_of(**values | {"prefix": replace(values["prefix"], n_rope=4, rope_theta=500.0)}))
    hidden = hidden_states(9)
    np.testing.assert_allclose(PrefixLayer(heads).append(hidden), naive.prefix(heads, hidden), atol=1e-5)


def test_trimming_the_prefix_layer_forgets_what_came_after():
    heads = heads_of(spec_of(**SPECS["hydra-prefix-mlp"]))
    hidden, other = hidden_states(10), hidden_states(4, seed=6)
    layer = PrefixLayer(heads)
    layer.append(hidden)
    layer.trim(6)
    expected = PrefixLayer(heads).append(np.concatenate([hidden[:6], other]))[6:]
    np.testing.assert_allclose(layer.append(other), expected, atol=1e-5)
    for n in (-1, 11):
        with pytest.raises(UsageError, match="cannot be kept of 10"):
            layer.trim(n)


def test_a_long_text_is_attended_in_pieces_and_the_cache_grows():
    heads = heads_of(spec_of(**SPECS["hydra-prefix-mlp"]))
    hidden = hidden_states(2 * MAX_ROWS + 40)
    whole = PrefixLayer(heads).append(hidden)
    layer = PrefixLayer(heads)
    layer.append(hidden[:-1])
    np.testing.assert_allclose(layer.append(hidden[-1:])[0], whole[-1], atol=1e-5)


def test_the_prefix_layer_refuses_what_does_not_fit():
    with pytest.raises(UsageError, match="medusa heads have no prefix layer"):
        PrefixLayer(heads_of(spec_of(**SPECS["medusa"])))
    layer = PrefixLayer(heads_of(spec_of(**SPECS["hydra-prefix-mlp"])))
    for rows in (np.zeros((2, H - 1)), np.zeros(H)):
        with pytest.raises(UsageError, match="width 32"):
            layer.append(rows)


def test_children_are_drawn_from_the_softmax_of_their_head(heads):
    tree = StaticTree.from_paths(PATHS)
    reference = ReferenceHeads(heads, EMBED)
    draft = reference.draft_sampled(G, 7, tree, 4.0, np.random.default_rng(1))
    assert draft.children == tree.topology.children
    assert set(draft.laws) == {node for node, children in enumerate(draft.children) if children}
    for node, law in draft.laws.items():
        path = [int(draft.tokens[at]) for at in tree.topology.path(node)]
        logits = reference.logits(len(path) - 1, G[None], [path])[0].astype(np.float64) / 4.0
        known, beyond = law[: len(logits)], law[len(logits) :]
        np.testing.assert_allclose(known, np.exp(logits) / np.exp(logits).sum(), rtol=1e-4, atol=1e-9)
        assert len(law) == heads.spec.n_rows and not beyond.any()
        children = draft.tokens[list(draft.children[node])]
        assert len(set(children.tolist())) == len(children)
        rows = draft.row_of[children]
        assert (rows >= 0).all() and (reference.ids[rows] == children).all()
    again = reference.draft_sampled(G, 7, tree, 4.0, np.random.default_rng(1))
    assert again.tokens.tolist() == draft.tokens.tolist()
    other = reference.draft_sampled(G, 7, tree, 4.0, np.random.default_rng(2))
    assert other.tokens.tolist() != draft.tokens.tolist()


def test_tokens_outside_a_trimmed_vocabulary_have_no_row():
    heads = heads_of(spec_of(**SPECS["trimmed"]))
    rows = ReferenceHeads(heads, EMBED).rows
    assert heads.d2t is not None and rows[heads.d2t].tolist() == list(range(len(heads.d2t)))
    assert (rows == -1).sum() == V - len(heads.d2t)


def test_more_draws_than_a_head_knows_tokens_are_refused():
    heads = heads_of(spec_of(arch="hydra-mlp", n_draft_vocab=3, shared_output=True))
    tree = StaticTree.from_paths([[rank] for rank in range(4)])
    with pytest.raises(UsageError, match="knows 3 tokens"):
        ReferenceHeads(heads, EMBED).draft_sampled(G, 7, tree, 1.0, np.random.default_rng(1))
