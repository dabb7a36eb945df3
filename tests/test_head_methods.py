"""The methods on heads: what each verifies, and what it says when something is missing."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.calibrate.curve import CostCurve
from localspec.entmtp.policies import Star, Tau
from localspec.errors import UsageError
from localspec.heads.reference import HeadDraft
from localspec.methods.base import KnownTrees, Method
from localspec.methods.head_methods import HEAD_NAMES, WIDE, HeadKit, PolicyBank, within
from localspec.methods.registry import make_method
from localspec.static_tree import MC_SIM_7B_63, StaticTree

SMALL = StaticTree.from_paths([[0], [0, 0]])
BIG = StaticTree.from_paths([[0], [1], [0, 0], [0, 1], [1, 0]])
FREE = CostCurve((1, 64), (0.01, 0.0101))


class FakeHeads:
    """Drafts numbered tokens that are all equally likely, and no level below the first where these are too unlikely."""

    def __init__(self, depth: int = 4, q: float = 0.5) -> None:
        self.depth = depth
        self.q = q
        self.n_levels: list[int] = []

    def draft(self, g: np.ndarray, root: int, tree: StaticTree, least_p: float = 0.0) -> HeadDraft:
        n, n_levels = tree.n_nodes, tree.depth if self.q >= least_p else min(1, tree.depth)
        self.n_levels.append(n_levels)
        tokens, q = np.arange(n, dtype=np.int32), np.full(n, self.q, np.float32)
        tokens[tree.ends[n_levels] :], q[tree.ends[n_levels] :] = -1, 0
        return HeadDraft(tokens, q, (self.q,) * tree.depth, n_levels)


class Rows:
    def top_k(self, i: int, k: int) -> tuple[list[int], list[float]]:
        return [0], [0.0]

    def logsumexp(self, i: int) -> float:
        return 0.0

    def hidden(self, i: int) -> np.ndarray:
        return np.zeros(4, dtype=np.float32)


def bank() -> PolicyBank:
    tau = Tau(n_trees=2, small=0, big=1, tau_off=0.0, tau_on=0.1, depth=1)
    accepted = {"star": (0.0, 1.5), "tau": (0.25, 1.75)}
    return PolicyBank([SMALL, BIG], {"star": Star(2, 1), "tau": tau}, accepted, {"star": 1.5, "tau": 1.25})


def made(name: str, kit: HeadKit, curve: CostCurve | None = FREE) -> Method:
    return make_method(name, curve=curve, max_nodes=63, heads=kit)


def second_tree(method: Method) -> int:
    """Nodes of the second step: the first has no hidden state yet."""
    from localspec.methods.base import Walk

    rows: object = Rows()
    method.drafter.start([1, 2])
    method.scheduler.start()
    for _ in range(2):
        budget = method.scheduler.budget()
        tree = method.scheduler.select(method.drafter.propose(budget, method.scheduler.least_p))
        size = len(tree)
        walk = Walk((), (7,))
        method.drafter.observe(tree, rows, walk)  # type: ignore[arg-type]
        method.scheduler.observe(tree, walk, 0.01)
    return size


def test_static_methods_verify_their_tree_at_every_step() -> None:
    kit = HeadKit(FakeHeads(), FakeHeads(), bank)
    assert second_tree(made("medusa", kit)) == 63 == MC_SIM_7B_63.n_nodes - 1
    assert second_tree(made("hydra-static", kit)) == 63
    assert second_tree(made("hydra-best", kit)) == BIG.n_nodes


def test_each_kind_of_heads_drafts_as_deep_as_it_can() -> None:
    kit = HeadKit(FakeHeads(4), FakeHeads(2))
    assert second_tree(made("hydra-static", kit)) == 63
    assert second_tree(made("medusa", kit)) == within(MC_SIM_7B_63, 2).n_nodes < 63


def test_policies_pick_from_the_bank_and_heads_pick_nodes() -> None:
    kit = HeadKit(FakeHeads(), None, bank)
    assert second_tree(made("entmtp-star", kit)) == BIG.n_nodes
    assert second_tree(made("entmtp-tau", kit)) == BIG.n_nodes
    # nodes are nearly free, and everything asked for is likely: the budget of a first draft
    assert second_tree(made("heads", kit)) > 2


@pytest.mark.parametrize("name", ["hydra-best", "entmtp-star", "entmtp-tau", "heads"])
def test_trees_of_a_bank_are_drafted_whole_whatever_their_nodes_promise(name: str) -> None:
    heads = FakeHeads(q=0.01)
    dear = CostCurve((1, 2, 64), (0.01, 0.0105, 0.0415))  # a node pays from a chance of 0.05 on
    method = made(name, HeadKit(heads, None, bank), dear)
    second_tree(method)
    assert heads.n_levels == ([1] if name == "heads" else [2])
    if name != "heads":
        assert len(method.drafter.propose(63)) == BIG.n_nodes, "which contains all trees of the bank"


def test_methods_with_static_trees_tell_them_and_what_is_expected() -> None:
    kit = HeadKit(FakeHeads(), FakeHeads(), bank)
    assert made("hydra-best", kit).trees == KnownTrees((BIG,), (1.5,), 1.5)
    assert made("entmtp-tau", kit).trees == KnownTrees((SMALL, BIG), (0.25, 1.75), 1.25)
    assert made("medusa", kit).trees == KnownTrees((within(MC_SIM_7B_63, 4, 63),))
    assert made("heads", kit).trees is None


@pytest.mark.parametrize("name", HEAD_NAMES)
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} drafts with .* heads, and there are none"):
        made(name, HeadKit())
    if name.startswith("entmtp") or name == "hydra-best":
        with pytest.raises(UsageError, match="needs a bank"):
            made(name, HeadKit(FakeHeads()))


def test_trees_are_cut_to_what_the_heads_can_draft() -> None:
    assert within(WIDE, 4) is WIDE
    shallow = within(WIDE, 2)
    assert shallow.topology.depth == 2
    assert set(shallow.paths) == {path for path in WIDE.paths if len(path) <= 2}
