"""How often the screen is updated while an answer is written: pure arithmetic on clocks that are given to it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

#: the largest share of the time that the interface may work while a model writes; while it has a core, or the
#: interpreter, the model's threads on other cores wait as well
SHARE = 0.01
#: updates per second at most, and the shortest rate that still looks alive
TEXT_RATE, PANEL_RATE, SLOWEST = 20.0, 10.0, 1.0
#: updates that the work is averaged over, and the most that one of them counts: it may have been something else
_WINDOW, _DEAREST = 9, 0.02
#: seconds of work that an update is taken to make before there were any
_FIRST = 0.002


@dataclass
class Pace:
    """The rhythm of one answer. `most` caps the updates per second, for slow lines.

    Work is CPU time of the interface's thread, all of it: parsing, layout and writing to the terminal happen after an
    update as well, so an update is charged with what passed until the next one.
    """

    most: float = TEXT_RATE
    share: float = SHARE
    _works: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW), init=False)
    _last: float | None = field(default=None, init=False)
    _panel_at: float = field(default=float("-inf"), init=False)

    def update(self, now: float, cpu: float) -> float:
        """The text is updated at `now`, when the interface had worked for `cpu` seconds in all; returns the seconds
        until it should be updated again."""
        if self._last is not None:
            self._works.append(min(max(0.0, cpu - self._last), _DEAREST))
        self._last = cpu
        return self.interval

    @property
    def _work(self) -> float:
        """Seconds of work of an update."""
        return sum(self._works) / len(self._works) if self._works else _FIRST

    @property
    def interval(self) -> float:
        """Seconds between two updates of the text."""
        fastest = 1.0 / max(0.1, min(self.most, TEXT_RATE))
        return max(fastest, min(self._work / self.share, 1.0 / SLOWEST))

    def panel_due(self, now: float) -> bool:
        """Whether the figures are updated along with the text now; then they are, as far as this knows."""
        # it costs more than text, and says less when it is late
        least = max(1.0 / PANEL_RATE, 4.0 * self.interval if self._work > self.share / TEXT_RATE else 0.0)
        # half an interval early is nearer than half an interval late
        if now - self._panel_at < least - self.interval / 2:
            return False
        self._panel_at = now
        return True
