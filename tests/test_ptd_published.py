"""Progressive tree drafting: every rule of the published method, its sizes, and text that drafting does not change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.decode import Generator, Limits
from localspec.errors import UsageError
from localspec.events import DoneEvent
from localspec.methods.base import Drafter, Method, Walk
from localspec.methods.fixed import Fixed
from localspec.methods.plain import PlainDrafter
from localspec.methods.ptd.published import PublishedDrafter
from localspec.methods.ptd.published_pool import Pool
from localspec.methods.ptd.window import Node, Window, context_seeds, random_seeds
from localspec.methods.strict import StrictVerifier
from localspec.tree import MAX_NODES, Tree, TreeBuilder
from tests.test_sampling_exact import CRITICAL, Biased, statistic
from tests.toy import EOG, ToyContext, ToySampler, ToyVocab, collect

NO_END: frozenset[int] = frozenset()
PROMPT = [5, 9, 7, 3, 5, 9, 2, 8]


class RuleRows:
    """Rows of a model whose argmax is a rule on the path: `rule(tokens from the root to the node)`."""

    def __init__(self, tree: Tree, rule: Callable[[tuple[int, ...]], int]) -> None:
        paths = [tuple(tree.tokens[i] for i in tree.topology.path(node)) for node in range(len(tree))]
        self._argmax = [rule(path) for path in paths]

    def argmax(self, i: int) -> int:
        return self._argmax[i]


def successor(path: tuple[int, ...]) -> int:
    """A model of which every token is followed by the next number: predictions never change."""
    return path[-1] + 1


def greedy_walk(tree: Tree, rows: RuleRows) -> Walk:
    path, node = [], 0
    tokens = [rows.argmax(0)]
    while (child := tree.child(node, tokens[-1])) is not None:
        node = child
        path.append(node)
        tokens.append(rows.argmax(node))
    return Walk(tuple(path), tuple(tokens))


def take_step(
    drafter: Drafter, rule: Callable[[tuple[int, ...]], int] = successor, max_nodes: int = MAX_NODES, keep: int = 0
) -> tuple[Tree, Walk]:
    """Propose, verify greedily (the first `keep` nodes alone, if given) and observe."""
    tree = drafter.propose(max_nodes)
    if keep:
        tree = tree.prune(range(min(keep, len(tree))))
    rows = RuleRows(tree, rule)
    walk = greedy_walk(tree, rows)
    drafter.observe(tree, rows, walk)  # type: ignore[arg-type]
    return tree, walk


def children(node: Node) -> list[int]:
    return list(node.children)


def grown(token: int, *subtrees: Node) -> Node:
    return Node(token, {node.token: node for node in subtrees})


def line(*tokens: int) -> Node:
    node = Node(tokens[-1])
    for token in reversed(tokens[:-1]):
        node = grown(token, node)
    return node


def window_of(*roots: Node, width: int = 4, depth: int = 6, eog: frozenset[int] = NO_END) -> Window:
    window = Window(width, depth, eog)
    window.roots = {root.token: root for root in roots}
    return window


def draft_of(window: Window, max_nodes: int = MAX_NODES) -> Tree:
    builder = TreeBuilder(99)
    window.draft(builder, max_nodes)
    return builder.build()


def read(window: Window, rule: Callable[[tuple[int, ...]], int] = successor, max_nodes: int = MAX_NODES) -> int:
    tree = draft_of(window, max_nodes)
    return window.read(tree, RuleRows(tree, rule))  # type: ignore[arg-type]


# --- seeds


def test_random_seeds_are_two_short_chains_of_prompt_tokens_that_begin_differently() -> None:
    lengths = set()
    for seed in range(30):
        chains = random_seeds(PROMPT, frozenset({7}), Random(seed))
        assert chains == random_seeds(PROMPT, frozenset({7}), Random(seed))
        assert len({chain[0] for chain in chains}) == len(chains) == 2
        assert {token for chain in chains for token in chain} <= set(PROMPT) - {7}
        lengths |= {len(chain) for chain in chains}
    assert lengths == {1, 2}


def test_a_prompt_with_too_few_tokens_gives_fewer_seeds() -> None:
    assert [chain[0] for chain in random_seeds([4, 4, 4], NO_END, Random(0))] == [4]
    assert random_seeds([4, 4], frozenset({4}), Random(0)) == []
    assert context_seeds([4, 4], frozenset({4})) == []
    assert context_seeds([4], NO_END) == [[4]]


def test_context_seeds_are_what_followed_the_last_token() -> None:
    assert context_seeds([6, 1, 2, 3, 4, 6], NO_END) == [[1, 2], [2, 3]]
    assert context_seeds([1, 2, 3, 4, 6], NO_END) == [[3, 4], [4, 6]]
    assert context_seeds([6, 1, 6], NO_END) == [[1, 6], [6]]


def test_the_kind_of_seeds_can_be_chosen() -> None:
    drafter = PublishedDrafter(NO_END, context_seeds=True)
    drafter.start([6, 1, 2, 3, 4, 6])
    assert list(drafter.window.roots) == [1, 2]
    drafter = PublishedDrafter(NO_END)
    drafter.start(PROMPT)
    assert list(drafter.window.roots) == [chain[0] for chain in random_seeds(PROMPT, NO_END, Random(10))]


# --- the window


def test_seeds_beyond_the_sizes_are_left_out() -> None:
    window = Window(2, 1, NO_END, [[1, 2], [3, 4], [5]])
    assert [node.token for node in window.nodes()] == [1, 3]


def test_the_window_is_a_chain_and_its_sub_trees_hang_beside_it() -> None:
    tree = draft_of(window_of(grown(10, Node(11), Node(12)), line(20, 21), Node(30)))
    paths = {tuple(tree.tokens[i] for i in tree.topology.path(node)) for node in range(len(tree))}
    assert paths == {
        (99,),
        (99, 10),
        (99, 10, 11),
        (99, 10, 12),
        (99, 10, 20),
        (99, 10, 20, 21),
        (99, 10, 20, 30),
    }
    # a position is the depth, and a node sees its path alone: window tokens up to its own and its ancestors
    position = dict(zip(tree.tokens, tree.topology.depths, strict=True))
    assert [position[token] for token in (10, 20, 30)] == [1, 2, 3]
    assert [position[token] for token in (11, 12, 21)] == [2, 2, 3]
    visible = {
        tree.tokens[i]: {tree.tokens[g] for g in range(len(tree)) if int(tree.topology.ancestors[i, 0]) >> g & 1}
        for i in range(len(tree))
    }
    assert visible[30] == {99, 10, 20, 30}
    assert visible[12] == {99, 10, 12}


def test_equal_guesses_share_a_node() -> None:
    window = window_of(line(10, 20, 21), line(20, 22))
    assert len(window) == 5
    assert len(draft_of(window)) == 5  # the root and 10, 20, 21, 22


def test_a_cut_window_keeps_its_tokens_first() -> None:
    window = window_of(line(10, 11, 12), line(20, 21))
    assert draft_of(window, 3).tokens == (99, 10, 20)
    assert draft_of(window, 5).tokens == (99, 10, 20, 11, 21)
    assert draft_of(window, 1).tokens == (99,)


def test_reading_forgets_what_was_not_verified() -> None:
    window = window_of(line(10, 11, 12), line(20, 21))
    assert read(window) == 5
    assert [node.draft for node in window.nodes()] == [11, 12, 13, 21, 22]
    assert read(window, max_nodes=4) == 3
    assert [node.draft for node in window.nodes()] == [11, 12, None, 21, None]
    assert window.read(Tree.root(99), None) == 0  # type: ignore[arg-type]


def test_every_node_is_expanded_by_its_own_argmax() -> None:
    window = window_of(grown(10, Node(15)), width=4)
    read(window)
    window.expand()
    assert children(window.roots[10]) == [15, 11]
    assert children(window.roots[10].children[15]) == [16]
    read(window)
    window.expand()
    assert children(window.roots[10]) == [15, 11], "a known child is not added again"


def test_a_node_has_at_most_width_children() -> None:
    window = window_of(grown(10, Node(15), Node(16)), width=2)
    read(window)
    window.expand()
    assert children(window.roots[10]) == [15, 16]
    assert children(window.roots[10].children[15]) == [16]


def test_the_window_gains_the_argmax_of_its_last_token_which_loses_it() -> None:
    window = window_of(Node(10), grown(20, Node(25), line(21, 29)))
    read(window)
    window.lengthen(77)
    assert list(window.roots) == [10, 20, 21]
    assert children(window.roots[20]) == [25]
    assert children(window.roots[21]) == []


def test_a_full_window_an_unread_one_and_a_known_token_add_nothing() -> None:
    full = window_of(Node(10), Node(20), width=2)
    read(full)
    full.lengthen(77)
    assert list(full.roots) == [10, 20]
    unread = window_of(Node(10), Node(20))
    unread.lengthen(77)
    assert list(unread.roots) == [10, 20]
    known = window_of(line(21, 5), Node(20))
    read(known)
    known.lengthen(77)
    assert [node.token for node in known.nodes()] == [21, 5, 20]


def test_an_empty_window_starts_again_with_the_next_token() -> None:
    window = window_of()
    window.lengthen(77)
    assert list(window.roots) == [77]


def test_a_deep_sub_tree_gives_way_to_its_oldest_new_child() -> None:
    deep = grown(10, Node(20), line(11, 12, 13), Node(14))
    window = window_of(deep, Node(20), depth=3)
    window.slide()
    assert list(window.roots) == [20, 11], "20 is in the window already; the heir goes to the end"
    assert [node.token for node in window.roots[11].nodes()] == [11, 12, 13]


def test_a_sub_tree_below_the_depth_stays_and_one_without_an_heir_is_dropped() -> None:
    window = window_of(line(10, 11, 12), depth=3)
    window.slide()
    assert list(window.roots) == [10]
    window = window_of(line(10, 20, 21), line(30, 30, 31), Node(20), depth=2)
    window.slide()
    assert list(window.roots) == [20], "the only child of 30 is 30, which counts as being in the window"


def test_the_sub_tree_around_an_end_token_goes_up_to_four_levels() -> None:
    deep = grown(10, line(11, 12, 13, 14, 15, EOG), Node(17))
    window = window_of(deep, line(20, 21, EOG), Node(30), eog=frozenset({EOG}), depth=9)
    window.prune_ends()
    assert [node.token for node in window.nodes()] == [10, 11, 17, 30]


def test_an_end_token_in_the_window_is_dropped_alone() -> None:
    window = window_of(Node(10), line(EOG, 5), eog=frozenset({EOG}))
    window.prune_ends()
    assert [node.token for node in window.nodes()] == [10]


def test_a_step_goes_in_the_released_order() -> None:
    """Expansion deepens a sub-tree before it slides, the window grows before it does, and ends are looked for last."""
    window = window_of(line(10, 11, 12), Node(20), width=3, depth=3)
    read(window)
    window.advance(77)
    assert [node.token for node in window.nodes()] == [20, 21, 11, 12, 13]
    assert list(window.roots) == [20, 21, 11]
    window = window_of(line(10, 11, 12, 13, 14, 15, 16), width=1, eog=frozenset({16}))
    window.advance(77)
    assert [node.token for node in window.nodes()] == [11], "four levels above 16 is 12"


# --- the pool


def test_a_merge_joins_equal_children_and_copies_others_with_their_argmax() -> None:
    pool = Pool()
    pool.merge(grown(1, line(2, 3), Node(4)))
    other = grown(1, line(2, 5, 6), Node(7))
    other.children[2].draft = 8
    other.draft = 9
    pool.merge(other)
    tree = pool.candidates(1)
    assert tree is not None
    assert children(tree) == [2, 4, 7, 9]
    assert children(tree.children[2]) == [3, 5, 8]
    assert children(tree.children[2].children[5]) == [6]
    assert pool.n_nodes(1) == 8
    tree.children[7].add(70)
    assert children(other.children[7]) == [], "the pool has nodes of its own"


def test_a_merge_above_the_cap_removes_the_oldest_child_and_only_that() -> None:
    pool = Pool(max_nodes=4)
    pool.merge(grown(1, line(2, 3), Node(4), Node(5)))
    assert pool.n_nodes(1) == 4
    pool.merge(grown(1, Node(6), Node(7), Node(8)))
    tree = pool.candidates(1)
    assert tree is not None
    assert children(tree) == [4, 5, 6, 7, 8], "one child a merge, though 5 nodes are still too many"
    assert pool.n_nodes(1) == 5
    pool.merge(Node(1))
    assert children(tree) == [5, 6, 7, 8]


def test_the_number_of_keys_is_bounded() -> None:
    pool = Pool(max_keys=2)
    for key in (1, 2, 1, 3):
        pool.merge(line(key, 9))
    assert len(pool) == 2
    assert pool.candidates(1) is None
    assert pool.n_nodes(3) == 1


def test_verified_candidates_are_recycled_with_their_argmax() -> None:
    pool = Pool()
    pool.merge(grown(1, line(2, 3), Node(5)))
    builder = TreeBuilder(1)
    pool.draft(1, builder, MAX_NODES)
    tree = builder.build()
    pool.recycle(tree, RuleRows(tree, successor))  # type: ignore[arg-type]
    root = pool.candidates(1)
    assert root is not None
    assert children(root) == [2, 5], "the argmax of the root itself is text"
    assert children(root.children[2]) == [3]
    assert children(root.children[2].children[3]) == [4]
    assert children(root.children[5]) == [6]
    assert pool.n_nodes(1) == 5
    pool.recycle(tree.prune([0]), None)  # type: ignore[arg-type]
    pool.recycle(Tree.root(2), None)  # type: ignore[arg-type]
    assert pool.n_nodes(1) == 5


def test_recycling_ends_at_what_a_pass_can_verify() -> None:
    pool = Pool(max_nodes=MAX_NODES + 9)
    pool.merge(grown(1, *map(Node, range(1000, 1000 + MAX_NODES))))
    tree = Tree.of([-1, 0], [1, 1000], [1.0, 0.5])
    pool.recycle(tree, RuleRows(tree, successor))  # type: ignore[arg-type]
    assert pool.n_nodes(1) == MAX_NODES


def test_candidates_come_parents_first_and_newest_first() -> None:
    pool = Pool()
    pool.merge(grown(1, line(2, 3), line(4, 5)))
    builder = TreeBuilder(1)
    pool.draft(1, builder, 4)
    assert builder.tokens == [1, 4, 2, 5]
    assert builder.p == [1.0, 0.5, 0.5, 0.25]


# --- the drafter


@pytest.mark.parametrize(("width", "depth", "size"), [(4, 6, 24), (3, 5, 15), (4, 4, 16), (2, 6, 12)])
def test_stable_predictions_give_the_published_sizes(width: int, depth: int, size: int) -> None:
    """24 nodes at width 4 and depth 6; the window slides by one token a step and keeps its shape."""
    window = Window(width, depth, NO_END, [[1000 * i] for i in range(width)])
    sizes = []
    for _ in range(30):
        read(window)
        window.advance(0)
        sizes.append(len(window))
    assert sizes[depth:] == [size] * (30 - depth)
    assert [root.token for root in window.roots.values()] == [1000 * i + 31 - depth for i in range(width)]


def test_from_random_seeds_the_size_stays_within_the_published_one() -> None:
    drafter = PublishedDrafter(NO_END)
    drafter.start(list(range(0, 5000, 100)))
    sizes = []
    for _ in range(60):
        take_step(drafter)
        sizes.append(len(drafter.window))
    assert max(sizes) == 24
    assert min(sizes[10:]) >= 12


def test_changing_predictions_widen_the_tree() -> None:
    rng = Random(1)
    drafter = PublishedDrafter(NO_END)
    drafter.start(list(range(0, 5000, 100)))
    sizes = []
    for _ in range(300):
        take_step(drafter, lambda path: path[-1] + 1 if rng.random() > 0.1 else rng.randrange(10**6))
        sizes.append(len(drafter.window))
    assert 28 <= np.mean(sizes[50:]) <= 42


def test_the_window_is_harvested_once_it_is_deep_enough() -> None:
    drafter = PublishedDrafter(NO_END, width=1, depth=4)
    drafter.start([7])
    for step in range(1, 10):
        ripe = drafter.window.ripe()
        take_step(drafter)
        assert (len(drafter.pool) > 0) == (step >= 4) == ripe
    root = drafter.pool.candidates(7)
    assert root is not None
    assert [node.token for node in root.nodes()] == [7, 8, 9, 10, 11], "its sub-tree with the argmax of its end"
    assert drafter.pool.n_nodes(10) == 4, "from every node: as the window's first token 10 reached further"


def test_harvested_and_recycled_continuations_are_the_next_candidates() -> None:
    """A model that counts to 20 and starts over: drafting takes over when the pool knows the cycle."""
    drafter = PublishedDrafter(NO_END)
    drafter.start(list(range(20)))
    lengths = [len(take_step(drafter, lambda path: (path[-1] + 1) % 20)[1].tokens) for _ in range(100)]
    assert lengths[:5] == [1] * 5
    assert np.mean(lengths[60:]) > 7
    assert max(lengths) > 7, "a harvest has six levels, so more needs recycling"


def test_an_empty_window_starts_with_what_followed_the_last_token() -> None:
    drafter = PublishedDrafter(NO_END)
    drafter.start([5, 8])
    drafter.window.roots.clear()
    drafter.pool.merge(line(8, 9, 10))
    _, walk = take_step(drafter)
    assert walk.tokens == (9, 10, 11)
    assert list(drafter.window.roots) == [9]


def test_a_generation_starts_with_an_empty_pool_and_the_same_seeds() -> None:
    drafter = PublishedDrafter(NO_END)
    drafter.start(PROMPT)
    first = drafter.propose(64)
    for _ in range(20):
        take_step(drafter)
    assert len(drafter.pool)
    drafter.start(PROMPT)
    assert len(drafter.pool) == 0
    assert drafter.propose(64) == first
    other = PublishedDrafter(NO_END, seed=11)
    other.start(PROMPT)
    assert other.propose(64) != first


def test_a_step_without_a_draft_leaves_window_and_pool_alone() -> None:
    drafter = PublishedDrafter(NO_END)
    drafter.start(PROMPT)
    for _ in range(12):
        take_step(drafter)
    window = [node.token for node in drafter.window.nodes()]
    sizes = {key: drafter.pool.n_nodes(key) for key in range(60)}
    drafter.observe(Tree.root(drafter.propose(1).tokens[0]), None, Walk((), (33,)))  # type: ignore[arg-type]
    assert [node.token for node in drafter.window.nodes()] == window
    assert {key: drafter.pool.n_nodes(key) for key in range(60)} == sizes
    assert drafter.propose(8).tokens[0] == 33


@pytest.mark.parametrize("sizes", [{"width": 0}, {"depth": 0}, {"pool_nodes": 0}])
def test_wrong_sizes_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(sizes))} 0 .give 1 or more"):
        PublishedDrafter(NO_END, **sizes)  # type: ignore[arg-type]


def check_tree(tree: Tree, root: int, max_nodes: int) -> None:
    assert 1 <= len(tree) <= max_nodes
    assert tree.tokens[0] == root
    assert tree.p[0] == 1
    for node, parent in enumerate(tree.topology.parents[1:], start=1):
        assert 0 <= parent < node
        assert 0 < tree.p[node] <= tree.p[parent]
    for below in tree.topology.children:
        assert len({tree.tokens[child] for child in below}) == len(below)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 11), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(1, 64), st.integers(0, 64)), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(0, 9),
)
def test_any_model_and_budget_keep_all_bounds(
    prompt: list[int], steps: list[tuple[int, int]], width: int, depth: int, noise: int
) -> None:
    end = frozenset({3})
    drafter = PublishedDrafter(end, width=width, depth=depth, pool_nodes=20, context_seeds=noise % 2 == 1)
    drafter.start(prompt)
    last = prompt[-1]
    for max_nodes, keep in steps:
        check_tree(drafter.propose(max_nodes), last, max_nodes)
        _, walk = take_step(drafter, lambda path: (path[-1] * 5 + sum(path[-3:]) * noise + 1) % 12, max_nodes, keep)
        last = walk.tokens[-1]
        window = drafter.window
        assert len(window.roots) <= width
        assert all(root.levels() < depth for root in window.roots.values())
        assert all(len(node.children) <= width and node.token not in end for node in window.nodes())
        for key in range(12):
            root = drafter.pool.candidates(key)
            assert drafter.pool.n_nodes(key) == (0 if root is None else sum(1 for _ in root.nodes()) - 1)


# --- the text


def generated(
    drafter: Drafter | None, sampler: ToySampler, n: int | None = 120, n_nodes: int = 96, **ctx: float
) -> tuple[list[int], DoneEvent]:
    """Tokens of a toy text, plain without a drafter."""
    method = Method("test", drafter or PlainDrafter(), Fixed(n_nodes if drafter else 1), StrictVerifier())
    generator = Generator(ToyVocab(), ToyContext(**ctx))  # type: ignore[arg-type]
    tokens, _, done = collect(generator.generate(PROMPT, sampler, method, Limits(n)))
    return tokens, done


def check_same_text(make: Callable[[], Drafter], temperatures: Sequence[float] = (0.0, 0.7)) -> None:
    """Drafted and plain text agree to the last token, greedily and sampled, and drafts do come true."""
    for temperature in temperatures:
        for seed in range(3):
            plain, _ = generated(None, ToySampler(temperature, seed, penalty=0.5))
            drafted, done = generated(make(), ToySampler(temperature, seed, penalty=0.5))
            assert drafted == plain
            assert done.stats.n_accepted > 0
            assert done.stats.n_steps == len(plain) - done.stats.n_accepted


@pytest.mark.parametrize("context", [False, True])
def test_text_is_that_of_plain_decoding(context: bool) -> None:
    check_same_text(lambda: PublishedDrafter(frozenset({EOG}), context_seeds=context))


def test_an_end_token_ends_the_text_as_in_plain_decoding() -> None:
    plain, _ = generated(None, ToySampler(1.0, 4), eog_bias=1.0)
    drafted, done = generated(PublishedDrafter(frozenset({EOG})), ToySampler(1.0, 4), eog_bias=1.0)
    assert drafted == plain
    assert plain[-1] == EOG
    assert done.reason == "stop"


def check_limits(make: Callable[[], Drafter]) -> None:
    """The end of the context, of the budget and of the tree size are kept; the toy raises where one is not."""
    plain, _ = generated(None, ToySampler(), n=None, n_ctx=60)
    for n_nodes in (*range(1, 10), 16, 33, 64):
        drafted, done = generated(make(), ToySampler(), n=None, n_nodes=n_nodes, n_ctx=60, max_nodes=64)
        assert drafted == plain
        assert len(drafted) == 60 - len(PROMPT)
        assert done.reason == "length"


def test_limits_are_kept() -> None:
    check_limits(lambda: PublishedDrafter(frozenset({EOG})))


@pytest.mark.parametrize("seed", [1, 2])
def test_sampled_tokens_have_the_target_distribution(seed: int) -> None:
    method = Method("ptd", PublishedDrafter(NO_END), Fixed(20), StrictVerifier())
    chi_square, accepted = statistic(method, seed, n=6000)
    assert accepted > 0.02
    assert chi_square < CRITICAL


def test_the_statistic_would_find_a_bias_towards_these_drafts() -> None:
    chi_square, _ = statistic(Method("ptd", PublishedDrafter(NO_END), Fixed(5), Biased()), 1, n=6000)
    assert chi_square > 2 * CRITICAL
