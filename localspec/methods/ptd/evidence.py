"""What speaks for a drafted token, and how often tokens with such evidence were right.

Evidence has two parts: what the text says (how long a match it continues, and how), and what is known apart from it:
how the model ranked the token when it was last here, or how the corpus goes on. Their combination is one small number,
the *code*, which has a running rate of its own. Until it has been seen often its rate is that of a logistic model of
the two parts, whose weights were fitted to what came true on calibration prompts (`benchmarks/fit_evidence.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from localspec.methods.ptd import recycling
from localspec.methods.ptd.automaton import N_KINDS
from localspec.methods.rates import RunningRates

#: smallest match lengths, in tokens, of the classes that the text's evidence distinguishes
LENGTHS = (1, 2, 3, 4, 6, 9, 16, 32)
#: the same of matches in the corpus
CORPUS_LENGTHS = (1, 2, 3, 4, 6)
#: distances from the end of a match up to which its source is followed: see `core`
MAX_OFF = 4

# The text's part: 0 for nothing, then length class x kind, then resumed copies by distance, the last of them for a
# resumed copy that a weak match speaks for as well.
NO_TEXT = 0
RESUMED = 1 + len(LENGTHS) * N_KINDS
RESUMED_AND_WEAK = RESUMED + MAX_OFF
N_TEXT = RESUMED_AND_WEAK + 1

# The other part: 0 for nothing, then the classes of a row for the same two tokens, of one for the same last token, of
# the row before this one, whose other candidates often come a token later (LogitSpec, arXiv 2507.01449), and length
# class x kind of a match in the corpus.
NO_ROW = 0
PAIR = 1
TOKEN = PAIR + recycling.N_CLASSES
PREVIOUS = TOKEN + recycling.N_CLASSES
#: how far a candidate of the row before was behind the best one, in logits
_BEHIND = (0.0, 0.7, 1.5, 2.5, 4.0, 6.0)
CORPUS = PREVIOUS + len(_BEHIND) + 1
N_ROW = CORPUS + len(CORPUS_LENGTHS) * N_KINDS

N_CODES = N_TEXT * N_ROW

#: trials that the fitted rate counts for, and at which counts are halved so that they follow the text
PRIOR_WEIGHT = 20.0
MAX_TRIALS = 400.0

# fmt: off
# nothing; a line for each class of lengths: only and again, only once, most often, first, second, third; resumed
_TEXT_WEIGHTS = (
    -2.02,
    0.18, -0.20, -0.66, -1.17, -1.07, -1.50,
    0.78, 0.66, -1.39, -1.21, -0.69, -1.43,
    1.33, 1.26, -1.04, -0.89, -0.81, -1.21,
    2.20, 1.75, -0.69, -0.66, -0.47, -1.05,
    2.31, 2.67, -0.55, -0.87, -0.68, -0.99,
    1.89, 2.89, -0.16, 0.03, -0.85, 0.24,
    0.84, 4.09, -0.27, -0.02, 0.26, 0.00,
    0.00, 5.02, 0.00, 0.00, 0.00, 0.00,
    -0.60, -1.32, -1.97, -2.20, 0.26,
)
# nothing; rows of the same two tokens, reached and not reached; rows of the same token, likewise; the row before; the
# corpus, by length and kind as above
_ROW_WEIGHTS = (
    -1.38,
    0.00, 0.13, -0.34, -0.93, 0.46, 0.10, -0.51, -0.94, -0.05, -0.62, -1.25, -1.48,
    2.68, 1.74, 1.29, 0.84, 0.31, -0.12, -0.51, -1.34, -0.61, -0.68, -1.10, -1.54,
    -0.67, -0.38, -0.27, -0.86, 0.10, 0.04, -0.18, -0.56, -0.20, -0.45, -0.69, -1.38,
    2.25, 1.46, 1.23, 0.83, 0.55, -0.07, -0.11, -0.55, 0.03, -0.44, -0.64, -1.49,
    0.00, -1.27, -1.40, -1.50, -1.42, -1.86, -1.94,
    0.83, 0.02, 0.07, -0.71, -1.36, -1.70,
    2.04, 0.67, 1.26, -0.16, -0.60, -1.12,
    2.35, 1.41, 0.95, 0.22, -0.44, -0.94,
    2.60, 1.53, 1.70, 0.65, -0.19, -0.32,
    3.13, 1.90, 2.87, 0.89, 0.58, -0.48,
)
_BIAS = -0.59
# what the odds of the best candidate of a place are multiplied by, by its rival's rate; and those of the others
_BEST = (6.05, 3.43, 1.62, 1.14, 0.89, 0.51, 0.58, 1.12)
_OTHER = (1.21, 2.74, 2.45, 1.26, 1.06, 0.84, 0.61, 0.17)
# fmt: on

#: a rival's rate falls into a class by these limits
RIVALS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.55, 0.8)


def _by_length(lengths: tuple[int, ...], first: int) -> tuple[int, ...]:
    """By match length less one, up to the largest class: the first of its codes' parts."""
    steps = [N_KINDS if n in lengths else 0 for n in range(2, lengths[-1] + 1)]
    return tuple(accumulate([first, *steps]))


_TEXT_OF_LENGTH = _by_length(LENGTHS, NO_TEXT + 1)
_CORPUS_OF_LENGTH = _by_length(CORPUS_LENGTHS, CORPUS)


def text_part(length: int) -> int:
    """The text's part for a match of `length` >= 1 tokens, to which the kind of the continuation is added."""
    return _TEXT_OF_LENGTH[min(length, LENGTHS[-1]) - 1]


def corpus_part(length: int) -> int:
    """The same for a match in the corpus."""
    return _CORPUS_OF_LENGTH[min(length, CORPUS_LENGTHS[-1]) - 1]


#: text parts below this one are weak: matches of a single token
WEAK_END = text_part(2)
#: parts from this one on are of matches of two tokens and more in the corpus
CORPUS_PAIR = corpus_part(2)


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


def rival_factors() -> tuple[float, ...]:
    """What odds are multiplied by: the best candidate's, by its rival's class, then the others', by the best one's."""
    return _BEST + _OTHER


def chances(rates: Sequence[float]) -> list[float]:
    """The chance of each candidate of one place, from the rates of their evidence.

    A rate is an average over all places with such evidence. A candidate without a serious rival is right more often
    than that, and one beside a better one less often: so odds are corrected by the best of the other candidates.
    """
    best = second = 0.0
    first = -1
    for i, rate in enumerate(rates):
        if rate > best:
            best, second, first = rate, best, i
        elif rate > second:
            second = rate
    factor = _OTHER[bisect_right(RIVALS, best)]
    found = [rate / (rate + (1 - rate) / factor) for rate in rates]
    if first >= 0:
        found[first] = best / (best + (1 - best) / _BEST[bisect_right(RIVALS, second)])
    return found


class Rates(RunningRates):
    """Running acceptance rates. `p[code]` is the chance that a token with this evidence is right."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Back to the fitted rates."""
        fitted = [fitted_rate(text, row) for text in range(N_TEXT) for row in range(N_ROW)]
        super().__init__(fitted, PRIOR_WEIGHT, MAX_TRIALS)
