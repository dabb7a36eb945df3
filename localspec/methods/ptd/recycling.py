"""Token Recycling: what the model thought of as next tokens is kept, to be drafted when the same place comes again.

Every verified row gives the `TOP_K` best successors of the two tokens before it, and of the one. (arXiv 2408.08696,
which keys by one token; two are tried first here.)
"""

from __future__ import annotations

from collections.abc import Sequence

#: successors kept of a context
TOP_K = 4
#: contexts kept by default, those of two tokens and those of one together
DEFAULT_ENTRIES = 1 << 16
#: bytes of an entry, measured: key, dict slot, two tuples and the ids in them
BYTES_AN_ENTRY = 400

#: a row's best token falls into a class by how far the second is behind (logits); others by how far they are behind
_LEAD = (5.0, 2.0, 0.7)
_SECOND = (0.7, 2.0, 4.0)
_LATER = (1.0, 2.5, 4.5)
_N_GAPS = 12
#: the same again for rows of drafts that the text did not come to: greedy text has shown what followed the others
N_CLASSES = 2 * _N_GAPS

#: (token ids, their classes), best first
Successors = tuple[tuple[int, ...], tuple[int, ...]]


def classes(logits: Sequence[float], reached: bool) -> tuple[int, ...]:
    """The class of each of a row's best tokens, from their logits, largest first, and whether the text came there."""
    first = 0 if reached else _N_GAPS
    best = logits[0]
    if len(logits) == 1:
        return (first,)
    lead = best - logits[1]
    found = [first + sum([lead <= limit for limit in _LEAD]), first + 4 + sum([lead >= limit for limit in _SECOND])]
    for logit in logits[2:]:
        behind = best - logit
        found.append(first + 8 + sum([behind >= limit for limit in _LATER]))
    return tuple(found)


class SuccessorPool:
    """Successors by context. At most `max_entries` contexts; those not renewed for longest are forgotten.

    Two generations: a full young one becomes the old one, whose entries are then lost unless they were renewed.
    """

    def __init__(self, max_entries: int = DEFAULT_ENTRIES) -> None:
        self._half = max(1, max_entries // 2)
        self._young: dict[int, Successors] = {}
        self._old: dict[int, Successors] = {}

    def __len__(self) -> int:
        """Contexts kept; those that both generations hold count twice."""
        return len(self._young) + len(self._old)

    @property
    def max_bytes(self) -> int:
        """Memory that a full pool takes, an upper estimate."""
        return 2 * self._half * BYTES_AN_ENTRY

    def clear(self) -> None:
        """Forget everything."""
        self._young, self._old = {}, {}

    def put(
        self, before: int, last: int, ids: Sequence[int], logits: Sequence[float], reached: bool = True
    ) -> Successors:
        """Keep what may follow `last` (after `before`): the best tokens of a row and their logits, largest first.

        `reached` tells rows that a token was drawn from apart from those of drafts that came to nothing.
        """
        successors = (tuple(ids), classes(logits, reached))
        self._put(_pair(before, last), successors)
        self._put(last, successors)
        return successors

    def _put(self, key: int, successors: Successors) -> None:
        if len(self._young) >= self._half and key not in self._young:
            self._young, self._old = {}, self._young
        self._young[key] = successors

    def of_pair(self, before: int, last: int) -> Successors | None:
        """What may follow the two tokens."""
        key = _pair(before, last)
        return self._young.get(key) or self._old.get(key)

    def of_token(self, last: int) -> Successors | None:
        """What may follow the token."""
        return self._young.get(last) or self._old.get(last)


def _pair(before: int, last: int) -> int:
    return (before + 2) << 32 | last  # before is -1 at the beginning of a text; keys of one token lie below 2^32
