"""Right or wrong, by each of the three ways."""

from __future__ import annotations

import os
from decimal import Decimal

import pytest

from localspec.evaluate.scoring import CodeTests, ExactCopy, FinalNumber
from localspec.evaluate.suites import read_suite


@pytest.mark.skipif(os.name != "posix", reason="code is not run here")
def test_code_is_run_behind_what_the_prompt_shows() -> None:
    preamble = (
        "from typing import List\n\ndef double(x: int) -> int:\n    return 2 * x\n\ndef f(x: List[int]) -> int:\n"
    )
    check = CodeTests("f", "def check(candidate):\n    assert candidate([1, 2]) == 6\n", preamble)
    assert check.score("```python\ndef f(x: List[int]) -> int:\n    return double(sum(x))\n```").right
    assert check.score("    return double(sum(x))").right
    wrong = check.score("```python\ndef f(x: List[int]) -> int:\n    return sum(x)\n```")
    assert (wrong.right, wrong.why) == (False, "AssertionError:")
    assert not check.score("I would use a loop.").right


def test_numbers_are_compared_as_numbers() -> None:
    check = FinalNumber(Decimal("1430"))
    assert check.score("so $1,430.00 in all").right
    assert check.score("1429").why == "1429, not 1430"
    assert check.score("many").why == "no number, not 1430"


@pytest.mark.parametrize(
    "text", ["a1b2", "Sure: a1b2.", "`a1b2`", "```\na1b2\n```", "  a1b2  ", "a1b2\r\n", "The key:\n\na1b2\n\nDone."]
)
def test_a_copy_may_stand_in_other_text(text: str) -> None:
    score = ExactCopy("a1b2").score(text)
    assert (score.right, score.copied) == (True, 1.0)


@pytest.mark.parametrize("text", ["", "a1b", "a1B2", "a1b22", "0a1b2", "a1 b2", "a1b\n2"])
def test_a_part_or_a_longer_word_is_no_copy(text: str) -> None:
    score = ExactCopy("a1b2").score(text)
    assert (score.right, score.copied) == (False, 0.0)


@pytest.mark.parametrize(
    ("text", "right"), [("It is 12,345.", True), ("12,345, no more", True), ("12,345.5", False), ("7,12,345", False)]
)
def test_a_part_of_a_longer_number_is_no_copy(text: str, right: bool) -> None:
    assert ExactCopy("12,345").score(text).right == right


def test_lines_are_counted_where_the_whole_is_not_right() -> None:
    check = ExactCopy("a,1\na,1\n\n  b,2\nc,3\n")
    assert check.score("```\na,1\na,1\n\n  b,2\nc,3\n```").right
    assert check.score("a,1\n  b,2\nc,4").copied == 0.5
    assert check.score("a,1\na,1\nb,2\nc,3").copied == 0.75, "indentation is part of a line"
    assert not check.score("a,1\na,1\n  b,2\nc,3").right, "an empty line is missing"
    assert check.score("a,1\na,1\na,1\na,1").copied == 0.5


def test_the_own_suite_can_be_solved_and_notices_one_wrong_character() -> None:
    for task in read_suite("copy"):
        check = task.check
        assert isinstance(check, ExactCopy)
        assert check.expected in task.prompt.text
        assert check.score(f"Here:\n```\n{check.expected}\n```").right
        middle = next(i for i, char in enumerate(check.expected) if i >= len(check.expected) // 2 and char.isalnum())
        altered = check.expected[:middle] + "~" + check.expected[middle + 1 :]
        score = check.score(altered)
        assert not score.right
        n_lines = sum(map(bool, map(str.strip, check.expected.split("\n"))))
        assert score.copied == pytest.approx(1 - 1 / n_lines)
