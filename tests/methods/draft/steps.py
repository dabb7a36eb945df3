"""Steps of a drafter without a target: a walk over its tree to whatever a test says was written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from localspec.methods.base import Drafter, Walk
from localspec.methods.draft.cache import DraftCache
from localspec.methods.draft.drafter import DraftModel
from localspec.tree import Tree
from tests.toy import EOG, ToyContext

N_VOCAB = 24


def toy_model(n_common: int = N_VOCAB, **settings: Any) -> DraftModel:
    """A draft model whose text repeats itself, with a sliding memory of two tokens unless told otherwise."""
    ctx = ToyContext(**{"n_ctx": 400, "n_vocab": N_VOCAB, "memory": 2, **settings})
    return DraftModel(DraftCache(cast(Any, ctx)), n_common, frozenset({EOG}))


def follow(drafter: Drafter, tree: Tree, n_accepted: int, bonus: int) -> tuple[int, ...]:
    """Tell the drafter that the first path of `tree` was accepted for `n_accepted` nodes, and then `bonus` came."""
    path: list[int] = []
    node = 0
    while len(path) < n_accepted and tree.topology.children[node]:
        node = tree.topology.children[node][0]
        path.append(node)
    tokens = (*[tree.tokens[node] for node in path], bonus)
    rows: Any = None
    drafter.observe(tree, rows, Walk(tuple(path), tokens))
    return tokens


def greedy(model: DraftModel, text: Sequence[int], n: int) -> list[int]:
    """What a fresh context of the toy drafts after `text`, token by token."""
    old: Any = model.cache.ctx
    ctx = ToyContext(n_ctx=1 << 20, n_vocab=old.n_vocab, memory=old._memory, eog_bias=old._eog_bias)
    ctx.prefill(text[:-1])
    tokens = [text[-1]]
    for _ in range(n):
        rows = ctx.decode(tokens[-1:], [-1])
        tokens.append(rows.argmax(0))
        ctx.accept([0])
        if tokens[-1] in model.eog:
            break
    return tokens[1:]
