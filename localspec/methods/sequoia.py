"""Lossless verification of drafts that were drawn by chance: Sequoia's rule (Chen et al. 2024, algorithm 2).

A node's children were drawn one after the other from the head's law q, without replacement. They are tried in that
order. Child x is accepted with probability min(1, p(x) / q(x)); when it is not, what remains of the target's law is
p <- norm(max(p - q, 0)), and the next child was drawn from q <- norm(q without x), or, when q is used up, uniformly
from what was not drawn. When no child is accepted the token is drawn from what remains of p. So each token has exactly
the law p of the target, given the text before it; but which token it is depends on what was drafted, so a seed does
not give the text of plain decoding.

Children may have been left out of the tree that is verified, as long as nothing in that choice looked at the tokens
that were drawn in this step or at their probabilities: given the draws before it, a child must still have the law q. A
rule that keeps the likely draws breaks that, and makes likely tokens too frequent. A child that was left out is
skipped: it only leaves q.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt

from localspec.engine.base import Law, Rows
from localspec.errors import EngineError
from localspec.heads.draws import Law64
from localspec.methods.base import Sampler, Walk
from localspec.methods.sampled import DraftSampling
from localspec.tree import Tree


def try_children(
    p: Law64,
    q: Law64,
    place: npt.NDArray[np.integer],
    draws: Sequence[int],
    kept: Collection[int],
    uniform: Callable[[], float],
) -> tuple[int | None, Law64]:
    """The draw that is accepted, None if none is, and what remains of the target's law then.

    `p` is the target's law [n] and `q` the law [m] that `draws` (indices of q, in order) were drawn from without
    replacement; `place` [n] is where each entry of `p` stands in `q`, -1 for nowhere. Only the draws in `kept` are
    tried. `uniform` gives random numbers from [0, 1).
    """
    q = q.copy()
    drawn = np.zeros(len(q), dtype=bool)
    for draw in draws:
        total = q.sum()
        if total == 0.0:
            q = np.where(drawn, 0.0, 1.0)
            total = q.sum()
        if draw in kept:
            proposed = np.where(place >= 0, q[place], 0.0) / total
            chance = p[place == draw].sum()  # one entry, or none where the target cannot say it
            rest = np.maximum(p - proposed, 0.0)
            remaining = rest.sum()
            # without a remainder the laws are equal, up to rounding: every draw is right
            if uniform() * q[draw] / total < chance or remaining == 0.0:
                return draw, p
            p = rest / remaining
        q[draw] = 0.0
        drawn[draw] = True
    return None, p


class SequoiaVerifier:
    """Verifies trees that were drafted with `sampling`: what its drafter drew last is the tree that is walked, or it
    without some nodes (see above). The sampler's history gains exactly the emitted tokens."""

    name = "sequoia"
    lossless = True

    def __init__(self, sampling: DraftSampling) -> None:
        self._sampling = sampling

    def walk(self, tree: Tree, rows: Rows, sampler: Sampler, stop: frozenset[int], limit: int) -> Walk:
        """Emit at most `limit` (>= 1) tokens, ending with the first token in `stop`.

        Raises `EngineError` for a tree that is not the one that was drawn.
        """
        path: list[int] = []
        tokens: list[int] = []
        node: int | None = 0
        place = 0  # the node in the tree as it was drawn
        while node is not None:
            if tree.topology.children[node]:
                token, node, place = self._step(tree, node, place, sampler.law(rows, node), sampler)
            else:
                token, node = sampler.sample(rows, node), None
            sampler.accept(token)
            tokens.append(token)
            if node is not None:
                path.append(node)
            if token in stop or len(tokens) >= limit:
                break
        return Walk(tuple(path), tuple(tokens))

    def _step(self, tree: Tree, node: int, place: int, law: Law, sampler: Sampler) -> tuple[int, int | None, int]:
        """The token after `node`, the child that it leads to, and that child in the drawn tree."""
        drawn = self._sampling.drawn
        kept = {tree.tokens[child]: child for child in tree.topology.children[node]}
        drawn_as = {} if drawn is None else {int(drawn.tokens[child]): child for child in drawn.children[place]}
        if drawn is None or not kept.keys() <= drawn_as.keys():
            raise EngineError("the tree is not the one that was drawn", "verify what the drafter proposed last")
        row_of = drawn.row_of
        token_of = {int(row_of[token]): token for token in drawn_as}
        rows_kept = {row for row, token in token_of.items() if token in kept}
        row, rest = try_children(law.p, drawn.laws[place], row_of[law.ids], list(token_of), rows_kept, sampler.uniform)
        if row is None:
            return int(law.ids[pick(rest, sampler.uniform())]), None, -1
        token = token_of[row]
        return token, kept[token], drawn_as[token]


def pick(law: Law64, number: float) -> int:
    """The index that a random number from [0, 1) stands for, each as likely as `law` says."""
    sums = np.cumsum(law)
    # not the length of the law: the last possible entry, should rounding leave the number above all sums
    return int(np.searchsorted(sums, min(number * sums[-1], np.nextafter(sums[-1], 0.0)), side="right"))
