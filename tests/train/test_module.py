"""The torch module, its loss, and the accuracy of heads, each against something simpler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from localspec.errors import UsageError
from localspec.heads.file import read_heads, write_heads
from localspec.heads.reference import ReferenceHeads
from localspec.train.dataset import RUN, Runs
from tests.train.made import N_HEADS, H, Matrices, V, shard

torch = pytest.importorskip("torch")

D2T = np.array([1, 4, 5, 9, 10, 22, 23, 31, 39], dtype=np.int32)


def _module(n_layers: int = 2, seed: int = 2, arch: str = "hydra-mlp", d2t: Any = D2T, n_heads: int = N_HEADS) -> Any:
    from localspec.train.module import HeadsModule, trained_spec

    torch.manual_seed(seed)
    spec = trained_spec(
        H,
        V,
        n_heads=n_heads,
        n_layers=n_layers,
        n_draft_vocab=len(d2t),
        base_name="b",
        fingerprint="0" * 16,
        arch=arch,
    )
    scale = torch.rand((n_heads + 1) * H) + 0.5
    module = HeadsModule(spec, torch.from_numpy(Matrices().output[d2t]), scale)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return module


def _feeder(kind: Any = None) -> Any:
    from localspec.train.inputs import Feeder

    used = np.arange(V, dtype=np.int32)
    return Feeder(Matrices(), used, D2T, N_HEADS, torch.device("cpu"), kind or torch.float32)  # type: ignore[arg-type]


def _batch() -> Any:
    return Runs([shard([50, 9, 2])], [False], False, N_HEADS).batch(np.arange(4))


@pytest.mark.parametrize("arch", ["hydra-mlp", "medusa"])
@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_exported_heads_say_what_the_module_says(tmp_path, n_layers, arch):
    module, feeder = _module(n_layers, arch=arch), _feeder()
    write_heads(tmp_path / "heads.gguf", module.to_heads(D2T), "f32")
    heads = read_heads(tmp_path / "heads.gguf")
    assert (heads.spec.arch, heads.spec.shared_output, heads.spec.tied_blocks) == (arch, True, False)
    assert heads.d2t is not None and heads.d2t.tolist() == D2T.tolist()
    reference = ReferenceHeads(heads, Matrices().embedding)
    batch = _batch()
    u, _ = feeder.feed(batch)
    with torch.no_grad():
        outputs = module(u)
    at = [0, 7, 20, RUN]  # positions of the first two runs; all their tokens exist
    for head in range(N_HEADS):
        ours = (outputs[head][at] @ module.output.T).detach().numpy()
        run, place = np.divmod(at, RUN)
        tokens = np.stack([batch.tokens[run, place + i] for i in range(head + 1)], axis=1)
        theirs = reference.logits(head, batch.hidden[run, place].astype(np.float32), tokens)
        assert np.abs(ours - theirs).max() < 1e-4


@pytest.mark.parametrize("arch", ["hydra-mlp", "medusa"])
def test_heads_go_on_from_heads_with_a_smaller_vocabulary(tmp_path, arch):
    from localspec.train.start import Start

    first, feeder = _module(3, arch=arch), _feeder()
    write_heads(tmp_path / "heads.gguf", first.to_heads(D2T), "f32")
    wider = np.union1d(D2T, [2, 7, 30]).astype(np.int32)
    second = _module(3, seed=9, arch=arch, d2t=wider)
    second.scale *= 1.5  # of other data
    untouched = second.output.detach()[np.searchsorted(wider, [2, 7, 30])].clone()
    start = Start(tmp_path / "heads.gguf")
    start.check(second.spec)
    start.apply(second, wider)
    u, _ = feeder.feed(_batch())
    rows = np.searchsorted(wider, D2T)
    for ours, theirs in zip(second(u), first(u), strict=True):
        assert torch.allclose(ours @ second.output[rows].T, theirs @ first.output.T, atol=1e-3)
    assert torch.equal(second.output.detach()[np.searchsorted(wider, [2, 7, 30])], untouched)


@pytest.mark.parametrize("arch", ["hydra-mlp", "medusa"])
def test_a_head_more_than_there_were_begins_as_the_last_one_a_token_later(tmp_path, arch):
    from localspec.train.start import Start

    first = _module(3, arch=arch)
    write_heads(tmp_path / "heads.gguf", first.to_heads(D2T), "f32")
    second = _module(3, seed=9, arch=arch, n_heads=N_HEADS + 1)
    start = Start(tmp_path / "heads.gguf")
    start.check(second.spec)
    start.apply(second, D2T)
    hidden, *tokens = torch.randn(N_HEADS + 2, 5, H).unbind(0)
    small = first(torch.cat([hidden, *tokens[:N_HEADS]], dim=1))
    large = second(torch.cat([hidden, *tokens], dim=1))
    later = first(torch.cat([hidden, *tokens[1:]], dim=1))
    for ours, theirs in zip(large, [*small, later[-1]], strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"n_layers": 2}, "another --blocks: 3, not 2"), ({"n_heads": 2}, "a larger --heads: 3, not 2"),
     ({"arch": "medusa", "grounded": False}, "another --arch: hydra"),
     ({"n_draft_vocab": 4}, "a larger --vocab: 9, not 4"),
     ({"base_fingerprint": "1" * 16}, "for another model, b"), ({"n_embd": 2 * H}, "for another model")],
)  # fmt: skip
def test_heads_that_do_not_fit_are_not_gone_on_from(tmp_path, change, message):
    from localspec.train.start import Start

    module = _module(3)
    write_heads(tmp_path / "heads.gguf", module.to_heads(D2T), "q8_0")
    start = Start(tmp_path / "heads.gguf")
    start.check(module.spec)
    with pytest.raises(UsageError, match=message):
        start.check(replace(module.spec, **change))


def test_inputs_of_all_kinds_are_of_one_size():
    feeder = _feeder()
    hidden = shard([50, 9, 2]).hidden.copy()
    hidden[:, 3] *= 100
    hidden[:, 4] = 0
    scale = feeder.scale(hidden)
    scaled = hidden.astype(np.float32) * scale[:H].numpy()
    squares = np.square(scaled).mean(axis=0)
    assert np.allclose(np.delete(squares, 4), 1, rtol=1e-3) and squares[4] == 0
    embedding = torch.from_numpy(Matrices().embedding) * scale[H : 2 * H]
    assert embedding.square().mean().item() == pytest.approx(1, rel=1e-3)
    assert torch.equal(scale[H : 2 * H], scale[-H:])


def _naive_loss(module: Any, batch: Any, n_later: int) -> tuple[Any, list[float]]:
    """Position by position, from the definition, with torch's own gradient."""
    matrices = Matrices()
    teacher, embedding = torch.from_numpy(matrices.output[D2T]), torch.from_numpy(matrices.embedding)
    total, means = torch.zeros(()), []
    for head in range(N_HEADS):
        n = n_later if head and n_later else len(D2T)
        losses = []
        for run in range(len(batch.tokens)):
            for j in range(RUN):
                if not batch.valid[run, j + 1 + head]:
                    continue
                g = torch.from_numpy(batch.hidden[run].astype(np.float32))
                tokens = batch.tokens[run]
                u = torch.cat([g[j], *(embedding[tokens[j + i]] for i in range(head + 1))])
                first = module.first[head]
                sums = first.weight @ (u * module.scale[: len(u)]) + first.bias
                x = sums[H:] + torch.nn.functional.silu(sums[:H])
                for block in module.later[head]:
                    x = x + torch.nn.functional.silu(block.weight @ x + block.bias)
                log_q = torch.log_softmax(module.output[:n] @ x, dim=0)
                p = torch.softmax(teacher[:n] @ g[j + 1 + head], dim=0)
                loss = -0.7 * (p * log_q).sum()
                row = np.flatnonzero(tokens[j + 1 + head] == D2T[:n])
                if len(row):
                    loss = loss - 0.3 * log_q[row[0]]
                losses.append(loss)
        mean = torch.stack(losses).mean()
        means.append(float(mean.detach()))
        total = total + mean
    return total, means


