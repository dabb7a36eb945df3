"""The draft model's own K/V cache, kept equal to the text: what it holds of a rejected draft is dropped.

Drafting grows one open tree below the text. What was accepted becomes chain at the next look at the text, at once and
without evaluating anything again; so nothing is ever trimmed while a text goes on, which also suits sliding windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.engine.base import Rows, TreeContext
from localspec.methods.draft.times import DraftTimes


class DraftCache:
    """Owns sequence 0 of `ctx`. `chain` lists the tokens whose K/V rows it holds, without those of the open tree.

    Several drafters may use it in turn, if each begins with `start`. `times` is what the passes of all of them took.
    """

    def __init__(self, ctx: TreeContext) -> None:
        self.ctx = ctx
        self.times = DraftTimes()
        self.chain: list[int] = []
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._close()
        self.chain = []
        self.ctx.trim(0)

    def _close(self) -> None:
        self._tokens, self._parents = [], []
        self.ctx.drop()

    @property
    def room(self) -> int:
        """Nodes that the open tree can still take."""
        n = len(self._tokens)
        return min(self.ctx.max_nodes - n, self.ctx.n_ctx - len(self.chain) - n)

    def start(self, text: Sequence[int]) -> None:
        """Hold the common beginning of what is held and another `text`, and nothing else."""
        if self.ctx.n_past() != len(self.chain):
            self.reset()  # an error or someone else changed it
            return
        n = min(len(self.chain), len(text))
        keep = next((i for i in range(n) if self.chain[i] != text[i]), n)
        if keep == len(self.chain):
            self.settle(text, len(text))
            return
        self._close()
        kept = self.ctx.trim(keep)
        del self.chain[min(kept, keep) :]

    def settle(self, text: Sequence[int], end: int) -> None:
        """Turn what the open tree has of the first `end` tokens of `text`, which goes on where the chain ends, into
        chain; drop the rest."""
        if not self._tokens:
            return
        path: list[int] = []
        below = -1
        for node, parent in enumerate(self._parents):  # parents come first
            at = len(self.chain) + len(path)
            if at == end:
                break
            if parent == below and self._tokens[node] == text[at]:
                path.append(node)
                below = node
        if not path:
            self._close()
            return
        accepted = [self._tokens[node] for node in path]
        self._tokens, self._parents = [], []
        self.ctx.accept(path)
        self.chain += accepted

    def read(self, tokens: Sequence[int], cancelled: Callable[[], bool] | None = None) -> None:
        """Append tokens to the chain, all unless `cancelled`; no tree is open."""
        if not tokens:
            return
        before = self.ctx.native_seconds
        done = self.ctx.prefill(tokens, progress=(lambda _: not cancelled()) if cancelled else None)
        self.chain += tokens[:done]
        del self.chain[self.ctx.n_past() :]  # where the context could not step back from a part of a chunk
        self.times.read(max(done, 1), self.ctx.native_seconds - before)

    def decode(self, tokens: Sequence[int], parents: Sequence[int]) -> Rows:
        """Append nodes to the open tree: see `TreeContext.decode`."""
        before = self.ctx.native_seconds
        try:
            rows = self.ctx.decode(tokens, parents)
        except BaseException:
            self._close()  # ctrl-c can come before its nodes are written down here
            raise
        self._tokens += tokens
        self._parents += parents
        self.times.decoded(len(tokens), self.ctx.native_seconds - before)
        return rows

    @property
    def n_nodes(self) -> int:
        """Nodes of the open tree."""
        return len(self._tokens)
