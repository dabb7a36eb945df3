"""What the draft model's own passes take, by running means of their native time."""

from __future__ import annotations

from localspec.calibrate.online import OnlineCost

#: passes of up to so many nodes have a mean of their own
MAX_NODES = 32
#: a prompt of so many tokens tells what reading takes
_LEAST_READ = 16
#: before that, a token is believed to take its part of a pass over so many, which is more
_UNREAD = 8
#: share of the newest reading in the mean
_RATE = 0.3


class DraftTimes:
    """Seconds of draft passes. `spent` is what the current proposal took so far, freed of hiccups of the machine; `lag`
    counts the tokens of the text that the draft model has not read."""

    def __init__(self) -> None:
        self._cost = OnlineCost(None, MAX_NODES)
        self._token_seconds = 0.0
        self.spent = 0.0
        self.lag = 0

    def start(self) -> None:
        """A new text: another context length."""
        self._cost.start()
        self.spent, self.lag = 0.0, 0

    def decoded(self, n: int, seconds: float) -> None:
        """A pass over `n` nodes took `seconds`. The first of all is not counted as spent: it lays out weights, once."""
        if self._cost.plain_seconds is None:
            self._cost.observe(min(n, MAX_NODES), seconds)
            return
        if n > MAX_NODES:
            self.spent += seconds
            return
        cost = self._cost.observe(n, seconds)
        self.spent += cost * (self._cost.plain_seconds or 0.0)

    def read(self, n: int, seconds: float) -> None:
        """Reading `n` tokens without rows took `seconds`."""
        self.spent += seconds
        if n >= _LEAST_READ:
            known = self._token_seconds or seconds / n
            self._token_seconds = known + _RATE * (seconds / n - known)

    def of_pass(self, n: int) -> float:
        """Expected seconds of a pass over `n` nodes; 0 before anything is known."""
        return (self._cost.plain_seconds or 0.0) * self._cost.relative[min(n, MAX_NODES) - 1]

    @property
    def catching_up(self) -> float:
        """Expected seconds until the draft model has read all of the text and proposed one token."""
        token = self._token_seconds or self.of_pass(_UNREAD) / _UNREAD
        return self.lag * token + self.of_pass(1)
