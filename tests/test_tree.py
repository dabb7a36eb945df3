"""Shapes and trees: every derived array follows from the parents."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.tree import MAX_NODES, Topology, TopologyBank, Tree, TreeBuilder


@st.composite
def topologies(draw: st.DrawFn, max_nodes: int = 70) -> Topology:
    n = draw(st.integers(1, max_nodes))
    return Topology((-1, *(draw(st.integers(0, node - 1)) for node in range(1, n))))


@given(topologies())
def test_depths_children_and_paths_agree_with_the_parents(topology: Topology) -> None:
    for node, parent in enumerate(topology.parents):
        path = topology.path(node)
        assert path[0] == 0 and path[-1] == node
        assert all(topology.parents[b] == a for a, b in pairwise(path))
        assert topology.depths[node] == len(path) - 1
        if parent >= 0:
            assert node in topology.children[parent]
    assert sum(map(len, topology.children)) == topology.n_nodes - 1
    assert topology.depth == max(len(topology.path(leaf)) - 1 for leaf in topology.leaves)


@given(topologies())
def test_ancestor_bits_are_the_path(topology: Topology) -> None:
    words = topology.ancestors
    assert words.shape == (len(topology), (len(topology) + 31) // 32)
    for node in range(len(topology)):
        bits = {g for g in range(len(topology)) if words[node, g // 32] >> np.uint32(g % 32) & np.uint32(1)}
        assert bits == set(topology.path(node))


@given(topologies(), st.data())
def test_pruning_keeps_the_paths_of_what_is_kept(topology: Topology, data: st.DataObject) -> None:
    wanted = data.draw(st.sets(st.integers(0, len(topology) - 1)))
    keep = sorted({0}.union(*(topology.path(node) for node in wanted)))
    tokens = tuple(range(100, 100 + len(topology)))
    tree = Tree(topology, tokens, tuple(1 / (1 + depth) for depth in topology.depths))
    pruned = tree.prune(keep)
    assert len(pruned) == len(keep)
    for position, node in enumerate(keep):
        assert [tree.tokens[a] for a in topology.path(node)] == [
            pruned.tokens[a] for a in pruned.topology.path(position)
        ]
        assert pruned.p[position] == tree.p[node]


def test_the_likeliest_nodes_are_a_tree_again() -> None:
    tree = Tree.of([-1, 0, 0, 1, 2, 3], [9, 1, 2, 3, 4, 5], [1.0, 0.5, 0.4, 0.1, 0.4, 0.1])
    assert tree.likeliest(6) is tree
    assert tree.likeliest(4).tokens == (9, 1, 2, 4)
    assert tree.likeliest(5).tokens == (9, 1, 2, 3, 4), "among equals the one that comes first"
    assert tree.likeliest(6, 0.2).tokens == (9, 1, 2, 4)
    assert tree.likeliest(6, 2.0).tokens == (9,)


@pytest.mark.parametrize("parents", [(), (0,), (-1, 1), (-1, -1), (-1, 0, 5), (-1,) + (0,) * MAX_NODES])
def test_parents_that_are_no_tree_are_refused(parents: tuple[int, ...]) -> None:
    with pytest.raises(UsageError):
        Topology(parents)


def test_the_largest_tree_and_the_chain_are_allowed() -> None:
    assert Topology.chain(MAX_NODES).depth == MAX_NODES - 1
    assert Topology.chain(3) is Topology.chain(3)
    assert Topology((-1,) + (0,) * (MAX_NODES - 1)).depth == 1


def test_rank_paths_of_tree_files_are_read() -> None:
    topology = Topology.from_paths([[1], [0], [0, 0], [0, 1], [0, 0, 0], []])
    assert topology.parents == (-1, 0, 0, 1, 1, 3)


def test_a_rank_path_without_its_prefix_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"\[1, 0\] lacks its prefix \[1\]"):
        Topology.from_paths([[0], [1, 0]])


def test_shared_arrays_cannot_be_changed() -> None:
    topology = Topology((-1, 0, 0))
    for array in (topology.parent_array, topology.ancestors):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


def test_equal_shapes_are_equal_whatever_their_names() -> None:
    assert Topology((-1, 0), "a") == Topology((-1, 0), "b")
    assert len({Topology((-1, 0), "a"), Topology((-1, 0), "b")}) == 1


def test_a_bank_is_sorted_and_gives_the_largest_that_fits() -> None:
    bank = TopologyBank((Topology.chain(8), Topology.chain(2), Topology.chain(4)))
    assert [len(topology) for topology in bank] == [2, 4, 8]
    assert len(bank.largest_within(7)) == 4
    assert len(bank.largest_within(1)) == 2
    with pytest.raises(UsageError):
        TopologyBank(())


def test_the_builder_merges_equal_children_and_keeps_estimates_monotone() -> None:
    builder = TreeBuilder(9)
    end = builder.add_path(0, [1, 2], [0.5, 0.9])
    assert builder.add_path(0, [1, 2, 3], [0.7, 0.6, 0.1]) == end + 1
    builder.add(0, 4, 2.0)
    tree = builder.build()
    assert tree.tokens == (9, 1, 2, 3, 4)
    assert tree.topology.parents == (-1, 0, 1, 2, 0)
    assert list(tree.p) == pytest.approx([1.0, 0.7, 0.6, 0.1, 1.0])
    assert all(tree.p[node] <= tree.p[parent] for node, parent in enumerate(tree.topology.parents) if node)


def test_a_child_is_found_by_its_token_and_parent() -> None:
    builder = TreeBuilder(9)
    first = builder.add(0, 1, 0.5)
    below = builder.add(first, 2, 0.4)
    tree = builder.build()
    assert tree.child(0, 1) == first
    assert tree.child(first, 2) == below
    assert tree.child(0, 2) is None
    assert len(Tree.root(5)) == 1
