"""Static trees: paths, shape and the published default."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.static_tree import MAX_RANK, MC_SIM_7B_63, StaticTree

ANY_PATHS = st.sets(st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), max_size=20)


def closed(paths: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """The paths with all their prefixes."""
    return {path[:n] for path in paths for n in range(1, len(path) + 1)}


def test_the_published_tree_has_its_published_counts() -> None:
    tree = MC_SIM_7B_63
    assert (tree.n_drafts, tree.n_nodes, tree.depth, len(tree.topology.leaves)) == (63, 64, 4, 42)
    assert tree.nodes_per_depth == (10, 28, 23, 2)
    assert tree.parents_per_depth == (1, 10, 10, 1)
    assert tree.contiguous
    assert tree.topology.name == tree.name == "mc_sim_7b_63"


def test_the_published_tree_has_its_published_paths() -> None:
    """Children of every node that has some; ranks are contiguous, so their number says all."""
    children = {
        (): 10, (0,): 10, (1,): 7, (2,): 3, (3,): 2, (4,): 1, (5,): 1, (6,): 1, (7,): 1, (8,): 1, (9,): 1,
        (0, 0): 10, (0, 1): 3, (0, 2): 2, (0, 3): 1, (0, 4): 1, (0, 5): 1, (0, 6): 1, (0, 7): 1,
        (1, 0): 2, (2, 0): 1, (0, 0, 0): 2,
    }  # fmt: skip
    expected = {(*parent, rank) for parent, n in children.items() for rank in range(n)}
    assert set(MC_SIM_7B_63.paths) == expected


@given(ANY_PATHS)
def test_nodes_paths_and_ranks_agree(paths: set[tuple[int, ...]]) -> None:
    tree = StaticTree.from_paths(closed(paths), "t")
    assert set(tree.paths) == closed(paths)
    topology = tree.topology
    assert tree.n_nodes == topology.n_nodes == len(tree.paths) + 1
    assert tree.depth == topology.depth
    for node, path in enumerate(tree.paths, start=1):
        assert tuple(tree.ranks[step] for step in topology.path(node)[1:]) == path
    for node, children in enumerate(topology.children):
        assert tree.widths[node] == max((tree.ranks[child] + 1 for child in children), default=0)
    assert sum(tree.nodes_per_depth) == tree.n_drafts
    assert sum(tree.parents_per_depth) + len(topology.leaves) == tree.n_nodes
    gapless = all(
        {tree.ranks[child] for child in children} == set(range(len(children))) for children in topology.children
    )
    assert tree.contiguous == gapless


@given(ANY_PATHS, st.randoms())
def test_order_and_notation_do_not_matter_and_json_keeps_all(paths: set[tuple[int, ...]], random: Any) -> None:
    shuffled = [list(path) for path in closed(paths)]
    random.shuffle(shuffled)
    tree = StaticTree.from_paths(shuffled, "t")
    assert tree == StaticTree.from_paths(tree.to_paths() + tree.to_paths(), "other")
    again = StaticTree.from_dict(json.loads(json.dumps(tree.to_dict())))
    assert again == tree and again.name == "t"


def test_trees_by_ranks_hold_the_paths_whose_products_are_small() -> None:
    tree = StaticTree.by_ranks((4, 3, 2))
    assert set(tree.paths) == {
        (0,), (1,), (2,), (3,), (0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0),
    }  # fmt: skip
    assert tree.contiguous
    assert StaticTree.by_ranks(()) == StaticTree()


def test_a_tree_without_paths_is_plain_decoding() -> None:
    tree = StaticTree()
    assert (tree.n_nodes, tree.depth, tree.widths, tree.ranks) == (1, 0, (0,), (-1,))
    assert tree.nodes_per_depth == tree.parents_per_depth == ()


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ([[0], [1, 0]], r"path \[1, 0\] lacks its prefix \[1\]"),
        ([[]], r"\[\] is not a path"),
        ([[-1]], r"\[-1\] is not a path"),
        ([[MAX_RANK]], "ranks from 0 to 126"),
        ([[0.5]], "is not a path"),
        ([[r] for r in range(126)] + [[0, r] for r in range(126)] + [[1, r] for r in range(4)], "at most 256 nodes"),
    ],
)
def test_other_paths_are_refused(paths: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        StaticTree.from_paths(paths)


@pytest.mark.parametrize(
    "data",
    [None, [], {}, {"paths": 3}, {"paths": [3]}, {"paths": [[True]]}, {"paths": [["0"]]}, {"name": 3, "paths": []}],
)
def test_other_json_is_refused(data: Any) -> None:
    with pytest.raises(UsageError, match="tree"):
        StaticTree.from_dict(data)


def test_levels_tell_what_each_head_is_asked() -> None:
    tree = StaticTree.from_paths([[3, 1], [0], [3]])
    assert [(level.parents, level.widths, level.above, level.greedy) for level in tree.levels] == [
        ((0,), (4,), (0,), 0),
        ((2,), (2,), (0,), None),
    ]
    assert [level.greedy for level in StaticTree.greedy(3).levels] == [0, 0, 0]
    assert StaticTree.greedy(3).paths == ((0,), (0, 0), (0, 0, 0)) and StaticTree.greedy(0).levels == ()
