"""Weights that are rounded while they are trained are those of the file."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.errors import UsageError
from localspec.heads.file import WEIGHT_TYPES, read_heads, write_heads

torch = pytest.importorskip("torch")

H, V, N_HEADS = 64, 96, 2


@pytest.mark.parametrize("weight_type", ["q4_0", "q8_0", "q4_q8"])
@pytest.mark.parametrize("arch", ["hydra-mlp", "medusa"])
def test_rounded_heads_say_what_the_stored_ones_say(tmp_path, weight_type, arch):
    from localspec.train.module import HeadsModule, trained_spec
    from localspec.train.start import Start

    torch.manual_seed(4)
    spec = trained_spec(
        H, V, n_heads=N_HEADS, n_layers=2, n_draft_vocab=V - 1, base_name="b", fingerprint="0" * 16, arch=arch
    )
    scale = torch.rand((N_HEADS + 1) * H) + 0.5
    rounded = HeadsModule(spec, torch.randn(V - 1, H), scale, weight_type)
    with torch.no_grad():
        for parameter in rounded.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    d2t = np.arange(V - 1, dtype=np.int32)
    write_heads(tmp_path / "heads.gguf", rounded.to_heads(d2t), weight_type)
    stored = HeadsModule(spec, torch.randn(V - 1, H), scale)
    Start(tmp_path / "heads.gguf").apply(stored, d2t)
    u = torch.randn(5, (N_HEADS + 1) * H)
    for ours, theirs in zip(rounded(u), stored(u), strict=True):
        assert torch.allclose(ours @ rounded.vocabulary().T, theirs @ stored.vocabulary().T, atol=1e-3)
    # without rounding they say something else, so there was something to compare
    plain = HeadsModule(spec, torch.randn(V - 1, H), scale)
    plain.load_state_dict(rounded.state_dict())
    assert not torch.allclose(plain(u)[0] @ plain.output.T, stored(u)[0] @ stored.output.T, atol=1e-3)
    assert read_heads(tmp_path / "heads.gguf").spec.arch == arch


def test_gradients_pass_and_small_changes_add_up():
    from localspec.train.rounding import roundings

    rounding, _ = roundings("q4_0", 32)
    weights = torch.nn.Parameter(torch.randn(2, 32))
    (rounding(weights) * torch.arange(64.0).reshape(2, 32)).sum().backward()
    assert torch.equal(weights.grad, torch.arange(64.0).reshape(2, 32))


def test_a_block_of_zeros_stays_zero():
    from localspec.train.rounding import q4_0, q8_0

    assert not q4_0(torch.zeros(2, 32)).any() and not q8_0(torch.zeros(2, 32)).any()


@pytest.mark.parametrize("weight_type", sorted(set(WEIGHT_TYPES) - {"q4_0", "q8_0", "q4_q8"}))
def test_types_without_a_rounding_are_refused(weight_type):
    from localspec.train.rounding import roundings

    with pytest.raises(UsageError, match=f"--type {weight_type}"):
        roundings(weight_type, 64)
    with pytest.raises(UsageError, match="leave out --rounded"):
        roundings("q4_0", 40)
