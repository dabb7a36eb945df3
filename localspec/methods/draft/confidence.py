"""How sure the draft model will be of its next token, from how sure it was of the last one."""

from __future__ import annotations

from bisect import bisect_right

#: probabilities at which one class of tokens ends and the next begins
_EDGES = (0.3, 0.5, 0.7, 0.85, 0.95, 0.99)
#: first means, and what they count for; share of the newest case at the least
_PRIORS = (0.55, 0.6, 0.65, 0.7, 0.75, 0.82, 0.9)
_WEIGHT, _RATE = 5.0, 0.05


class Confidence:
    """Running means of the probability of a drafted token, by that of the token drafted before it."""

    def __init__(self) -> None:
        self._mean = list(_PRIORS)
        self._cases = [_WEIGHT] * len(_PRIORS)

    def after(self, q: float) -> float:
        """Expected probability of the token after one of probability `q`."""
        return self._mean[bisect_right(_EDGES, q)]

    def learn(self, last: float, q: float) -> None:
        """A token of probability `last` was followed by one of probability `q`."""
        kind = bisect_right(_EDGES, last)
        self._cases[kind] += 1
        self._mean[kind] += max(_RATE, 1 / self._cases[kind]) * (q - self._mean[kind])
