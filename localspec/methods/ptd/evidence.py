"""What speaks for a drafted token, and how often tokens with such evidence were right.

Evidence has two parts: what the text says (how long a match it continues, and how), and what the model said (how it
ranked the token when it was last here). Their combination is one small number, the *code*, which has a running rate of
its own. Until it has been seen often its rate is that of a logistic model of the two parts, whose weights were fitted
to what came true on calibration prompts (`benchmarks/fit_evidence.py`).
"""

from __future__ import annotations

import math
from itertools import accumulate

from localspec.methods.ptd import recycling
from localspec.methods.ptd.automaton import N_KINDS
from localspec.methods.rates import RunningRates

#: smallest match lengths, in tokens, of the classes that the text's evidence distinguishes
LENGTHS = (1, 2, 3, 4, 6, 9, 16)
#: distances from the end of a match up to which its source is followed: see `core`
MAX_OFF = 4

# The text's part: 0 for nothing, then length class x kind, then resumed copies by distance, the last of them for a
# resumed copy that a weak match speaks for as well.
NO_TEXT = 0
RESUMED = 1 + len(LENGTHS) * N_KINDS
RESUMED_AND_WEAK = RESUMED + MAX_OFF
N_TEXT = RESUMED_AND_WEAK + 1

# The model's part: 0 for nothing, then the classes of a row for the same two tokens, of one for the same last token,
# and of the row before this one, whose other candidates often come a token later (LogitSpec, arXiv 2507.01449).
NO_ROW = 0
PAIR = 1
TOKEN = PAIR + recycling.N_CLASSES
PREVIOUS = TOKEN + recycling.N_CLASSES
#: how far a candidate of the row before was behind the best one, in logits
_BEHIND = (0.0, 0.7, 1.5, 2.5, 4.0, 6.0)
N_ROW = PREVIOUS + len(_BEHIND) + 1

N_CODES = N_TEXT * N_ROW

#: trials that the fitted rate counts for, and at which counts are halved so that they follow the text
PRIOR_WEIGHT = 20.0
MAX_TRIALS = 400.0

# fmt: off
# nothing; a line for each class of lengths: only and again, only once, most often, first, second, third; resumed
_TEXT_WEIGHTS = (
    -1.94,
    -0.08, -0.46, -1.03, -1.44, -1.43, -1.66,
    0.91, 0.66, -1.25, -0.89, -1.04, -0.78,
    1.49, 1.26, -0.77, -0.86, -0.44, -0.26,
    2.07, 1.82, -0.84, -0.35, -1.03, -0.66,
    2.60, 2.47, -0.01, -0.61, -0.43, -0.40,
    1.95, 2.95, -0.05, 0.18, 0.26, -0.25,
    1.87, 4.29, 0.24, 0.29, -0.31, 0.00,
    -0.48, -1.49, -2.18, -2.00, 0.11,
)
# nothing; rows of the same two tokens, reached and not reached; rows of the same token, likewise; the row before
_ROW_WEIGHTS = (
    -0.84,
    0.50, 0.65, -0.05, -0.45, 0.50, 0.12, -0.76, -0.79, -0.10, -0.64, -1.19, -1.45,
    2.61, 1.87, 1.35, 0.96, 0.37, -0.27, -0.62, -1.15, -0.28, -0.58, -0.89, -1.60,
    -0.02, 0.39, 0.37, 0.07, 0.35, 0.35, 0.69, 0.19, 0.17, 0.15, -0.19, -0.65,
    2.85, 2.05, 1.64, 1.17, 0.73, 0.44, 0.11, -0.44, 0.04, -0.17, -0.52, -1.16,
    0.00, -0.94, -0.95, -1.15, -0.96, -1.02, -0.86,
)
_BIAS = -0.81
# fmt: on

#: by match length, up to the largest class: the first of its codes' text parts
_TEXT_OF_LENGTH = tuple(accumulate([1, *[N_KINDS if n in LENGTHS else 0 for n in range(2, LENGTHS[-1] + 1)]]))
_LONGEST = LENGTHS[-1]


def text_part(length: int) -> int:
    """The text's part for a match of `length` >= 1 tokens, to which the kind of the continuation is added."""
    return _TEXT_OF_LENGTH[min(length, _LONGEST) - 1]


#: text parts below this one are weak: matches of a single token
WEAK_END = text_part(2)


def previous_part(behind: float) -> int:
    """The model's part for a candidate of the row before, `behind` its best one by so much."""
    return PREVIOUS + sum([behind > limit for limit in _BEHIND])


def code_of(text: int, row: int) -> int:
    """The code of evidence with these two parts."""
    return text * N_ROW + row


def fitted_rate(text: int, row: int) -> float:
    """The chance of a token with this evidence, as fitted; 0 without any."""
    if text == NO_TEXT and row == NO_ROW:
        return 0.0
    return 1 / (1 + math.exp(-(_TEXT_WEIGHTS[text] + _ROW_WEIGHTS[row] + _BIAS)))


class Rates(RunningRates):
    """Running acceptance rates. `p[code]` is the chance that a token with this evidence is right."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Back to the fitted rates."""
        fitted = [fitted_rate(text, row) for text in range(N_TEXT) for row in range(N_ROW)]
        super().__init__(fitted, PRIOR_WEIGHT, MAX_TRIALS)
