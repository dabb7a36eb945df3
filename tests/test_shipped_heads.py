"""The heads that come with localspec: there, small, said how they were made, and good enough to be worth it."""

from __future__ import annotations

import pytest

from localspec.bench.prompts import own_prompts, select
from localspec.bench.run import bench
from localspec.engine import patched
from localspec.engine.params import ContextParams, SamplingParams
from localspec.heads.choose import choose_heads, shipped_heads
from localspec.heads.file import read_heads
from localspec.session import Session
from tests.with_model import calibrated_home


def test_they_are_small_and_say_how_to_make_them_again() -> None:
    (path, spec), *_ = shipped_heads()
    assert path.stat().st_size <= 20e6
    assert spec.base_name and spec.base_fingerprint
    assert "localspec train-heads" in spec.recipe and "top-1" in spec.recipe
    heads = read_heads(path)
    assert heads.d2t is not None and len(heads.d2t) == spec.n_draft_vocab


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.skipif(not patched.available(), reason="NumPy heads take minutes for this")
def test_smollm_gets_them_and_accepts_more_than_half_a_draft_a_step(tmp_path) -> None:
    with (
        calibrated_home(tmp_path) as model,
        Session.open(model, method="plain", context=ContextParams(n_ctx=1024, n_threads=1)) as session,
    ):
        assert choose_heads(session.model) == session.materials.head_files == {"hydra": next(shipped_heads())[0]}
        assert session.method("auto").name == "ptd+heads"
        prompts = select(own_prompts(), ("chat", "math"), 4)
        result = bench(session, prompts, ["heads"], sampling=SamplingParams(temperature=0), max_tokens=64, nodes=4)
    runs = [run for run in result.runs if run.method == "heads"]
    assert all(run.same for run in runs)
    assert sum(run.stats.n_tokens for run in runs) > 1.5 * sum(run.stats.n_steps for run in runs)
