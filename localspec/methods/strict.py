"""Lossless verification: sample from the target, follow the drafted child that carries the sample.

Every emitted token is one draw of the target's own sampler with its own history, in order. So the text has the
target's distribution, and a seed gives the same text whatever was drafted. For fixed drafts no lossless rule accepts
more.
"""

from __future__ import annotations

from localspec.engine.base import Rows
from localspec.methods.base import Sampler, Walk
from localspec.tree import Tree


class StrictVerifier:
    """Sample-and-match. The sampler's history gains exactly the emitted tokens."""

    name = "strict"
    lossless = True

    def walk(self, tree: Tree, rows: Rows, sampler: Sampler, stop: frozenset[int], limit: int) -> Walk:
        """Emit at most `limit` (>= 1) tokens, ending with the first token in `stop`."""
        path: list[int] = []
        tokens: list[int] = []
        node: int | None = 0
        while node is not None:
            token = sampler.sample(rows, node)
            sampler.accept(token)
            tokens.append(token)
            node = tree.child(node, token)
            if node is not None:
                path.append(node)
            if token in stop or len(tokens) >= limit:
                break
        return Walk(tuple(path), tuple(tokens))
