"""The training loop: it learns, and a training that was stopped ends like one that was not."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from localspec.errors import UsageError
from localspec.train.dataset import Runs
from localspec.train.work import HeadOptions
from tests.train.made import N_HEADS, H, Matrices, V, counting_shard

torch = pytest.importorskip("torch")

OPTIONS = HeadOptions(n_heads=N_HEADS, vocab=V, epochs=6, batch=128, lr=3e-3)


def _trainer(path: Any, options: HeadOptions = OPTIONS, seed: int = 1) -> Any:
    from localspec.train.inputs import Feeder
    from localspec.train.module import HeadsModule, trained_spec
    from localspec.train.trainer import Trainer

    matrices = Matrices()
    d2t = np.arange(V, dtype=np.int32)
    feeder = Feeder(matrices, d2t, d2t, N_HEADS, torch.device("cpu"), torch.float32)  # type: ignore[arg-type]
    torch.manual_seed(seed)
    spec = trained_spec(H, V, n_heads=N_HEADS, n_layers=2, n_draft_vocab=V, base_name="b", fingerprint="0" * 16)
    module = HeadsModule(spec, torch.from_numpy(feeder.output))
    runs = Runs([counting_shard(matrices, 60, 40, 1)], [False], False, N_HEADS)
    return Trainer(module, feeder, runs, options, path), feeder


def _weights(trainer: Any) -> list[Any]:
    return [parameter.detach().clone() for parameter in trainer.module.parameters()]


def test_it_learns(tmp_path):
    from localspec.train.accuracy import measure

    trainer, feeder = _trainer(tmp_path / "checkpoint.pt")
    unseen = Runs([counting_shard(Matrices(), 20, 40, 2)], [False], False, N_HEADS)
    before = measure(trainer.module, feeder, unseen)
    reports = []
    assert trainer.train(lambda report: reports.append(report) is None)
    after = measure(trainer.module, feeder, unseen)
    assert max(before.top1) < 0.3  # chance is 1 in 40
    assert min(after.top1) > 0.9
    assert len(reports) == trainer.n_steps == trainer.step
    assert sum(reports[-1].losses) < sum(reports[0].losses)
    assert reports[-1].seconds_left == 0


def test_a_stopped_training_ends_like_one_that_was_not(tmp_path):
    whole, _ = _trainer(tmp_path / "whole.pt")
    assert whole.train(lambda report: True)
    # stopped within an epoch and at its end; what is made anew has other weights until the checkpoint is read
    for stop in (7, 2 * whole.n_steps // OPTIONS.epochs):
        part, _ = _trainer(tmp_path / "part.pt", seed=5 if stop > 7 else 1)
        assert not part.train(lambda report, stop=stop: report.step < stop)
        assert part.step == stop
    rest, _ = _trainer(tmp_path / "part.pt", seed=6)
    assert rest.train(lambda report: True)
    for ours, theirs in zip(_weights(rest), _weights(whole), strict=True):
        assert torch.equal(ours, theirs)


def test_a_finished_training_is_not_repeated(tmp_path):
    trainer, _ = _trainer(tmp_path / "checkpoint.pt")
    trainer.train(lambda report: True)
    again, _ = _trainer(tmp_path / "checkpoint.pt")
    assert again.train(lambda report: pytest.fail("a step was made"))


def test_checkpoints_are_written_on_the_way(tmp_path, monkeypatch):
    from localspec.train import trainer as training

    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    trainer, _ = _trainer(tmp_path / "checkpoint.pt")

    def killed(report: Any) -> bool:
        if report.step == 5:
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        trainer.train(killed)
    again, _ = _trainer(tmp_path / "checkpoint.pt")
    assert again.step == 5
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


@pytest.mark.parametrize("content", [b"", b"nothing of the kind", "list", "other"])
def test_a_checkpoint_that_cannot_be_used_is_named(tmp_path, content):
    from localspec.train.trainer import kind_of

    path = tmp_path / "checkpoint.pt"
    if content == "list":
        torch.save([1], path)
    elif content == "other":
        torch.save({"step": 1, "kind": "torch.int8", "module": {}, "optimizer": {}}, path)
    else:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be used") as caught:
        _trainer(path)
    assert "delete it" in str(caught.value.hint)
    with pytest.raises(UsageError, match="cannot be used"):
        kind_of(path)


def test_the_rate_rises_and_falls():
    from localspec.train.trainer import LEAST_RATE, rate_at

    rates = [rate_at(step, 1000) for step in range(1000)]
    assert rates[0] == pytest.approx(1 / 50)
    assert max(rates) == 1.0
    assert np.argmax(rates) in (49, 50)
    assert rates[-1] == pytest.approx(LEAST_RATE, abs=1e-4)
    assert all(a >= b for a, b in itertools.pairwise(rates[50:]))
    assert rate_at(0, 1) == 1.0


def test_devices():
    from localspec.train.device import choose_device, choose_kind

    assert choose_device("cpu").type == "cpu"
    assert choose_kind(torch.device("cpu")) in (torch.float32, torch.bfloat16)
    with pytest.raises(UsageError, match="'tpu' is not known"):
        choose_device("tpu")
    if not torch.cuda.is_available():
        assert choose_device("auto").type == "cpu"
        with pytest.raises(UsageError, match="no CUDA"):
            choose_device("cuda")
