"""`localspec eval`, from the options to the table, with a tiny model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from localspec.cli import app
from localspec.methods.fly import LooseRule
from localspec.methods.loose import LooseVerifier
from tests.tiny_models import SPECIAL, write_tiny

TASKS = [
    {"id": f"t/{i}", "task": "t", "split": "calibrate" if i == 3 else "test", "prompt": f"Say {i}.", "answer": i}
    for i in range(4)
]
CODE = {"prompt": "Write f.", "entry_point": "f", "test": "def check(candidate):\n    assert candidate() == 1\n"}


def run(*args: object) -> Any:
    return CliRunner().invoke(app, ["eval", *map(str, args)], prog_name="localspec")


def write(path: Path, *tasks: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "llama.gguf", "llama")


@pytest.fixture
def options(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    suite = write(tmp_path / "mine.jsonl", *TASKS)
    return ["--suite", suite, "-m", tiny, "-t", 1, "-c", 512, "-n", 8, "--method", "lookup"]


def test_it_scores_both_and_tells_as_json(options: list[object]) -> None:
    result = run(*options, "--limit", 2, "--json")
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    assert [(arm["method"], arm["n"], arm["lossless"]) for arm in data["arms"]] == [
        ("plain", 2, True),
        ("lookup", 2, True),
    ]
    assert data["comparison"]["equal"] == 2
    assert (data["header"]["split"], data["header"]["tasks"], data["header"]["threads"]) == ("test", 2, 1)


def test_it_goes_on_where_it_was(tmp_path: Path, options: list[object]) -> None:
    out = tmp_path / "out.jsonl"
    assert run(*options, "--limit", 2, "-o", out).exit_code == 0
    first = out.read_text()
    result = run(*options, "--split", "all", "-o", out)
    assert result.exit_code == 0, result.stderr
    assert out.read_text().startswith(first)
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()[1:]] == ["t/0", "t/1", "t/2", "t/3"]
    assert "4 of 4 tasks" in result.stdout
    whole = out.read_text()
    # what is measured is another split of the same file
    assert "1 of 1 tasks" in run(*options, "--split", "calibrate", "-o", out).stdout
    assert out.read_text() == whole
    result = run(*options, "-o", out, "-t", 2, "--method", "ptd")
    assert result.exit_code == 2
    assert "--threads was 1, not 2" in result.stderr and "--method was lookup, not ptd" in result.stderr
    assert out.read_text() == whole


def test_another_rule_of_acceptance_is_another_evaluation(tmp_path: Path, options: list[object]) -> None:
    out = tmp_path / "out.jsonl"
    command = [*options, "--limit", 1, "-o", out, "--accept", "loose"]
    assert run(*command).exit_code == run(*command, "--literals", "loose").exit_code == 0
    result = run(*command, "--literals", "exact")
    assert result.exit_code == 2 and "the rule of acceptance was" in result.stderr


@pytest.mark.parametrize("command", ["eval", "generate"])
def test_the_parameters_of_loose_acceptance_reach_the_verifier(
    command: str, options: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec.methods import acceptance

    made: list[LooseVerifier] = []
    pieces: list[bytes] = []

    def verifier(rule: LooseRule, piece: Callable[[int], bytes]) -> LooseVerifier:
        pieces.append(piece(len(SPECIAL) + ord("7")))  # while the model is open
        made.append(LooseVerifier(rule, piece))
        return made[-1]

    monkeypatch.setattr(acceptance, "LooseVerifier", verifier)
    loose = ["--accept", "loose", "--theta", 0.2, "--window", 4, "--ratio", 0.1, "--literals", "exact", "--json"]
    args = [*options, "--limit", 1] if command == "eval" else [*options[2:], "Say 7."]
    result = CliRunner().invoke(app, [command, *map(str, [*args, *loose])], prog_name="localspec")
    assert result.exit_code == 0, result.stderr
    assert made and {one.rule for one in made} == {LooseRule(0.2, 4, ratio=0.1, literals="exact")}
    assert set(pieces) == {b"7"}
    told = json.loads(result.stdout)
    rule = told["header"]["acceptance"]["loose"] if command == "eval" else told["speculation"]
    assert rule["literals"] == "exact"


def test_another_draft_model_in_the_same_place_is_another_evaluation(tmp_path: Path, options: list[object]) -> None:
    draft, out = write_tiny(tmp_path / "draft.gguf", "llama", seed=2), tmp_path / "out.jsonl"
    command = [*options, "--method", "draft", "--draft", draft, "--limit", 1, "-o", out]
    assert run(*command).exit_code == 0
    assert run(*command).exit_code == 0
    moved = draft.rename(tmp_path / "moved.gguf")
    assert run(*command, "--draft", moved).exit_code == 0
    write_tiny(draft, "llama", seed=3)
    result = run(*command)
    assert result.exit_code == 2 and "the draft model was" in result.stderr


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(
    tmp_path: Path, options: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec.evaluate import run as runner

    real = runner.evaluate

    def pressed(*args: Any, keep: Any, **more: Any) -> Any:
        kept: list[Any] = []
        more["cancelled"] = lambda: len(kept) == 1
        return real(*args, keep=lambda result: (kept.append(result), keep(result)), **more)

    monkeypatch.setattr(runner, "evaluate", pressed)
    out = tmp_path / "out.jsonl"
    result = run(*options, "-o", out)
    assert result.exit_code == 130
    assert "stopped after 1 of 3 tasks; the same command goes on" in result.stderr
    assert "1 of 3 tasks" in result.stdout
    assert "nothing was kept" in run(*options).stderr
    monkeypatch.setattr(runner, "evaluate", real)
    assert "3 of 3 tasks" in run(*options, "-o", out).stdout


def test_code_is_run_only_when_that_is_allowed(tmp_path: Path, options: list[object]) -> None:
    options[1] = write(tmp_path / "code.jsonl", CODE)
    result = run(*options)
    assert result.exit_code == 2
    assert "running code that the model wrote" in result.stderr and "--run-code allows it" in result.stderr
    if os.name == "posix":
        result = run(*options, "--run-code", "--json")
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["arms"][0]["right"] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("--suite", "poems"), "there is no suite 'poems'"),
        (("--split", "train"), "in the split 'train'"),
        (("--method", "psychic"), "no method 'psychic'"),
        (("--accept", "never"), "no --accept 'never'"),
        (("-n", "600"), "t/0 may take"),
        (("-o", "none/out.jsonl"), "does not exist"),
    ],
)
def test_what_cannot_be_used_is_refused(options: list[object], changes: tuple[str, str], message: str) -> None:
    result = run(*options, *changes)
    assert result.exit_code in (2, 5)
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_a_suite_must_be_named() -> None:
    result = run()
    assert result.exit_code == 2 and "--suite" in result.stderr