@pytest.mark.parametrize(("max_logits", "n_later"), [(1, 0), (700, 0), (1 << 22, 0), (700, 5)])
def test_the_loss_and_its_gradients_are_those_of_the_definition(monkeypatch, max_logits, n_later):
    from localspec.train import loss as losses

    monkeypatch.setattr(losses, "MAX_LOGITS", max_logits)
    module, feeder, batch = _module(), _feeder(), _batch()
    naive, naive_means = _naive_loss(module, batch, n_later)
    naive.backward()
    expected = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    u, targets = feeder.feed(batch)
    loss, means = losses.distillation_loss(module(u), module.output, feeder.teacher, targets, n_later)
    loss.backward()
    assert means.tolist() == pytest.approx(naive_means, rel=1e-5)
    assert float(loss.detach()) == pytest.approx(float(naive.detach()), rel=1e-5)
    for parameter, gradient in zip(module.parameters(), expected, strict=True):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-3, atol=1e-6)


def test_bfloat16_stays_near_float32():
    from localspec.train.loss import distillation_loss

    module, batch = _module(), _batch()
    found = []
    for kind in (torch.float32, torch.bfloat16):
        feeder = _feeder(kind)
        module.zero_grad()
        u, targets = feeder.feed(batch)
        loss, _ = distillation_loss(module(u), module.output, feeder.teacher, targets)
        loss.backward()
        found.append((float(loss.detach()), module.first[1].weight.grad.clone()))
    assert found[1][0] == pytest.approx(found[0][0], rel=0.02)
    assert (found[1][1] - found[0][1]).norm() < 0.05 * found[0][1].norm()


def test_accuracy_counts_tokens_that_cannot_be_drafted_as_misses():
    from localspec.train.accuracy import measure

    module, feeder = _module(), _feeder()
    runs = Runs([shard([50, 9, 2])], [False], False, N_HEADS)
    found = measure(module, feeder, runs)
    batch = runs.batch(np.arange(len(runs)))
    u, _ = feeder.feed(batch)
    outputs = module(u)
    for head in range(N_HEADS):
        ranked = np.argsort(-(outputs[head] @ module.output.T).detach().numpy(), axis=1)
        valid = batch.valid[:, 1 + head : 1 + head + RUN].ravel()
        labels = batch.tokens[:, 1 + head : 1 + head + RUN].ravel()
        hits = (D2T[ranked] == labels[:, None])[valid]
        assert found.top1[head] == pytest.approx(hits[:, 0].mean())
        assert found.top4[head] == pytest.approx(hits[:, :4].any(axis=1).mean())
    assert found.n == runs.n_positions
    assert found.text().startswith("top-1 .")
