"""A greedy chain of the draft model's tokens, as long as it pays.

Each pass of the draft model takes time, so the chain ends where the next token is too unlikely to be worth a pass and
its verification: p_next < (pass + verification, in plain steps) * tokens per plain step so far. What earlier text
suggests is checked by the draft model in one pass, so that one pass may draft several tokens; the chain is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from localspec.engine.base import Rows
from localspec.methods.base import Walk
from localspec.methods.draft.cache import DraftCache
from localspec.methods.draft.confidence import Confidence
from localspec.methods.draft.guesses import MAX_GUESS, Guesses
from localspec.tree import Topology, Tree

#: tokens drafted at most (K of FLy for a draft of a tenth of the target, papers.md 4.1)
MAX_DRAFT = 15
#: tokens beside the best one that the draft model finds less likely are no leaves
LEAST_BESIDE = 0.02
#: probability that stands for that of the token before the first draft
FIRST = 0.5
#: tokens that the draft model may lag behind to be fed with the next pass; more are read first, without rows
CATCH_UP = 8
#: tokens that it always lags behind, when all drafts were accepted
FEW = 2


@dataclass(frozen=True)
class DraftModel:
    """A small model beside the target, by the cache of its context.

    Ids below `n_common` mean the same token in both; `eog` are those that end a text.
    """

    cache: DraftCache
    n_common: int
    eog: frozenset[int] = frozenset()


class Judge(Protocol):
    """Says what is worth its time: `DraftGovernor` does."""

    @property
    def price(self) -> float:
        """Tokens that every second has to bring: as many as generation brought lately."""
        ...

    @property
    def stake(self) -> float:
        """Seconds that the draft of one step may take."""
        ...

    def gain(self, n_nodes: int, depth: int, p: float) -> float:
        """Tokens that a node at `depth`, accepted with chance `p`, brings beside `n_nodes` others, less those that the
        time to verify it would bring."""
        ...

    def further(self, p: Sequence[float], n: int) -> list[float]:
        """Tokens that the drafts after the first `n` of a chain bring with forgiving, less those that the time to
        verify them would bring: for one more, two more, and so on; empty where nothing is forgiven. `p` are the chances
        that each draft and all before it match."""
        ...


@dataclass(slots=True)
class _Chain:
    """A chain in the making. `q` are the draft model's probabilities of its tokens, `p` the chances that the target
    takes them; `node` is where its tree holds the last one that it has read. `beside` has, for each token, those that
    could come in its place, with their probabilities."""

    most: int
    tokens: list[int] = field(default_factory=list)
    q: list[float] = field(default_factory=list)
    p: list[float] = field(default_factory=list)
    beside: list[list[tuple[int, float]]] = field(default_factory=list)
    node: int = -1

    def tree(self, root: int, confidence: Confidence) -> Tree:
        """The chain, and leaves beside it."""
        if not any(self.beside):
            return Tree(Topology.chain(len(self.tokens) + 1), (root, *self.tokens), (1.0, *self.p))
        parents, tokens, p = [-1], [root], [1.0]
        above = 0
        for token, chance, others in zip(self.tokens, self.p, self.beside, strict=True):
            node, before = len(tokens), p[above]
            leaves = [(other, min(before * confidence.chance_beside(q), before)) for other, q in others]
            for new, new_p in [(token, chance), *leaves]:
                parents.append(above)
                tokens.append(new)
                p.append(new_p)
            above = node
        return Tree.of(parents, tokens, p)


class DraftDrafter:
    """Drafts chains with `model`, of tokens that `judge` finds worth a pass; without one always as many as asked for.

    A text with a token that the draft model does not know, or as long as its context, gets no drafts. With `guessing`
    off every pass drafts one token. With a `width` of several tokens, those that the draft model finds nearly as likely
    as its best one are leaves beside the chain, which no pass was made for.
    """

    def __init__(self, model: DraftModel, judge: Judge | None = None, *, guessing: bool = True, width: int = 1) -> None:
        self.cache = model.cache
        #: asked while a prompt is read, which may take long
        self.cancelled: Callable[[], bool] | None = None
        self.times = model.cache.times
        self._model = model
        self._judge = judge
        self._width = width
        self._guesses = Guesses() if guessing else None
        self._confidence = Confidence()
        self._text: list[int] = []
        self._readable = True
        self._chain: _Chain | None = None

    def start(self, prompt: Sequence[int]) -> None:
        """A new generation begins after `prompt`, which the draft model reads now, but for what it knows of it."""
        self._text = list(prompt)
        self._chain = None
        self.times.start()
        self._readable = max(prompt) < self._model.n_common
        if not self._can_draft():
            return
        body = self._text[:-1]
        self.cache.start(body)
        self.cache.read(body[len(self.cache.chain) :], self.cancelled)
        if self._guesses is not None:
            self._guesses.start(self._text)

    def why_not(self) -> str | None:
        """Why this text gets no drafts from here on, for people; None where nothing is in the way."""
        if not self._readable:
            return "the draft model does not know a token of this text"
        n_ctx = self.cache.ctx.n_ctx
        return f"the draft model's context of {n_ctx} tokens is full" if len(self._text) >= n_ctx else None

    def _can_draft(self) -> bool:
        return self.why_not() is None

    def propose(self, max_nodes: int, least_p: float = 0.0) -> Tree:
        """A chain of at most `max_nodes` nodes, none less likely than `least_p` but the last."""
        root = self._text[-1]
        if max_nodes <= 1 or not self._can_draft():
            return Tree.root(root)
        self.times.spent = 0.0
        feed = self._catch_up()
        # the last token of a chain is not read, and at least the token after the root can be drafted
        chain = self._chain = _Chain(min(max_nodes - 1, MAX_DRAFT, self.cache.room - len(feed) + 1))
        while feed:
            feed = self._pass(feed, chain, least_p)
        self.times.lag = 0
        return chain.tree(root, self._confidence).likeliest(max_nodes)

    def _catch_up(self) -> list[int]:
        """Bring the cache up to the text; returns the tokens left for the first pass, the root as the last."""
        cache, text = self.cache, self._text
        cache.settle(text, len(text) - 1)
        feed = text[len(cache.chain) :]
        if len(feed) > CATCH_UP:
            cache.read(feed[:-CATCH_UP])
            feed = feed[-CATCH_UP:]
            self._confidence.doubt()
        return feed

    def _review(self, rows: Rows, feed: Sequence[int]) -> None:
        """Would it have drafted the tokens of the text that it reads only now? That tells more than one draft does."""
        for row, token in enumerate(feed[1:]):
            ids, logits = rows.top_k(row, 1)
            self._confidence.judge(math.exp(logits[0] - rows.logsumexp(row)), ids[0] == token)

    def _pass(self, feed: list[int], chain: _Chain, least_p: float) -> list[int]:
        """One pass of the draft model over `feed`, and over guesses behind it: adds to the chain what it drafts.

        Returns what to feed to the next pass, nothing at the end.
        """
        plan = self._plan(len(feed), chain)
        if plan is None:
            return []
        kind, guesses = plan
        first, depth = self.cache.n_nodes, len(chain.tokens)
        nodes = [*feed, *guesses]
        rows = self.cache.decode(nodes, [chain.node, *range(first, first + len(nodes) - 1)])
        if len(feed) > FEW:
            self._review(rows, feed)
        row = len(feed) - 1
        n_right = n_judged = 0
        going = True
        for guess in (*guesses, None):
            chain.node = first + row
            going = self._draft(rows, row, chain, least_p)
            agreed = len(chain.tokens) > depth + n_right and chain.tokens[-1] == guess
            n_judged += guess is not None
            n_right += agreed
            if not (going and agreed):
                break
            row += 1
        if self._guesses is not None:
            self._guesses.count(kind, n_judged, n_right)
        return chain.tokens[-1:] if going else []

    def _draft(self, rows: Rows, row: int, chain: _Chain, least_p: float) -> bool:
        """Add the best token of a row to the chain; returns whether it may go on."""
        ids, logits = rows.top_k(row, self._width)
        n_common = self._model.n_common
        if ids[0] >= n_common:
            return False
        total = rows.logsumexp(row)
        q = min(math.exp(logits[0] - total), 1.0)
        if chain.q:
            self._confidence.learn(chain.q[-1], q)
        chain.tokens.append(ids[0])
        chain.p.append((chain.p[-1] if chain.p else 1.0) * self._confidence.chance(q))
        chain.q.append(q)
        others = zip(ids[1:], logits[1:], strict=True)
        beside = [(token, math.exp(logit - total)) for token, logit in others if token < n_common]
        chain.beside.append([(token, q) for token, q in beside if q >= LEAST_BESIDE])
        return len(chain.tokens) < chain.most and ids[0] not in self._model.eog and chain.p[-1] >= least_p

    def _plan(self, n_feed: int, chain: _Chain) -> tuple[int, list[int]] | None:
        """The guesses to check with the next pass and the class of their match; None when no pass pays any more."""
        depth = len(chain.tokens)
        if self.cache.room < n_feed:
            return None
        most = min(MAX_GUESS, chain.most - depth - 1, self.cache.room - n_feed)
        kind, guesses = self._guesses.find(chain.tokens, most) if self._guesses is not None and most > 0 else (0, [])
        seconds = self.times.of_pass
        value, best, best_yield, n = 0.0, 0.0, 0.0, 0
        reached = 1.0
        p, q = (chain.p[-1], chain.q[-1]) if chain.p else (1.0, FIRST)
        for i in range(len(guesses) + 1):
            if i > 0:
                assert self._guesses is not None
                reached *= self._guesses.chance(kind, i - 1)
            q = self._confidence.after(q)
            p *= q
            worth = 1.0 if self._judge is None else self._judge.gain(depth + i + 1, depth + i + 1, p)
            value += reached * max(0.0, worth)
            took = seconds(n_feed + i)
            rate = value / took if took else 0.0
            if i == 0 or rate > best_yield:
                best, best_yield, n = value, rate, i
        # the first pass tells whether the text can be predicted here
        if depth and self._judge is not None:
            took = seconds(n_feed + n)
            pays = best > self._judge.price * took and self.times.spent + took <= self._judge.stake
            if not pays and not self._pays_later(n_feed, chain, self._judge):
                return None
        return kind, guesses[:n]

    def _pays_later(self, n_feed: int, chain: _Chain, judge: Judge) -> bool:
        """Whether several more passes pay, as only long chains are forgiven anything."""
        p, q = list(chain.p), chain.q[-1]
        while len(p) < chain.most:
            q = self._confidence.after(q)
            p.append(p[-1] * q)
        took = self.times.of_pass(n_feed)
        for tokens in judge.further(p, len(chain.p)):
            if self.times.spent + took > judge.stake:
                return False
            if tokens > judge.price * took:
                return True
            took += self.times.of_pass(1)
        return False

    def observe(self, tree: Tree, rows: Rows, walk: Walk) -> None:
        """Take the new tokens in. The draft model reads them with its next pass."""
        self._text += walk.tokens
        self._readable = self._readable and max(walk.tokens) < self._model.n_common
        self.times.lag += len(walk.tokens)
        if self._chain is not None:
            self._learn(self._chain, walk)
            self._chain = None
        if self._guesses is not None:
            self._guesses.extend(walk.tokens)

    def _learn(self, chain: _Chain, walk: Walk) -> None:
        """Compare what was drafted, verified or not, with the tokens that came. A forgiven one is a mismatch, and what
        the target would have written in its place is not known."""
        drafts = zip(chain.tokens, chain.q, chain.beside, walk.tokens, strict=False)
        for i, (drafted, q, beside, token) in enumerate(drafts):
            if i in walk.forgiven:
                self._confidence.judge(q, False)
                continue
            self._confidence.judge(q, drafted == token)
            for other, other_q in beside:
                self._confidence.judge_beside(other_q, other == token)
            if drafted != token:
                return
