"""The row kernels as a user meets them: equal rows for any number of tokens, a switch, and a report."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from localspec.bench.curve import measure_curves
from localspec.cli.app import app
from localspec.engine import kernels
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.errors import UsageError
from localspec.gguf_check import check_gguf
from localspec.gguf_matrices import Matrices
from tests.engine.trees import NEEDS_PATCHES, MakePatched, random_tokens
from tests.tiny_models import write_tiny

pytestmark = [
    *NEEDS_PATCHES,
    pytest.mark.skipif(not kernels.covered_types(), reason="this build has no row kernels"),
]


@pytest.mark.parametrize("n_context", [30, 600])
@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_a_token_gets_the_same_row_alone_and_among_others(
    tiny_q4: dict[str, object], make_patched: MakePatched, n_context: int, n_threads: int
) -> None:
    """To the bit, also where llama.cpp changes its path (512 cells) and with more threads than heads."""
    rng = np.random.default_rng(n_context)
    ctx = make_patched(tiny_q4["llama"], n_ctx=1024, n_threads=n_threads, n_threads_batch=n_threads)
    prompt, chain = random_tokens(rng, n_context), random_tokens(rng, 100)
    ctx.prefill(prompt)
    together = ctx.decode(chain, list(range(-1, 99)))
    expected = [together.logits(i).copy() for i in range(100)]
    ctx.drop()
    for i, token in enumerate(chain[:20]):
        np.testing.assert_array_equal(ctx.decode([token], [-1]).logits(0), expected[i])
        ctx.accept([0])


def test_the_switch_gives_llama_cpps_kernels_back_and_is_restored() -> None:
    assert kernels.enabled()
    with pytest.raises(RuntimeError, match="inside"), kernels.disabled():
        assert not kernels.enabled()
        raise RuntimeError("inside")
    assert kernels.enabled()


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells what is in memory")
def test_packed_weights_are_in_memory_once(model: Model) -> None:
    """The first step packs them, and the pages of the file must then not stay in the process."""
    with Model.load(model.path) as loaded, closing(loaded.new_context(ContextParams(n_ctx=128))) as ctx:
        before = _resident_of(model.path)
        ctx.decode([model.bos], [-1])
        freed = before - _resident_of(model.path)
    assert freed > 0.8 * model.size_bytes


def _resident_of(path: Path) -> int:
    """Bytes of a mapped file in this process's memory."""
    resident, here = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(maxsplit=1)[0]:
            here = line.endswith(path.name)
        elif here and line.startswith("Rss:"):
            resident += 1024 * int(line.split()[1])
    return resident


def test_two_contexts_may_pack_the_same_weights(model: Model) -> None:
    """Each finds the other's panels, or goes without; the rows are the same."""
    with Model.load(model.path) as loaded, ThreadPoolExecutor(2) as pool:
        contexts = [loaded.new_context(ContextParams(n_ctx=128, n_threads=1)) for _ in range(2)]
        try:
            for _ in range(3):
                rows = pool.map(lambda ctx: ctx.decode([model.bos], [-1]).logits(0).copy(), contexts)
                first, second = rows
                np.testing.assert_array_equal(first, second)
                for ctx in contexts:
                    ctx.drop()
        finally:
            for ctx in contexts:
                ctx.close()


def test_a_model_keeps_working_when_the_switch_is_thrown(model: Model) -> None:
    """The file's weights are still there. Rounding changes, as far as quantised activations carry that; wrong weights
    would leave nothing in common."""
    prompt = model.tokenize("The lighthouse keeper looked at the sea", True, True)
    with closing(model.new_context(ContextParams(n_ctx=256))) as ctx:
        ctx.prefill(prompt)
        before = ctx.decode([model.bos], [-1]).logits(0).copy()
        ctx.drop()
        with kernels.disabled():
            after = ctx.decode([model.bos], [-1]).logits(0).copy()
            ctx.drop()
        np.testing.assert_array_equal(ctx.decode([model.bos], [-1]).logits(0), before)
    assert np.corrcoef(before, after)[0, 1] > 0.97


def test_matrices_without_row_kernels_are_named() -> None:
    matrices = Matrices(types=Counter({"Q4_K": 3, "TQ1_0": 2}), experts=Counter({"Q8_0": 1}))
    assert kernels.uncovered(matrices) == ["2 TQ1_0", "1 Q8_0 of experts"]
    assert {"Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "F16"} <= kernels.covered_types()


def test_only_the_weights_that_a_step_multiplies_with_are_counted(tmp_path: Path) -> None:
    matrices = check_gguf(write_tiny(tmp_path / "tiny.gguf")).matrices
    # 3 layers of q, k, v, o, gate, up, down, and the output; norms and the look-up of the embedding do not count
    assert sum(matrices.types.values()) == 3 * 7 + 1
    assert 0 < matrices.n_bytes < matrices.n_elements


def test_the_roofline_is_memory_for_one_token_and_arithmetic_for_many() -> None:
    peaks = kernels.Peaks(read_bytes=10e9, products=100e9)
    assert peaks.step_seconds(1, n_elements=10**9, n_bytes=10**9) == pytest.approx(0.1)
    assert peaks.step_seconds(20, n_elements=10**9, n_bytes=10**9) == pytest.approx(0.2)


def test_the_curve_compares_both_kernels_at_every_size(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf")
    result = measure_curves(path, ContextParams(n_threads=1), contexts=[20, 40], sizes=[1, 3], rounds=2)
    assert [costs.context for costs in result.costs] == [20, 40]
    for costs in result.costs:
        assert [len(times) for times in (*costs.ours, *costs.stock)] == [2] * 4
        assert all(q1 <= median <= q3 for q1, median, q3 in map(costs.ratios, range(2)))
    assert kernels.enabled()


def test_the_curve_needs_kernels_to_compare(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf")
    with kernels.disabled(), pytest.raises(UsageError, match="no kernels"):
        measure_curves(path, ContextParams(n_threads=1))


def test_the_curve_is_printed_written_and_drawn(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf")
    written, picture = tmp_path / "curve.json", tmp_path / "curve.png"
    arguments = ["bench", "--curve", "-m", str(path), "-t", "1", "-o", str(written), "--plot", str(picture)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "1000 tokens in the cache" in done.output
    data = json.loads(written.read_text())
    assert set(data["costs"][0]["ratio"]) == {str(n) for n in data["costs"][0]["n"]}
    assert picture.read_bytes().startswith(b"\x89PNG")
