"""Measuring the cost curve, keeping it, and finding it again."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec import paths
from localspec.calibrate import obtain, store
from localspec.calibrate.curve import CostCurve
from localspec.calibrate.measure import SIZES, Measurement, measure
from localspec.calibrate.store import CurveKey, load_curve, save_curve, stored_curves
from localspec.errors import LocalspecError
from tests.toy import ToyContext
from tests.with_model import smollm

KEY = CurveKey(model="abc", library="def", device="CPU", n_threads=2, mode="stock", setup="f16")
CURVE = CostCurve((1, 2, 8), (0.01, 0.015, 0.04))


class TimedContext(ToyContext):
    """A context whose decodes take `cost(n, number of the call)` seconds of `now`."""

    def __init__(self, cost: Any, **options: Any) -> None:
        super().__init__(**options)
        self.cost, self.now = cost, 0.0

    def decode(self, tokens: Any, parents: Any, seq: int = 0) -> Any:
        rows = super().decode(tokens, parents, seq)
        self.now += self.cost(len(tokens), self.n_decodes)
        return rows


def run(ctx: TimedContext, **options: Any) -> Measurement | None:
    return measure(ctx, clock=lambda: ctx.now, **options)


def test_the_curve_is_what_the_steps_cost_and_the_context_is_left_empty() -> None:
    ctx = TimedContext(lambda n, call: 0.001 * (10 + n))
    ctx.prefill([1, 2, 3])
    result = run(ctx)
    assert result is not None and result.reliable
    assert result.curve.n == SIZES
    assert result.curve.seconds == pytest.approx([0.001 * (10 + n) for n in SIZES])
    assert ctx.n_past() == 0


def test_the_first_run_of_a_size_and_a_hiccup_do_not_count() -> None:
    seen: set[int] = set()

    def cost(n: int, call: int) -> float:
        first = n not in seen
        seen.add(n)
        return 0.001 * n * (9 if first or call % 17 == 0 else 1)

    result = run(TimedContext(cost), budget_seconds=1e9)
    assert result is not None
    assert result.curve.seconds == pytest.approx([0.001 * n for n in SIZES])


def test_a_slow_model_gets_a_shorter_curve_within_the_time() -> None:
    ctx = TimedContext(lambda n, call: 0.2 * n)
    result = run(ctx, budget_seconds=10)
    assert result is not None and result.reliable
    assert 2 <= len(result.curve.n) < len(SIZES)
    assert ctx.now <= 10


def test_there_is_a_curve_even_when_no_time_suffices() -> None:
    result = run(TimedContext(lambda n, call: 60.0 * n), budget_seconds=10)
    assert result is not None
    assert result.curve.n == (1, 2)
    assert not result.reliable


def test_steps_that_are_slow_after_a_much_larger_one_do_not_distort_the_curve() -> None:
    sizes: list[int] = [1]

    def cost(n: int, call: int) -> float:
        sizes.append(n)
        return 0.001 * n + (0.02 if sizes[-2] > 4 * n else 0)

    result = run(TimedContext(cost), budget_seconds=1e9)
    assert result is not None and result.reliable
    assert result.curve.seconds == pytest.approx([0.001 * n for n in SIZES])


def test_a_busy_machine_is_noticed() -> None:
    result = run(TimedContext(lambda n, call: 0.001 * n * (10 if call % 5 > 2 else 1)), budget_seconds=1e9)
    assert result is not None
    assert not result.reliable


@pytest.mark.parametrize(("options", "largest"), [({"max_nodes": 5}, 4), ({"n_ctx": 16}, 8)])
def test_sizes_stay_within_what_the_context_can_hold(options: dict[str, int], largest: int) -> None:
    result = run(TimedContext(lambda n, call: 0.001, **options))
    assert result is not None
    assert result.curve.n[-1] == largest


def test_a_context_without_trees_has_no_curve() -> None:
    assert run(TimedContext(lambda n, call: 0.001, max_nodes=1)) is None


def test_progress_goes_up_to_one() -> None:
    shares: list[float] = []
    run(TimedContext(lambda n, call: 0.001 * n), progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return tmp_path


def test_a_stored_curve_is_found_again(home: Path) -> None:
    path = save_curve(KEY, CURVE, "m.gguf")
    assert path.is_relative_to(home)
    stored = load_curve(KEY)
    assert stored is not None
    assert (stored.curve, stored.model_name) == (CURVE, "m.gguf")
    assert [one.key for one in stored_curves()] == [KEY]


@pytest.mark.parametrize(
    "other",
    [{"model": "x"}, {"library": "x"}, {"device": "GPU"}, {"n_threads": 1}, {"mode": "patched"}, {"setup": "q8_0"}],
)
def test_a_curve_of_another_machine_or_build_is_not_used(home: Path, other: dict[str, Any]) -> None:
    save_curve(KEY, CURVE, "m.gguf")
    assert load_curve(replace(KEY, **other)) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"format": "other", "version": 1}',
        b"[" * 100_000,
        b'{"format": "localspec-cost-curve", "version": 99, "key": {}, "curve": {}}',
        b'{"format": "localspec-cost-curve", "version": 1, "key": {"a": 1}, "curve": {}}',
    ],
)
def test_a_damaged_or_foreign_file_counts_as_absent(
    home: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = save_curve(KEY, CURVE, "m.gguf")
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING, "localspec"):
        assert load_curve(KEY) is None
    assert path.name in caplog.text
    save_curve(KEY, CURVE, "m.gguf")
    assert load_curve(KEY) is not None


def test_a_file_under_another_keys_name_is_not_used(home: Path) -> None:
    other = replace(KEY, model="x")
    save_curve(KEY, CURVE, "m.gguf").rename(store.curve_path(other))
    assert load_curve(other) is None


def test_a_folder_that_cannot_be_written_is_one_clear_error(home: Path) -> None:
    (home / "data").write_text("a file where a folder should be")
    with pytest.raises(LocalspecError, match="cannot store the cost curve"):
        save_curve(KEY, CURVE, "m.gguf")


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "curve.json"
    paths.atomic_write_text(path, "old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        paths.atomic_write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[Measurement | None]:
    """What the coming measurements give, one after the other; the list is used up."""
    results: list[Measurement | None] = []
    monkeypatch.setattr(obtain, "measure", lambda ctx, **_: results.pop(0))
    return results


SLOWER = CostCurve((1, 2), (0.02, 0.04))


def measure_now() -> obtain.Outcome:
    return obtain.measure_and_store(ToyContext(), KEY, "m", [1])


def test_what_became_of_a_measurement_is_told(home: Path, measurements: list[Measurement | None]) -> None:
    measurements += [None, Measurement(CURVE, False), Measurement(CURVE, True), Measurement(SLOWER, False)]
    assert [measure_now().status for _ in range(4)] == ["none", "busy", "stored", "kept"]
    found = obtain.find(KEY)
    assert found is not None and (found.status, found.curve) == ("found", CURVE), "a busy one replaces no good one"


def test_a_disk_that_refuses_the_curve_is_told_and_the_curve_used(
    home: Path, measurements: list[Measurement | None]
) -> None:
    (home / "data").write_text("a file where a folder should be")
    measurements.append(Measurement(CURVE, True))
    outcome = measure_now()
    assert (outcome.status, outcome.curve) == ("unwritten", CURVE)
    assert "cannot store" in outcome.detail


def test_a_curve_of_a_busy_machine_serves_for_a_day(home: Path, measurements: list[Measurement | None]) -> None:
    measurements.append(Measurement(CURVE, False))
    measure_now()
    found = obtain.find(KEY)
    assert found is not None and found.curve == CURVE and "busy" in found.detail
    path = store.curve_path(KEY)
    content = json.loads(path.read_text())
    for created, due in (("2020-01-01T00:00:00+00:00", True), ("2999-01-01T00:00:00+00:00", True)):
        path.write_text(json.dumps({**content, "created": created}))
        assert (obtain.find(KEY) is None) == due
        path.write_text(json.dumps({**content, "created": created, "reliable": True}))
        assert obtain.find(KEY) is not None, "a good one does not grow old"


@pytest.mark.model
def test_a_model_is_measured_once_and_then_remembered(
    home: Path, measurements: list[Measurement | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec import machine
    from localspec import session as sessions
    from localspec.engine.params import ContextParams

    measurements += [Measurement(CURVE, True), Measurement(CURVE, True)]
    params = ContextParams(n_ctx=256, n_threads=1)
    path = smollm()
    for method, left in (("plain", 2), ("lookup", 1), ("lookup", 1)):  # plain needs none
        with sessions.Session.open(path, context=params, method=method) as session:
            assert session.curve == (CURVE if method == "lookup" else None)
        assert len(measurements) == left
    with sessions.Session.open(path, context=params, method="lookup") as session:
        assert session.calibrate(force=True).status == "stored"
        monkeypatch.setattr(machine, "gpus", lambda: ["GPU"])
        keys = []
        for layers in (-1, 0, 5, 1000):
            session._n_gpu_layers = layers
            keys.append(session.curve_key)
    assert keys[0] == keys[3]
    assert len(set(keys)) == 3, "layers on the GPU change what a step costs"


@pytest.mark.model
def test_measuring_does_not_disturb_what_is_generated(home: Path) -> None:
    from localspec.calibrate import measure as measuring
    from localspec.decode import Limits
    from localspec.engine.params import ContextParams, SamplingParams
    from localspec.events import StepEvent
    from localspec.session import Session

    with Session.open(smollm(), context=ContextParams(n_ctx=256, n_threads=1), method="plain") as session:
        prompt = session.raw_prompt("One, two, three,")

        def text() -> str:
            events = session.generate(prompt, SamplingParams(temperature=0), Limits(max_tokens=8), "plain")
            return "".join(event.text for event in events if isinstance(event, StepEvent))

        before = text()
        assert measuring.measure(session.ctx, sizes=(1, 2, 4), budget_seconds=2) is not None
        session.forget()
        assert text() == before
