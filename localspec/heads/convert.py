"""From published checkpoints of Hydra and Medusa heads to `Heads` (papers.md 1.1 and 1.3).

Every key of the state dict is accounted for: what is missing, unknown or of another shape is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from localspec.errors import ModelError
from localspec.heads.checkpoint import HINT, Checkpoint, open_checkpoint
from localspec.heads.prefix_facts import DROPPED, FREQUENCIES, PREFIX_KEYS, prefix_spec
from localspec.heads.published import Layout, first_present, layout_of, plain_blocks, shape_of, tied
from localspec.heads.spec import HYDRA_PREFIX, BaseFacts, HeadSpec, check_base, tensor_shapes
from localspec.heads.tensors import Heads, LazyTensors, blamed_on

UNKNOWN_HINT = "the heads are of another kind, or config.json belongs to other heads"


@dataclass(frozen=True)
class Base:
    """The base model that heads are converted for: its facts, and the metadata of its GGUF."""

    facts: BaseFacts
    metadata: Mapping[str, Any]


def read_base(path: str | Path) -> Base:
    """Load a GGUF and return what heads need to know of it. Raises as `Model.load` does."""
    from localspec.engine.model import Model
    from localspec.gguf_check import check_gguf
    from localspec.heads.base import base_facts

    info = check_gguf(path)
    with Model.load(path, n_gpu_layers=0) as model:
        facts = base_facts(model)
    return Base(facts, info.metadata)


def convert(source: str | Path, base: Base | None = None, licence: str = "") -> Heads:
    """Make `Heads` of a published checkpoint, a folder or the file of its weights; weights are read when asked for.

    With `base` the heads must fit it, and will refuse any other file. Raises `ModelError` for a checkpoint that cannot
    be used, and `UsageError` when a package or a fact is missing.
    """
    checkpoint = open_checkpoint(source)
    layout = layout_of(checkpoint)
    spec = _spec(checkpoint, layout, base, licence)
    keys = _keys(checkpoint, layout, spec)
    _account(checkpoint, layout, spec, keys)
    if base is not None:
        check_base(spec, base.facts)
    array = checkpoint.state.array
    return Heads(spec, LazyTensors({name: partial(array, key) for name, key in keys.items()}))


def _spec(checkpoint: Checkpoint, layout: Layout, base: Base | None, licence: str) -> HeadSpec:
    path, shapes, config = checkpoint.path, checkpoint.state.shapes, checkpoint.config
    blocks = [layout.block(0, 0)] if layout.grounded else plain_blocks(layout, 0)
    n_embd = shape_of(path, shapes, f"{first_present(blocks, shapes)}.weight")[0]
    n_vocab = shape_of(path, shapes, f"{layout.output(0)}.weight")[0]
    has_prefix = layout.arch == HYDRA_PREFIX
    prefix = prefix_spec(checkpoint, n_embd, base.metadata if base else None) if has_prefix else None
    tied_blocks = tied(checkpoint, layout)
    with blamed_on(path):
        return HeadSpec(
            arch=layout.arch,
            n_heads=layout.n_heads,
            n_layers=layout.n_layers,
            n_embd=n_embd,
            n_vocab=n_vocab,
            grounded=layout.grounded,
            tied_blocks=tied_blocks,
            output_bias=f"{layout.output(0)}.bias" in shapes,
            base_name=base.facts.name if base else _text(config.get("base_model_name_or_path")),
            base_fingerprint=base.facts.fingerprint if base else "",
            prefix=prefix,
            licence=licence,
            recipe=f"converted from {path.name}",
        )


def _text(value: object) -> str:
    """A name out of config.json as text that can be written: JSON may hold halves of characters."""
    return str(value or "").encode("utf-8", "replace").decode()


def _keys(checkpoint: Checkpoint, layout: Layout, spec: HeadSpec) -> dict[str, str]:
    """Our name of every tensor -> the key of the checkpoint that holds it."""
    stems: dict[str, str] = {}
    for head in range(spec.n_heads):
        stems[spec.output_name(head)] = layout.output(head)
        if spec.grounded:
            for part in ("l", "r"):
                stems[f"head.{head}.blk.0.{part}"] = layout.block(head, 0, part)
        first = 1 if spec.grounded else 0
        plain = plain_blocks(layout, head)
        if spec.tied_blocks and plain:
            plain = [first_present(plain, checkpoint.state.shapes)]
        for block, key in enumerate(plain, start=first):
            stems[f"head.{head}.blk.{block}.l"] = key
    keys = dict(PREFIX_KEYS) if spec.prefix is not None else {}
    for name in tensor_shapes(spec):
        stem, _, part = name.rpartition(".")
        if stem in stems:
            keys[name] = f"{stems[stem]}.{part}"
    return keys


def _account(checkpoint: Checkpoint, layout: Layout, spec: HeadSpec, keys: Mapping[str, str]) -> None:
    """Every tensor must have its key with its shape, and every key its use. Raises `ModelError`."""
    path, shapes = checkpoint.path, checkpoint.state.shapes
    for name, expected in tensor_shapes(spec).items():
        shape = shapes.get(keys[name])
        if shape is None:
            raise ModelError(f"{path} lacks {keys[name]}", HINT)
        if shape != expected:
            raise ModelError(f"{path}: {keys[name]} has the shape {list(shape)}, not {list(expected)}", UNKNOWN_HINT)
    aliases = {
        f"{key}.{part}"
        for head in range(spec.n_heads)
        for key in plain_blocks(layout, head)
        for part in ("weight", "bias")
    }
    used = aliases.union(keys.values(), DROPPED)
    if spec.prefix is not None:
        used.add(FREQUENCIES)
    for key in shapes:
        if key not in used:
            raise ModelError(f"{path} holds {key}, which {spec.arch} heads of these sizes do not have", UNKNOWN_HINT)
