"""Ranks of recorded answers: what the heads would have drafted at every position, looked up in one go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from localspec.entmtp.observe import hidden_rows, observe_answers, ranked
from localspec.entmtp.ranks import MISSING
from localspec.errors import UsageError
from localspec.heads.reference import ReferenceHeads
from localspec.replay.log import LoggedAnswer
from localspec.static_tree import MAX_RANK, StaticTree
from tests.heads.checkpoints import N_HEADS, V, embedding
from tests.heads.random_heads import SPECS, heads_of, hidden_states, spec_of

EMBED = embedding()
TOKENS = tuple(np.random.default_rng(3).integers(0, V, 9).tolist())


def answer(name: str = "a", tokens: tuple[int, ...] = TOKENS) -> LoggedAnswer:
    return LoggedAnswer(name, "chat", (1, 2), tokens, [[t] for t in tokens], [[1.0] for _ in tokens])


@pytest.mark.parametrize("kind", ["hydra-mlp", "medusa", "trimmed"])
def test_a_rank_is_where_the_head_had_the_true_token(kind: str) -> None:
    heads = ReferenceHeads(heads_of(spec_of(**SPECS[kind])), EMBED)
    hidden = hidden_states(len(TOKENS))
    seen = ranked(heads, answer(), hidden, np.full(len(TOKENS), 0.5, dtype=np.float32))
    n_known = 0
    for t, g in enumerate(hidden):
        for head in range(N_HEADS):
            if t + 1 + head >= len(TOKENS):
                assert seen.ranks[t, head] == MISSING
                continue
            path = TOKENS[t : t + head + 1]
            order = np.argsort(-heads.logits(head, g, [path])[0], kind="stable")
            places = np.flatnonzero(heads.ids[order] == TOKENS[t + 1 + head])
            assert seen.ranks[t, head] == (min(places[0], MAX_RANK) if len(places) else MAX_RANK)
            n_known += len(places)
    assert n_known > 3, "else nothing was compared"


def test_shares_are_those_of_the_greedy_path() -> None:
    heads = ReferenceHeads(heads_of(spec_of(**SPECS["trimmed"])), EMBED)
    hidden = hidden_states(len(TOKENS))
    seen = ranked(heads, answer(), hidden, np.full(len(TOKENS), 0.5, dtype=np.float32))
    for t, g in enumerate(hidden):
        draft = heads.draft(g, TOKENS[t], StaticTree.greedy(N_HEADS))
        np.testing.assert_allclose(seen.q[t], draft.top1, rtol=1e-4)


class FakeRows:
    """Rows whose hidden state is the number of the token that was decoded."""

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = tokens

    def hidden(self, i: int) -> np.ndarray:
        return np.full(4, self._tokens[i], dtype=np.float32)

    def top_k(self, i: int, k: int) -> tuple[list[int], list[float]]:
        return [0], [float(np.log(0.25))]

    def logsumexp(self, i: int) -> float:
        return 0.0


class FakeContext:
    """Keeps what it was asked for."""

    def __init__(self) -> None:
        self.text: list[int] = []
        self._open: list[int] = []

    def drop(self) -> None:
        self._open = []

    def trim(self, n: int) -> None:
        del self.text[n:]

    def prefill(self, tokens: list[int]) -> None:
        self.text += tokens

    def decode(self, tokens: list[int], parents: Any) -> FakeRows:
        assert list(parents) == list(range(-1, len(tokens) - 1)) and not self._open
        self._open = list(tokens)
        return FakeRows(self._open)

    def accept(self, path: range) -> None:
        assert list(path) == list(range(len(self._open)))
        self.text, self._open = self.text + self._open, []


@pytest.mark.parametrize("n", [1, 47, 48, 49, 150])
def test_hidden_states_are_those_that_each_token_was_drawn_from(n: int) -> None:
    ctx: Any = FakeContext()
    ctx.text = [9, 9]
    tokens = list(range(100, 100 + n))
    hidden, best = hidden_rows(ctx, [1, 2, 3], tokens)
    assert ctx.text == [1, 2, 3, *tokens[:-1]]
    assert hidden[:, 0].tolist() == [3, *tokens[:-1]]
    np.testing.assert_allclose(best, 0.25, rtol=1e-6)


def test_no_answers_are_refused() -> None:
    heads = ReferenceHeads(heads_of(spec_of(**SPECS["hydra-mlp"])), EMBED)
    ctx: Any = FakeContext()
    with pytest.raises(UsageError, match="no recorded answers"):
        observe_answers(ctx, heads, [], {})
