"""Draft-only nodes: chosen by cost, in step with the text, and judged by what they brought."""

from __future__ import annotations

from localspec.calibrate.curve import CostCurve
from localspec.decode import Generator, Limits
from localspec.methods.base import Method, Walk
from localspec.methods.governor import Governor
from localspec.methods.ptd.drafter import PtdDrafter
from localspec.methods.ptd.scout import FIRST_WORTH, Scout
from localspec.methods.ptd.window import Window
from localspec.methods.registry import make_method
from localspec.methods.strict import StrictVerifier
from localspec.tree import Tree
from tests.toy import ToyContext, ToySampler, ToyVocab, collect

#: a device on which further nodes are almost free, and one on which they are not
FREE = CostCurve((1, 64), (0.01, 0.01001))
DEAR = CostCurve((1, 2, 64), (0.01, 0.012, 0.1))


class Rows:
    """The best token of every row is its token plus 1."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def argmax(self, i: int) -> int:
        return self._tree.tokens[i] + 1


def governed(curve: CostCurve) -> Governor:
    governor = Governor(curve, 63)
    governor.start()
    governor.budget()
    governor.observe(Tree.root(1), Walk((), (2,)), curve.cost(1))
    governor.budget()
    governor.select(Tree.of([-1, 0], [1, 2], [1.0, 0.9]))
    return governor


def test_draft_only_nodes_are_added_while_they_cost_less_than_they_bring() -> None:
    assert governed(DEAR).spare(2, 0.01) == 0
    few, many = governed(CostCurve((1, 10, 64), (0.01, 0.01001, 0.1))).spare(2, 0.01), governed(FREE).spare(2, 0.01)
    assert 4 <= few <= 8
    assert many >= 16
    assert governed(FREE).spare(2, 0.0) == 0
    assert governed(DEAR).spare(2, 10.0) > 0


def test_a_governor_that_is_off_or_knows_no_costs_adds_none() -> None:
    unknown = Governor(None, 63)
    unknown.start()
    unknown.budget()
    assert unknown.spare(1, 5.0) == 0
    off = governed(FREE)
    off.on = False
    assert off.spare(2, 1.0) == 0


def test_the_window_moves_on_with_the_text_and_keeps_its_sub_trees() -> None:
    window = Window(4, 6, frozenset(), [[10, 11, 12], [20], [30, 31, 32]])
    window.shift(2)
    assert list(window.roots) == [30, 31, 32], "the last token's chain goes on where the window ended"
    window.shift(9)
    assert not window.roots


def test_the_tree_keeps_its_nodes_and_gets_the_window_as_its_last_ones() -> None:
    scout = Scout(frozenset())
    scout.start([5, 6, 7, 5])
    tree = Tree.of([-1, 0, 1], [5, 6, 40], [1.0, 0.6, 0.3])
    extended = scout.extend(tree, 2)
    assert extended.tokens[:3] == tree.tokens and extended.p[:3] == tree.p
    assert 3 < len(extended) <= 5
    assert scout.extend(tree, 0) is tree


def test_what_draft_only_nodes_bring_is_counted() -> None:
    def run(hits: bool) -> float:
        scout = Scout(frozenset())
        text = [1, 2, 3, 1]
        scout.start(text)
        for i in range(400):
            root = Tree.root(text[-1])
            tree = scout.extend(root, 8)
            # what the first draft-only node says comes true, and the token after it was drafted, or never does
            right = hits and len(tree) > 1
            token = tree.tokens[1] if right else 1000 + i
            scout.observe(tree, Rows(tree), Walk((), (token,)))  # type: ignore[arg-type]
            text.append(token)
            after = Tree.of([-1, 0], [token, token + 1], [1.0, 0.5])
            scout.observe(after, Rows(after), Walk((1,), (token + 1, 2000 + i)))  # type: ignore[arg-type]
            text += [token + 1, 2000 + i]
        return scout.worth

    assert run(True) > 2 * FIRST_WORTH
    assert run(False) < 0.5 * FIRST_WORTH


def test_a_tree_that_was_cut_after_all_is_no_harm() -> None:
    scout = Scout(frozenset())
    scout.start([5, 6, 7, 5])
    root = Tree.root(5)
    assert len(scout.extend(root, 8)) > 2
    worth = scout.worth
    scout.observe(root, Rows(root), Walk((), (6,)))  # type: ignore[arg-type]
    assert scout.worth == worth, "nodes that were not verified do not count"


def test_text_with_draft_only_nodes_is_that_of_plain_decoding() -> None:
    def text(method: Method) -> tuple[list[int], list[int]]:
        ctx = ToyContext(300)
        generator = Generator(ToyVocab(), ctx)
        tokens, _, _ = collect(generator.generate([5, 6, 7], ToySampler(0.7, seed=2), method, Limits(200)))
        return tokens, ctx.trees

    plain, _ = text(make_method("plain", curve=None, max_nodes=63))
    scouted = Method("ptd", PtdDrafter(), Governor(FREE, 63), StrictVerifier(), Scout(frozenset({0})))
    drafted, sizes = text(scouted)
    assert drafted == plain
    without, small = text(Method("ptd", PtdDrafter(), Governor(DEAR, 63), StrictVerifier(), Scout(frozenset({0}))))
    assert without == plain
    assert max(sizes) > max(small)
