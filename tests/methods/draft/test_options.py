"""`--draft` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tiny_models import write_tiny
from tests.with_model import localspec


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("pair")
    target, draft = (str(write_tiny(folder / f"{name}.gguf", seed=2)) for name in ("big", "small"))
    return ["-m", target, "--draft", draft, "--threads", "1", "-c", "512"]


def test_a_draft_model_alone_chooses_the_method(pair: list[str], tmp_path: Path) -> None:
    env = {"LOCALSPEC_HOME": str(tmp_path)}
    made = localspec("generate", *pair, "--raw", "--temp", "0", "-n", "24", "--json", "once upon a time", env=env)
    assert made.returncode == 0, made.stderr
    content = json.loads(made.stdout)
    assert content["speculation"]["method"] == "draft" and content["draft"] == "small"
    chatted = localspec("chat", *pair, "--method", "ptd", "-n", "4", stdin="/method draft\nhi\n", env=env)
    assert chatted.returncode == 0 and "the method is draft" in chatted.stderr


def test_verify_and_bench_run_it(pair: list[str], tmp_path: Path) -> None:
    env = {"LOCALSPEC_HOME": str(tmp_path)}
    common = [*pair, "--task", "code", "--limit", "1", "-n", "24", "--json"]
    verified = localspec("verify", *common, env=env)
    assert verified.returncode == 0, verified.stderr
    content = json.loads(verified.stdout)
    assert content["method"] == "draft" and content["header"]["draft"] == "small"
    benched = localspec("bench", *common, "--nodes", "8", env=env)
    assert benched.returncode == 0, benched.stderr
    row = json.loads(benched.stdout)["summary"][1]
    assert row["method"] == "draft" and row["draft_share"] > 0
    assert row["identical"] == 1


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (("generate", "--method", "draft", "hello"), "--draft MODEL", 2),
        (("generate", "--draft-ctx-size", "64", "hello"), "--draft-ctx-size goes with --draft", 2),
        (("calibrate", "--draft", "x.gguf"), "leave out --draft", 2),
        (("bench", "--curve", "--draft", "x.gguf"), "leave out --draft", 2),
        (("generate", "--draft", "x.gguf", "--method", "ptd", "hello"), "ptd does not draft with a second model", 2),
        (("bench", "--draft", "x.gguf", "--methods", "ptd,lookup"), "--draft x.gguf would do nothing", 2),
        (("generate", "--draft", "nothing-like-this", "hello"), "nothing-like-this", 3),
    ],
)
def test_what_does_not_go_together_is_said(
    pair: list[str], tmp_path: Path, arguments: tuple[str, ...], says: str, code: int
) -> None:
    made = localspec(*arguments, *pair[:2], "--threads", "1", "-c", "512", env={"LOCALSPEC_HOME": str(tmp_path)})
    assert made.returncode == code and says in made.stderr
