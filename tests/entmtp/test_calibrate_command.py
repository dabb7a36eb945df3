"""`localspec calibrate --task`, as a person runs it, with a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.calibrate.store import save_curve
from localspec.engine.params import ContextParams, SamplingParams
from localspec.entmtp.bank_file import banks_dir, read_bank
from localspec.entmtp.prompts import calibration_prompts
from localspec.replay.record import record_answer
from localspec.session import Session
from tests.entmtp.tiny_heads import write_bigram_heads
from tests.tiny_models import write_tiny
from tests.with_model import FLAT, localspec


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with its curve, heads for it, heads for another one, and half a file of heads."""
    folder = tmp_path_factory.mktemp("calibrate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_HOME", str(folder / "home"))
        for name, seed in (("tiny", 1), ("other", 2)):
            path = write_tiny(folder / f"{name}.gguf", seed=seed)
            with Session.open(path, context=ContextParams(n_ctx=512, n_threads=1), method="plain") as session:
                save_curve(session.curve_key, FLAT, name)
                greedy = SamplingParams(temperature=0.0)
                prompts = calibration_prompts("math", limit=3)
                texts = [record_answer(session, prompt, greedy, 40, "plain").tokens for prompt in prompts]
                heads = write_bigram_heads(folder / f"{name}-heads.gguf", session.model, texts)
    (folder / "half.gguf").write_bytes(heads.read_bytes()[:-10000])
    return folder


def run(folder: Path, *args: str, heads: str = "tiny-heads.gguf") -> tuple[int, str, str]:
    command = ["calibrate", str(folder / "tiny.gguf"), "-t", "1", "-c", "512", "--task", "math", "--limit", "3"]
    done = localspec(
        *command, "-n", "24", "--heads", str(folder / heads), *args, env={"LOCALSPEC_HOME": str(folder / "home")}
    )
    return done.returncode, done.stdout, done.stderr


def test_a_bank_is_made_shown_drawn_and_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(folder, "--plot", str(folder / "bank.svg"))
    assert code == 0, err
    for text in ("tiny with tiny-heads.gguf, task math: 3 answers", "expected", "measured", "Share", "* ", "value"):
        assert text in out
    assert (folder / "bank.svg").read_text().startswith("<?xml")
    monkeypatch.setenv("LOCALSPEC_HOME", str(folder / "home"))
    (path,) = banks_dir().glob("*.json")
    made = read_bank(path)
    assert all(tree.measured == tree.expected for tree in made.measured)
    assert not list((folder / "home" / "cache" / "calibration").rglob("measured-*")), "nothing is left to go on with"

    code, out, err = run(folder, "--json")
    assert code == 0 and "--force makes it again" in err
    assert json.loads(out) == made.to_dict()
    code, _, err = run(folder, "--limit", "2")
    assert code == 0 and "other prompts" in err
    assert read_bank(path).report["answers"] == 2


@pytest.mark.parametrize(
    ("heads", "code", "message"),
    [("other-heads.gguf", 3, "do not fit tiny"), ("half.gguf", 3, "half.gguf"), ("none.gguf", 3, "train-heads")],
)
def test_heads_that_cannot_be_used_are_refused(folder: Path, heads: str, code: int, message: str) -> None:
    status, out, err = run(folder, heads=heads)
    assert (status, out) == (code, "") and message in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--plot", "p.svg"], "--plot goes with --task"),
        (["--limit", "2"], "--limit goes with --task"),
        (["--max-tokens", "20"], "--max-tokens goes with --task"),
        (["--task", "cooking", "--heads", "h.gguf"], "no prompts to calibrate for 'cooking'"),
        (["--task", "code", "--heads", "h.gguf", "--plot", "p.txt"], "written as"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_loaded(args: list[str], message: str) -> None:
    done = localspec("calibrate", "no-such-model", *args)
    assert done.returncode == 2 and message in done.stderr


def test_a_model_without_heads_says_where_to_get_some(folder: Path) -> None:
    done = localspec("calibrate", str(folder / "tiny.gguf"), "-t", "1", "-c", "512", "--task", "math")
    assert done.returncode == 2 and "no Hydra heads for tiny" in done.stderr and "train-heads" in done.stderr
