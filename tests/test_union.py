"""Two drafters in one tree: how their nodes meet, and when the dear one is asked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from localspec.engine.base import Rows
from localspec.methods.base import Walk
from localspec.methods.union import FIRST_GAIN, RETRY_EVERY, Asking, UnionDrafter, join
from localspec.tree import Tree

#: 1 -> 2 -> 3, and 1 -> 4
KNOWN = Tree.of([-1, 0, 1, 0], [1, 2, 3, 4], [1.0, 0.6, 0.3, 0.1])
#: 1 -> 2 -> 5, and 1 -> 6 -> 7
GUESSED = Tree.of([-1, 0, 0, 1, 2], [1, 2, 6, 5, 7], [1.0, 0.5, 0.2, 0.25, 0.1])


def chances(tree: Tree) -> dict[tuple[int, ...], float]:
    """p of each node by the tokens of its path."""
    return {tuple(tree.tokens[n] for n in tree.topology.path(node)[1:]): p for node, p in enumerate(tree.p)}


def test_the_joint_tree_has_every_path_once() -> None:
    joint = join(KNOWN, GUESSED)
    assert set(chances(joint)) == set(chances(KNOWN)) | set(chances(GUESSED))
    assert len(joint) == 7
    for node, parent in enumerate(joint.topology.parents[1:], start=1):
        assert parent < node and joint.p[node] <= joint.p[parent]


def test_what_both_drafted_is_likelier_and_what_one_alone_drafted_less_likely() -> None:
    p = chances(join(KNOWN, GUESSED))
    assert p[2,] > 0.6
    assert p[4,] < 0.1
    assert p[6,] < 0.2
    # the heads drafted nothing below (2, 3): ptd's word stands there
    deeper = Tree.of([-1, 0, 1, 2], [1, 2, 3, 9], [1.0, 0.6, 0.3, 0.15])
    q = chances(join(deeper, GUESSED))
    assert q[2, 3, 9] / q[2, 3] == pytest.approx(0.5)


def test_a_tree_joined_with_a_lone_root_stays_what_it_is() -> None:
    assert chances(join(KNOWN, Tree.root(1))) == pytest.approx(chances(KNOWN))


class Drafter:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.calls = 0
        self.seen = 0
        self.least_p = -1.0

    def start(self, prompt: Sequence[int]) -> None:
        pass

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        self.calls += 1
        self.least_p = least_p
        return self.tree

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        self.seen += 1


class Judge:
    """Every node of the tree is worth its p, a second of drafting `price` tokens."""

    def __init__(self, price: float) -> None:
        self.price = price
        self.on = True

    def promise(self, tree: Tree, seconds: float = 0.0) -> float:
        return sum(tree.p) - self.price * seconds


def union(price: float, on: bool = True) -> tuple[UnionDrafter, Drafter]:
    heads = Drafter(GUESSED)
    ticks = iter(range(10**6))
    judge = Judge(price)
    judge.on = on
    return UnionDrafter(Drafter(KNOWN), heads, judge, lambda: float(next(ticks))), heads


def test_heads_that_pay_are_always_asked() -> None:
    drafter, heads = union(price=0.0)
    for _ in range(100):
        assert len(drafter.propose(16)) == 7
    assert heads.calls == 100 == drafter.n_asked


def test_no_more_nodes_than_asked_for_and_the_likeliest_of_both() -> None:
    drafter, _ = union(price=0.0)
    both = chances(drafter.propose(16))
    for n in (3, 5, 6, 7):
        likeliest = sorted(both, key=both.__getitem__)[-n:]
        assert chances(drafter.propose(n)) == {path: both[path] for path in likeliest}


def test_without_a_judge_the_heads_are_always_asked() -> None:
    heads = Drafter(GUESSED)
    drafter = UnionDrafter(Drafter(KNOWN), heads, None)
    drafter.start([1])
    for _ in range(3):
        assert len(drafter.propose(5)) == 5
    assert heads.calls == drafter.n_asked == drafter.n_steps == 3
    drafter.start([1])
    assert drafter.n_steps == 0


def test_heads_that_cost_more_than_they_bring_are_tried_now_and_then_only() -> None:
    drafter, heads = union(price=5.0)
    sizes = [len(drafter.propose(16)) for _ in range(50 + 4 * RETRY_EVERY)]
    assert set(sizes[-2 * RETRY_EVERY :]) == {4, 7}
    assert sizes[-2 * RETRY_EVERY :].count(7) == 2
    assert heads.calls == drafter.n_asked < 20


def test_the_heads_are_told_what_is_not_worth_drafting() -> None:
    drafter, heads = union(price=0.0)
    drafter.propose(16, 0.05)
    assert heads.least_p == 0.05
    heads = Drafter(GUESSED)
    UnionDrafter(Drafter(KNOWN), heads, None).propose(16, 0.07)
    assert heads.least_p == 0.07


def test_probes_ask_the_heads_in_turn() -> None:
    drafter, heads = union(price=0.0, on=False)
    for _ in range(40):
        drafter.propose(4)
    assert heads.calls == 10


def test_kinds_of_steps_are_judged_apart() -> None:
    asking = Asking()
    for _ in range(100):
        asking.learn(3.0, -0.2)
    assert asking.pays(1.1)
    assert not asking.pays(3.0)
    for _ in range(100):
        asking.learn(3.0, FIRST_GAIN)
    assert asking.pays(3.0)
