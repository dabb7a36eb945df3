"""Running rates of what came true."""

from __future__ import annotations

from collections.abc import Sequence


class RunningRates:
    """`p[i]` is how often cases of kind i came true.

    It starts at `priors[i]`, which counts for `weight` cases. Counts are halved at `most` cases, so that they follow
    the text.
    """

    def __init__(self, priors: Sequence[float], weight: float, most: float) -> None:
        self.p = list(priors)
        self._hits = [weight * p for p in priors]
        self._cases = [weight] * len(self.p)
        self._most = most

    def count(self, i: int, hit: bool) -> None:
        """A case of kind `i` was judged."""
        self._hits[i] += hit
        self._cases[i] += 1
        self.p[i] = self._hits[i] / self._cases[i]
        if self._cases[i] >= self._most:
            self._hits[i] /= 2
            self._cases[i] /= 2

    def fade(self, weight: float) -> None:
        """Let what was counted so far count for at most `weight` cases of each kind."""
        for i, cases in enumerate(self._cases):
            if cases > weight:
                self._hits[i] *= weight / cases
                self._cases[i] = weight
