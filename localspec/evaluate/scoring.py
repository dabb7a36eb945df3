"""How answers are scored: by tests, by a final number, by an exact copy. Pure but for `CodeTests`, which runs code."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal

from localspec.evaluate.extract import final_number, plain_lines, python_function
from localspec.evaluate.sandbox import run_tests


@dataclass(frozen=True, slots=True)
class Score:
    """Whether an answer is right; if not, `why` where there is something to tell.

    `copied` is the share of lines that were copied exactly, None where nothing is to be copied. `own` tells whether
    code had namespaces of its own, None where no code was run.
    """

    right: bool
    why: str = ""
    copied: float | None = None
    own: bool | None = None


@dataclass(frozen=True, slots=True)
class CodeTests:
    """HumanEval's way: the answer defines `entry_point`, and `test` defines a function `check` that takes it.

    `preamble` is the beginning of the program as the prompt shows it: imports, helpers, signature.
    """

    entry_point: str
    test: str
    preamble: str = ""

    def score(self, text: str) -> Score:
        """Run the answer's code. Raises `EngineError` when no process can be started."""
        program = python_function(text, self.entry_point, self.preamble)
        outcome = run_tests(program, self.test, self.entry_point, preamble=self.preamble)
        return Score(outcome.passed, outcome.why, own=outcome.own)


@dataclass(frozen=True, slots=True)
class FinalNumber:
    """GSM8K's way: the answer ends with this number."""

    answer: Decimal

    def score(self, text: str) -> Score:
        """Compare the last number."""
        found = final_number(text)
        right = found is not None and found == self.answer
        return Score(right, "" if right else f"{'no number' if found is None else f'{found:f}'}, not {self.answer:f}")


@dataclass(frozen=True, slots=True)
class ExactCopy:
    """The answer holds this text, to the letter; fences, and space at the ends of lines, do not count."""

    expected: str

    def score(self, text: str) -> Score:
        """Look for the text as a whole, and count its lines."""
        lines, found = plain_lines(self.expected), plain_lines(text)
        expected = "\n".join(lines)
        # a part of a longer word or number is no copy
        before = r"(?<!\w)(?<!\d[.,])" if re.match(r"\d", expected) else r"(?<!\w)" if re.match(r"\w", expected) else ""
        behind = r"(?!\w|[.,]\d)" if re.search(r"\d$", expected) else r"(?!\w)" if re.search(r"\w$", expected) else ""
        right = re.search(before + re.escape(expected) + behind, "\n".join(found)) is not None
        wanted = Counter(line for line in lines if line)
        copied = (wanted & Counter(found)).total() if not right else wanted.total()
        share = copied / wanted.total()
        return Score(right, "" if right else f"{copied} of {wanted.total()} lines copied", share)


Check = CodeTests | FinalNumber | ExactCopy
