"""Tells hiccups of the machine from changes, by step times alone.

A machine that does other work as well has slow steps now and then, several in a row. They say nothing about what a step
costs, and a mean that took them in would need many others to get over it.
"""

from __future__ import annotations

import math

#: log deviations up to this one are what step times scatter by
SCATTER = math.log(1.3)
#: largest log deviation that a single step can bring about, and several
CLIP, CLIP_WIDE = math.log(2.0), math.log(8.0)


class Hiccups:
    """Watches the steps of one kind. One that deviates by more than `SCATTER` is believed when it was vouched for, or
    when it is the last of `long` in a row."""

    def __init__(self, long: int = 4) -> None:
        self._long = long
        self._row: list[float] = []
        self.vouched = False

    @property
    def n_in_a_row(self) -> int:
        """The last steps that deviated, all in the same direction."""
        return len(self._row)

    @property
    def believed(self) -> bool:
        """Whether the last step was believed."""
        return not self._row or self.vouched or len(self._row) >= self._long

    def freed(self, off: float) -> float:
        """What to believe of the log deviation of a step; 0 where it may be a hiccup."""
        if abs(off) <= SCATTER:
            self.dismiss()
            return off
        if self._row and self._row[-1] * off < 0:
            self.dismiss()
        self._row.append(off)
        if not self.believed:
            return 0.0
        limit = max(CLIP, min(CLIP_WIDE, *map(abs, self._row[-2:])))
        return min(max(off, -limit), limit)

    def vouch(self) -> None:
        """A step of another kind was as expected, so the machine is: if this kind goes on like that, it has changed."""
        self.vouched = bool(self._row)

    def dismiss(self) -> None:
        """Forget the last steps that deviated."""
        self._row, self.vouched = [], False
