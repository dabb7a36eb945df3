"""Converted checkpoints against torch modules that load the same checkpoint, key by key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.heads.convert import convert
from localspec.heads.file import read_heads, write_heads
from localspec.heads.prefix import PrefixLayer
from localspec.heads.reference import ReferenceHeads
from localspec.static_tree import StaticTree
from tests.heads.checkpoints import KINDS, N_HEADS, V, embedding, hydra_mlp, hydra_prefix_mlp, publish
from tests.heads.random_heads import hidden_states

torch = pytest.importorskip("torch")

PATHS = ([0], [1], [2], [0, 0], [0, 1], [2, 0], [0, 0, 0], [0, 1, 0], [2, 0, 1], [0, 0, 0, 0], [2, 0, 1, 0])
TOLERANCE = 5e-5


def _model(kind: str, grounded: bool = True) -> Any:
    from tests.heads import torch_models

    if kind == "medusa":
        return torch_models.Medusa().eval()
    return torch_models.Hydra(kind == "hydra-prefix-mlp", grounded).eval()


def _loaded(path: Path, kind: str, grounded: bool = True) -> Any:
    model = _model(kind, grounded)
    model.load_state_dict(torch.load(path, weights_only=True), strict=True)
    return model


def _draft(model: Any, g: Any, root: int, tree: StaticTree) -> tuple[list[int], list[float]]:
    """Node by node, with the whole path joined each time."""
    paths, q = [[root]], [1.0]
    for parent, rank in zip(tree.topology.parents[1:], tree.ranks[1:], strict=True):
        path = paths[parent]
        p = model.logits(len(path) - 1, g, torch.tensor(path)).softmax(-1)
        values, indices = p.topk(rank + 1)
        paths.append([*path, int(indices[rank])])
        q.append(float(values[rank]))
    return [path[-1] for path in paths], q


def _agrees(heads: Any, model: Any, kind: str) -> None:
    hidden = hidden_states(7)
    g, expected_g = hidden, torch.from_numpy(hidden)
    with torch.no_grad():
        if kind == "hydra-prefix-mlp":
            layer = PrefixLayer(heads)
            g = np.concatenate([layer.append(hidden[:4]), layer.append(hidden[4:])])
            expected_g = model.prefix_embeding_layer(expected_g)
            np.testing.assert_allclose(g, expected_g.numpy(), atol=TOLERANCE)
        embed = embedding() if kind == "medusa" else model.input_embed_fn.weight.numpy()
        reference = ReferenceHeads(heads, embed)
        paths = np.random.default_rng(3).integers(0, V, (len(hidden), N_HEADS))
        for head in range(N_HEADS):
            ours = reference.logits(head, g, paths[:, : head + 1])
            for row, path, state in zip(ours, paths, expected_g, strict=True):
                expected = model.logits(head, state, torch.from_numpy(path[: head + 1]))
                np.testing.assert_allclose(row, expected.numpy(), atol=TOLERANCE)
        tree = StaticTree.from_paths(PATHS)
        draft = reference.draft(g[-1], 7, tree)
        tokens, q = _draft(model, expected_g[-1], 7, tree)
    assert draft.tokens.tolist() == tokens
    np.testing.assert_allclose(draft.q, q, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_converted_heads_compute_what_the_published_modules_do(tmp_path, kind):
    folder = publish(tmp_path, kind, "pt")
    heads = convert(folder)
    assert heads.spec.arch == kind
    assert heads.spec.tied_blocks
    model = _loaded(folder / f"{KINDS[kind][2]}.pt", kind)
    _agrees(heads, model, kind)
    # and so does the file that they are kept in
    write_heads(tmp_path / "heads.gguf", heads, "f32")
    _agrees(read_heads(tmp_path / "heads.gguf"), model, kind)


@pytest.mark.parametrize(("kind", "state"), [("hydra-mlp", hydra_mlp), ("hydra-prefix-mlp", hydra_prefix_mlp)])
def test_hydra_heads_that_are_not_grounded(tmp_path, kind, state):
    folder = publish(tmp_path, kind, "pt", state(grounded=False), grounded_heads=False)
    heads = convert(folder)
    assert not heads.spec.grounded
    _agrees(heads, _loaded(folder / "hydra_lm_head.pt", kind, grounded=False), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_keys_are_those_of_the_modules(kind):
    make_state, _, _ = KINDS[kind]
    expected = {key: tuple(value.shape) for key, value in _model(kind).state_dict().items()}
    assert {key: value.shape for key, value in make_state().items()} == expected


@pytest.mark.parametrize("kind", KINDS)
def test_what_torch_saves_with_shared_tensors_and_in_half_precision(tmp_path, kind):
    """As training saves it: aliases share their storage, weights are bfloat16."""
    folder = publish(tmp_path, kind, "pt")
    path = folder / f"{KINDS[kind][2]}.pt"
    model = _loaded(path, kind).to(torch.bfloat16)
    torch.save(model.state_dict(), path)
    heads = convert(folder)
    assert heads.spec.tied_blocks
    _agrees(heads, model.float(), kind)


def test_safetensors_without_the_aliases(tmp_path):
    """`safetensors.torch.save_model` keeps one name of a shared tensor."""
    save = pytest.importorskip("safetensors.torch")
    folder = publish(tmp_path, "hydra-prefix-mlp", "pt")
    model = _loaded(folder / "hydra_lm_head.pt", "hydra-prefix-mlp")
    (folder / "hydra_lm_head.pt").unlink()
    save.save_model(model, str(folder / "hydra_lm_head.safetensors"))
    heads = convert(folder)
    assert heads.spec.tied_blocks
    _agrees(heads, model, "hydra-prefix-mlp")


def test_an_old_file_of_torch_is_read(tmp_path):
    folder = publish(tmp_path, "medusa", "pt")
    path = folder / "medusa_lm_head.pt"
    model = _loaded(path, "medusa")
    torch.save(model.state_dict(), path, _use_new_zipfile_serialization=False)
    _agrees(convert(folder), model, "medusa")
