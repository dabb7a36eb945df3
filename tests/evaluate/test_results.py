"""The file that an evaluation goes on from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.evaluate.results import Result, open_results
from localspec.evaluate.scoring import Score
from tests.evaluate.made import answer, result

OPTIONS = {"method": "draft", "temperature": 0.0, "max_tokens": None, "heads": None}
MADE = [
    result(1, answer(True, "a \u2028 b\n"), answer(False, "c", forgiven=3, lossless=False)),
    result(2, answer(False), answer(True, score=Score(True, "", 0.5, True))),
]


def write(path: Path) -> None:
    journal, known = open_results(path, OPTIONS)
    with journal:
        assert known == []
        for one in MADE:
            journal.append(one.to_dict())


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    write(tmp_path / "out.jsonl")
    journal, known = open_results(tmp_path / "out.jsonl", OPTIONS)
    journal.__exit__()
    assert known == MADE
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").split("\n")
    assert json.loads(lines[1])["answers"]["plain"]["tokens_per_second"] == 10.0


def test_a_kill_loses_one_task(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(path)
    path.write_bytes(path.read_bytes()[:-40])
    journal, known = open_results(path, OPTIONS)
    with journal:
        journal.append(MADE[1].to_dict())
    assert known == MADE[:1]
    journal, known = open_results(path, OPTIONS)
    journal.__exit__()
    assert known == MADE


def test_other_options_are_refused_and_named(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(path)
    before = path.read_bytes()
    other = {**OPTIONS, "method": "ptd", "heads": ["a.gguf"]}
    with pytest.raises(UsageError) as error:
        open_results(path, other)
    assert error.value.message.endswith(
        "another evaluation: method was draft, not ptd; heads was not given, not ['a.gguf']"
    )
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ['{"prompt": "mine"}\n', "words\n", '{"format": "localspec-eval", "version": 9}\n'])
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"mine\.jsonl exists and holds no results"):
        open_results(path, OPTIONS)
    assert path.read_text() == content


def test_an_altered_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(path)
    with path.open("a") as file:
        file.write('{"id": "n/3"}\n')
    with pytest.raises(UsageError, match="holds a line that is no result"):
        open_results(path, OPTIONS)


def test_results_are_plain_data() -> None:
    for one in MADE:
        assert Result.from_dict(json.loads(json.dumps(one.to_dict()))) == one
