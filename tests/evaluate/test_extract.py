"""What is taken from answers of many forms."""

from __future__ import annotations

from decimal import Decimal

import pytest

from localspec.evaluate.extract import blocks, final_number, plain_lines, python_function

SIGNATURE = 'import math\n\n\ndef f(x):\n    """Square of x."""\n'


def value(text: str, x: int = 3) -> object:
    """What the extracted function makes of `x`, or the error's name."""
    names: dict[str, object] = {}
    try:
        exec(python_function(text, "f", SIGNATURE), names)
        return names["f"](x)  # type: ignore[operator]
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize(
    "text",
    [
        "```python\ndef f(x):\n    return x * x\n```",
        "Sure!\n\n```py\ndef f(x):\n    return x * x\n```\nIt squares.\n\n```python\nprint(f(3))\n```",
        "```\ndef f(x):\n    return x * x",
        "~~~python\ndef f(x):\n    return x * x\n~~~",
        "1. Do this:\n\n   ```python\n   def f(x):\n       return x * x\n   ```\n",
        "```python\ndef helper(x):\n    return x * x\n```\nand\n```python\ndef f(x):\n    return helper(x)\n```",
        "```python\ndef f(x):\n    return 0\n```\nBetter:\n```python\ndef f(x):\n    return x * x\n```",
        "```python\ndef f(x):\n    return x * x\n```\nOr else:\n```python\ndef f(x):\n    return (x *",
        "def f(x):\n    return x * x\n\nThis function squares its argument, doesn't it?",
        "Here it is:\nimport math\ndef f(x):\n    return x * x",
        "    return x * x",
        "return x * x",
        "y = x\nreturn y * y\n",
        "```python\nreturn x * x\n```",
        "```python\n    return x * x\n```",
        "```python\r\ndef f(x):\r\n    return x * x\r\n```",
    ],
)
def test_the_function_is_found(text: str) -> None:
    assert value(text) == 9


@pytest.mark.parametrize("text", ["", "I cannot do that.", "```python\ndef f(x):\n```", "```\n```"])
def test_an_answer_without_the_function_defines_no_other(text: str) -> None:
    assert value(text) != 9


def test_blocks_end_with_their_own_mark() -> None:
    assert blocks("````\n```\na\n```\n````\nb\n```c\nd\n```") == ["```\na\n```\n", "d\n"]
    assert blocks("no block") == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("She has 3 + 4 = 7 apples.", "7"),
        ("That is $1,430.00.", "1430"),
        ("**Answer: 18**", "18"),
        ("#### 2,125\nThat took 5 steps.", "2125"),
        ("a profit of $70,000, as 2,5 is no thousand", "5"),
        ("That leaves $70,000, after all.", "70000"),
        ("#### Step 2: Add\n3 + 4 = 7, so it is 7.", "7"),
        ("#### 12. Multiply\n5 * 3 = 15", "15"),
        ("#### $-1,200.", "-1200"),
        ("#### **18**\n#### Check\n3 * 6", "18"),
        (r"So \boxed{18} as 3 \cdot 6.", "18"),
        (r"\[ \boxed{x = \$1{,}200 \text{ per } m^2} \]", "1200"),
        (r"\boxed{?} is 4", "4"),
        ("a loss: -5", "-5"),
        ("it is \u22127", "-7"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("10-5", "5"),
        ("[2]-5", "5"),
        ("costs $.50", "0.5"),
        ("3.", "3"),
        ("0.125", "0.125"),
        ("50%", "50"),
        ("1,2,3", "3"),
        ("the x2", None),
        ("none", None),
        ("", None),
    ],
)
def test_the_final_number(text: str, number: str | None) -> None:
    assert final_number(text) == (None if number is None else Decimal(number))


def test_lines_lose_their_wrapping_and_nothing_else() -> None:
    assert plain_lines("\n```csv\n a,b \r\n\nc\n```\n\n") == [" a,b", "", "c"]
