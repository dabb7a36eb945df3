"""Suites: by name, as files, and in parts."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.evaluate.scoring import CodeTests, ExactCopy, FinalNumber
from localspec.evaluate.suites import choose, digest, prompts_dir, read_suite
from tests.evaluate.made import task


def write(path: Path, *lines: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def test_the_fields_decide_how_a_line_is_scored(tmp_path: Path) -> None:
    prompt = "Complete this.\n\n```python\ndef f(x):\n```"
    tasks = read_suite(
        write(
            tmp_path / "mine.jsonl",
            {"prompt": prompt, "entry_point": "f", "test": "def check(c): pass", "answer": "7"},
            {"prompt": prompt, "entry_point": "f", "test": "def check(c): pass", "code": "import os\n"},
            {"prompt": "def f(x):\n", "entry_point": "f", "test": "def check(c): pass"},
            {"prompt": "a", "answer": "She has 3 left.\n#### 1,003", "split": "calibrate"},
            {"prompt": "b", "answer": 2.5},
            {"prompt": "c", "expected": "c\n"},
            {"prompt": "d", "copy": "d"},
        )
    )
    assert [task.check for task in tasks] == [
        CodeTests("f", "def check(c): pass", "def f(x):\n"),
        CodeTests("f", "def check(c): pass", "import os\n"),
        CodeTests("f", "def check(c): pass", "def f(x):\n"),
        FinalNumber(Decimal(1003)),
        FinalNumber(Decimal("2.5")),
        ExactCopy("c\n"),
        ExactCopy("d"),
    ]
    assert [task.split for task in tasks] == ["test"] * 3 + ["calibrate"] + ["test"] * 3
    assert [task.max_tokens for task in tasks] == [512] * 3 + [400] * 2 + [512] * 2
    assert tasks[3].prompt.id == "mine-4"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "nothing to score"),
        ({"test": "def check(c): pass"}, "nothing to score"),
        ({"test": 5, "entry_point": "f"}, "`test` is not text"),
        ({"test": "", "entry_point": "f(x)"}, "not the name of a function"),
        ({"answer": "many"}, "`answer` holds no number"),
        ({"answer": True}, "`answer` holds no number"),
        ({"expected": " \n```\n"}, "`expected` is empty"),
        ({"copy": ["a"]}, "`copy` is not text"),
        ({"answer": 1, "split": 3}, "`split` is not text"),
    ],
)
def test_a_line_that_cannot_be_scored_is_named(tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    path = write(tmp_path / "mine.jsonl", {"prompt": "fine", "answer": 1}, {"prompt": "a", **fields})
    with pytest.raises(UsageError, match=r"mine\.jsonl, line 2") as error:
        read_suite(path)
    assert reason in error.value.message


def test_public_suites_lie_in_the_folder_of_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_PROMPTS", str(tmp_path))
    with pytest.raises(UsageError, match=r"gsm8k\.jsonl does not exist") as error:
        read_suite("gsm8k")
    assert "`answer`" in str(error.value.hint)
    write(tmp_path / "gsm8k.jsonl", {"prompt": "a", "answer": "1"})
    assert len(read_suite("gsm8k")) == 1
    monkeypatch.delenv("LOCALSPEC_PROMPTS")
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    assert prompts_dir() == tmp_path / "cache" / "prompts"


@pytest.mark.parametrize(
    ("name", "reason"), [("humanevil", "no suite 'humanevil'"), ("x.jsonl", "no file x.jsonl"), ("a/b", "no file a")]
)
def test_unknown_suites_are_refused(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as error:
        read_suite(name)
    assert "humaneval, gsm8k, copy" in str(error.value.hint)


def test_a_split_and_a_limit_choose_tasks() -> None:
    tasks = [task(1), task(2, "calibrate"), task(3), task(4)]
    assert choose(tasks) == [tasks[0], tasks[2], tasks[3]]
    assert choose(tasks, limit=2) == [tasks[0], tasks[2]]
    assert choose(tasks, "all") == tasks
    with pytest.raises(UsageError, match="in the split 'train'") as error:
        choose(tasks, "train")
    assert error.value.hint == "--split test, calibrate, all"


def test_the_digest_tells_suites_apart() -> None:
    assert digest([task(1), task(2)]) == digest([task(1), task(2)])
    assert len({digest(tasks) for tasks in ([task(1)], [task(2)], [task(1, "all")], [task(1), task(2)])}) == 4


def test_the_own_suite_is_whole() -> None:
    tasks = read_suite("copy")
    assert len(tasks) == 36
    assert len(choose(tasks)) == 24 and len(choose(tasks, "calibrate")) == 12
    assert len({task.prompt.text for task in tasks}) == 36
