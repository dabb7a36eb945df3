"""Looks at recorded answers with the heads: the ranks that trees are replayed on.

Every position is seen with the true text before it, whatever was drafted there: so one look serves all trees
(papers.md 1.5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from localspec.engine.base import TreeContext
from localspec.entmtp.ranks import MISSING, RankedAnswer, RankLog
from localspec.errors import UsageError
from localspec.heads.reference import ReferenceHeads
from localspec.heads.spec import FloatArray, IntArray
from localspec.replay.log import LoggedAnswer
from localspec.static_tree import MAX_RANK
from localspec.tree import Topology

#: tokens of one forward pass: the rows of a pass are read before the next. With 64 rows and more, attention on CPUs
#: without the row kernels sums in another order, and hidden states would not be those of decoding
CHUNK = 48
#: called with answers seen and answers in all
Progress = Callable[[int, int], None]


def hidden_rows(ctx: TreeContext, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """What the model saw when it wrote each of `tokens` after `prompt`: its hidden state [n, n_embd] after the final
    norm, and the probability of its best token [n].

    Empties sequence 0 first and leaves it filled. Raises `ContextLengthError` when the text does not fit.
    """
    ctx.drop()
    ctx.trim(0)
    if len(prompt) > 1:
        ctx.prefill(list(prompt[:-1]))
    text = [prompt[-1], *tokens[:-1]]
    hidden: list[FloatArray] = []
    best: list[float] = []
    for start in range(0, len(text), CHUNK):
        chunk = text[start : start + CHUNK]
        rows = ctx.decode(chunk, Topology.chain(len(chunk)).parents)
        for i in range(len(chunk)):
            hidden.append(rows.hidden(i))
            best.append(math.exp(rows.top_k(i, 1)[1][0] - rows.logsumexp(i)))
        ctx.accept(range(len(chunk)))
    return np.stack(hidden), np.array(best, dtype=np.float32)


def ranked(heads: ReferenceHeads, answer: LoggedAnswer, hidden: FloatArray, p_base: FloatArray) -> RankedAnswer:
    """The ranks that heads gave the tokens of an answer, from what the model saw at each (see `hidden_rows`).

    The true token has rank r when r tokens were more likely to its head; one that the heads do not know has the last
    rank there is.
    """
    spec = heads.spec
    tokens = np.array(answer.tokens, dtype=np.int32)
    n = len(tokens)
    ranks = np.full((n, spec.n_heads), MISSING, dtype=np.int16)
    q = np.full((n, spec.n_heads), np.nan, dtype=np.float32)
    greedy = tokens[:, None]
    for head in range(spec.n_heads):
        logits = heads.logits(head, hidden, greedy)
        q[:, head] = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
        greedy = np.concatenate([greedy, heads.ids[logits.argmax(axis=1)][:, None]], axis=1)
        m = n - 1 - head  # positions whose true token is in the answer
        if m > 0:
            paths = np.stack([tokens[at : at + m] for at in range(head + 1)], axis=1)
            ranks[:m, head] = _ranks(heads.logits(head, hidden[:m], paths), heads.rows[tokens[head + 1 :]])
    return RankedAnswer(answer.id, answer.task, ranks, p_base, q)


def _ranks(logits: FloatArray, true_rows: IntArray) -> npt.NDArray[np.int64]:
    """Rank of the true row of each [m, n_rows], ties counted for it; `MAX_RANK` where there is no such row."""
    known = (true_rows >= 0) & (true_rows < logits.shape[1])
    true = np.take_along_axis(logits, np.where(known, true_rows, 0)[:, None], axis=1)
    found: npt.NDArray[np.int64] = (logits > true).sum(axis=1)
    return np.where(known, np.minimum(found, MAX_RANK), MAX_RANK)


def observe_answers(
    ctx: TreeContext,
    heads: ReferenceHeads,
    answers: Iterable[LoggedAnswer],
    header: dict[str, object],
    progress: Progress | None = None,
) -> RankLog:
    """The rank log of recorded greedy answers. Raises `UsageError` when there are none."""
    answers = list(answers)
    if not answers:
        raise UsageError("there are no recorded answers to look at", "`localspec record` makes some")
    found = []
    for answer in answers:
        found.append(ranked(heads, answer, *hidden_rows(ctx, answer.prompt, answer.tokens)))
        if progress is not None:
            progress(len(found), len(answers))
    return RankLog(tuple(found), header)
