"""The prompts that banks are calibrated on."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from localspec.bench.prompts import own_prompts
from localspec.entmtp.prompts import AUTO, TASKS, calibration_prompts
from localspec.errors import UsageError
from localspec.train.prompts import training_prompts


def grams(text: str, n: int = 8) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


def test_every_task_has_as_many() -> None:
    prompts = calibration_prompts(AUTO)
    assert set(Counter(prompt.task for prompt in prompts).values()) == {24}
    assert {prompt.task for prompt in prompts} == set(TASKS)
    assert len({prompt.text for prompt in prompts}) == len(prompts)
    assert [p for task in TASKS for p in calibration_prompts(task)] == sorted(
        prompts, key=lambda p: TASKS.index(p.task)
    )
    assert Counter(prompt.task for prompt in calibration_prompts(AUTO, limit=2)) == dict.fromkeys(TASKS, 2)


def test_none_shares_a_passage_with_what_is_measured_or_trained_on() -> None:
    texts = [prompt.text for prompt in own_prompts()] + training_prompts()
    others = set().union(*map(grams, texts))
    assert not [
        prompt.text for prompt in calibration_prompts(AUTO) if grams(prompt.text) & others or prompt.text in texts
    ]


def test_a_file_of_the_user_brings_its_own_tasks(tmp_path: Path) -> None:
    path = tmp_path / "mail.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"write {i}"}) + "\n" for i in range(3)))
    assert len(calibration_prompts("mail", path)) == len(calibration_prompts(AUTO, path)) == 3
    with pytest.raises(UsageError, match="no task 'code'"):
        calibration_prompts("code", path)
    with pytest.raises(UsageError, match="no prompts to calibrate for 'mail'"):
        calibration_prompts("mail")
