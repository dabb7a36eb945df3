"""What the draft model's own confidence says: how likely the target agrees, and how sure it will be next."""

from __future__ import annotations

from bisect import bisect_right

from localspec.methods.rates import RunningRates

#: probabilities at which one class of tokens ends and the next begins
_EDGES = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99)
#: how often the target's best token was that of a draft model, by class, before any is counted
_PRIORS = (0.2, 0.32, 0.45, 0.58, 0.7, 0.8, 0.88, 0.93, 0.97)
_WEIGHT, _MOST = 6.0, 50.0
#: the same for tokens beside the draft model's best one
_BESIDE_EDGES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
_BESIDE_PRIORS = (0.005, 0.025, 0.06, 0.11, 0.16, 0.22, 0.32, 0.45)
#: mean of that for the token after one of each class; share of the newest case in it at the least
_NEXT = (0.6, 0.6, 0.62, 0.65, 0.7, 0.73, 0.77, 0.82, 0.88)
_RATE = 0.05


class Confidence:
    """Running rates by class of the probability that the draft model gave its token.

    Drafts count whether they were verified or not, as the text tells what came in their place.
    """

    def __init__(self) -> None:
        self._right = RunningRates(_PRIORS, _WEIGHT, _MOST)
        self._beside = RunningRates(_BESIDE_PRIORS, _WEIGHT, _MOST)
        self._next = list(_NEXT)
        self._cases = [_WEIGHT] * len(_NEXT)

    def chance(self, q: float) -> float:
        """How likely the target takes a token to which the draft model gave `q`, where it took those before."""
        return self._right.p[bisect_right(_EDGES, q)]

    def judge(self, q: float, right: bool) -> None:
        """The target took such a token, or another one."""
        self._right.count(bisect_right(_EDGES, q), right)

    def doubt(self) -> None:
        """Much text has come since the last draft: what was counted before tells little."""
        self._right.fade(_WEIGHT)

    def chance_beside(self, q: float) -> float:
        """`chance` of a token beside the best one."""
        return self._beside.p[bisect_right(_BESIDE_EDGES, q)]

    def judge_beside(self, q: float, right: bool) -> None:
        """`judge` for a token beside the best one."""
        self._beside.count(bisect_right(_BESIDE_EDGES, q), right)

    def after(self, q: float) -> float:
        """Expected `chance` of the token after one of probability `q`."""
        return self._next[bisect_right(_EDGES, q)]

    def learn(self, last: float, q: float) -> None:
        """A token of probability `last` was followed by one of probability `q`."""
        kind = bisect_right(_EDGES, last)
        self._cases[kind] += 1
        self._next[kind] += max(_RATE, 1 / self._cases[kind]) * (self.chance(q) - self._next[kind])
