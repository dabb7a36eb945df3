"""Loose verification, FLy's rule on chains and trees. Not lossless.

The target's tokens are those that its own sampler would emit after the drafted prefix, history, grammar and penalties
included; a mismatch that `fly` forgives is emitted in place of the target's token, and becomes part of the history. A
token that the sampler could not emit at all is never forgiven, so a grammar holds. In a tree the rule is applied along
each path from root to leaf, and the path that emits most tokens is taken; of equally long ones that with the fewest
forgiven, then that of the earlier leaf.

At temperature 0 that is FLy. Above it a match is a token that was drawn: one draw for each emitted token, in order, as
in plain decoding. What is forgiven depends on where a draft begins and ends. So a seed repeats a text only where the
drafts repeat, which a governor that follows the clock does not promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from localspec.engine.base import Rows
from localspec.methods.base import Sampler, Walk
from localspec.methods.fly import TOP, LooseRule, judge_lazily, normalised_entropy, ratio_to_best, top3_entropy
from localspec.methods.literals import any_literal
from localspec.tree import Tree


def _no_text(token: int) -> bytes:
    return b""


class LooseVerifier:
    """Walks as `StrictVerifier` does up to the first mismatch that could be forgiven, and looks ahead only there.

    `piece` tells the bytes of a token, for rules with exact literals: without it all tokens are literal to them.
    """

    name = "loose"
    lossless = False

    def __init__(self, rule: LooseRule | None = None, piece: Callable[[int], bytes] = _no_text) -> None:
        self.rule = rule or LooseRule()
        self._piece = piece
        self._n_vocab = 0  # not known before the first row

    def walk(self, tree: Tree, rows: Rows, sampler: Sampler, stop: frozenset[int], limit: int) -> Walk:
        """Emit at most `limit` (>= 1) tokens, ending with the first token in `stop`."""
        path: list[int] = []
        tokens: list[int] = []
        node: int | None = 0
        while node is not None:
            token = sampler.sample(rows, node)
            if self._could_forgive(tree, rows, node, token):
                ahead = _Ahead(tree, rows, sampler, node, token)
                return self._take_best(ahead, path, tokens, stop, limit)
            sampler.accept(token)
            tokens.append(token)
            node = tree.child(node, token)
            if node is not None:
                path.append(node)
            if token in stop or len(tokens) >= limit:
                break
        return Walk(tuple(path), tuple(tokens))

    def _could_forgive(self, tree: Tree, rows: Rows, node: int, token: int) -> bool:
        """Whether a child that is not `token` is likely enough, has a draft below it that is long enough and differs by
        no more than wording, and the target is unsure."""
        heights, window = tree.topology.heights, self.rule.window
        if heights[node] <= window:
            return False
        children, before = tree.topology.children[node], tree.tokens[node]
        deep = [tree.tokens[child] for child in children if heights[child] >= window and tree.tokens[child] != token]
        deep = [other for other in deep if self._worded(before, token, other)]
        return bool(deep) and self._unsure(rows, node) and any(self._likely(rows, node, other) for other in deep)

    def _unsure(self, rows: Rows, node: int) -> bool:
        if self.rule.entropy == "top3":
            _, logits = rows.top_k(node, TOP)
            return self.rule.unsure(top3_entropy(logits, rows.logsumexp(node)))
        self._n_vocab = self._n_vocab or len(rows.logits(node))
        return self.rule.unsure(normalised_entropy(rows.entropy(node), self._n_vocab))

    def _likely(self, rows: Rows, node: int, token: int) -> bool:
        if self.rule.ratio == 0.0:
            return True
        # nearly always among the few that are at hand: the whole row need not be fetched
        ids, logits = rows.top_k(node, TOP)
        logit = logits[ids.index(token)] if token in ids else float(rows.logits(node)[token])
        return self.rule.likely(ratio_to_best(logit, logits[0]))

    def _worded(self, before: int, token: int, other: int) -> bool:
        """Whether `token` and `other`, after `before`, differ by no more than wording."""
        if self.rule.literals == "loose":
            return True
        return self.rule.worded(any_literal(*map(self._piece, (before, token, other))))

    def _take_best(self, ahead: _Ahead, path: list[int], tokens: list[int], stop: frozenset[int], limit: int) -> Walk:
        """The walk that begins with `path` and `tokens` and goes on, where `ahead` starts, along the best path."""
        room = limit - len(tokens)
        best, most = _Way((), 0, (), False), (0, 0, 0)
        for nodes in ahead.paths(room):
            way = self._judge(ahead, nodes, stop, room)
            # the last: what ends the text may be a node of one path and the bonus token of another
            rank = way.n_emitted, -len(way.forgiven), way.accepted
            if rank > most:
                best, most = way, rank
        forgiven = tuple(len(tokens) + i for i in best.forgiven)
        nodes = best.nodes[: best.accepted]
        tokens = [*tokens, *ahead.commit(nodes, best.bonus)]
        return Walk((*path, *nodes), tuple(tokens), forgiven)

    def _judge(self, ahead: _Ahead, nodes: tuple[int, ...], stop: frozenset[int], room: int) -> _Way:
        """What is emitted along these nodes, at most `room` tokens."""
        draft = [ahead.tree.tokens[node] for node in nodes]

        def row(i: int) -> int:
            return nodes[i - 1] if i else ahead.start

        def forgivable(i: int) -> bool:
            rows, node, other = ahead.rows, row(i), draft[i]
            if not self._worded(ahead.tree.tokens[node], ahead.token(node), other):
                return False
            return self._unsure(rows, node) and self._likely(rows, node, other) and ahead.allows(node, other)

        made = judge_lazily(draft, lambda i: ahead.token(row(i)), forgivable, stop, self.rule)
        ended = made.accepted == room or (made.accepted > 0 and draft[made.accepted - 1] in stop)
        return _Way(nodes, made.accepted, made.forgiven, bonus=not ended)


class _Way(NamedTuple):
    """What comes of one path: `accepted` of its nodes, the `forgiven` positions among them, perhaps a bonus token."""

    nodes: tuple[int, ...]
    accepted: int
    forgiven: tuple[int, ...]
    bonus: bool

    @property
    def n_emitted(self) -> int:
        return self.accepted + self.bonus


class _Ahead:
    """What the sampler would emit from node `start` on, if the drafts were the text. There it has drawn `token` and not
    yet accepted it. The sampler itself stays as it is until `commit`."""

    def __init__(self, tree: Tree, rows: Rows, sampler: Sampler, start: int, token: int) -> None:
        self.tree, self.rows, self.start = tree, rows, start
        self._sampler = sampler
        #: by node: the token drawn there, and the sampler whose history ends with that node
        self._drawn: dict[int, int] = {start: token}
        self._states: dict[int, Sampler] = {start: sampler}

    def paths(self, room: int) -> Iterator[tuple[int, ...]]:
        """The nodes below `start` on the way to each leaf, at most `room`; leaves in their order."""
        topology = self.tree.topology
        depth = topology.depths[self.start]
        for leaf in topology.leaves:
            path = topology.path(leaf)
            if len(path) > depth and path[depth] == self.start:
                yield path[depth + 1 :][:room]

    def token(self, node: int) -> int:
        """The token that the sampler draws at `node`."""
        if node not in self._drawn:
            self._drawn[node] = self._state(node).sample(self.rows, node)
        return self._drawn[node]

    def allows(self, node: int, token: int) -> bool:
        """Whether the sampler could emit `token` at `node` at all. For nodes where a draft disagrees."""
        return self._state(node).allows(self.rows, node, token)

    def _state(self, node: int) -> Sampler:
        if node not in self._states:
            parent, token = self.tree.topology.parents[node], self.tree.tokens[node]
            before, drawn = self._state(parent), self._drawn[parent]  # a path draws at each node before it goes on
            # a walk can end at a node that has a rival or whose child does not match, so its state is kept
            passing = parent != self.start and token == drawn and len(self.tree.topology.children[parent]) == 1
            state = self._states.pop(parent) if passing else before.fork()
            state.accept(token)
            self._states[node] = state
        return self._states[node]

    def commit(self, nodes: Sequence[int], bonus: bool) -> list[int]:
        """Make the history that of a text that goes on with `nodes` and, if wanted, the token drawn after them; returns
        these tokens."""
        tokens = [self.tree.tokens[node] for node in nodes]
        last = nodes[-1] if nodes else self.start
        after = self.token(last) if bonus else None
        if nodes:
            self._sampler.adopt(self._state(last))
        if after is not None:
            self._sampler.accept(after)
            tokens.append(after)
        return tokens
