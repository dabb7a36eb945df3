"""How published state dicts call the tensors of heads, and which of their keys are one tensor (papers.md 1.1, 1.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from localspec.errors import ModelError
from localspec.heads.checkpoint import HINT, Checkpoint
from localspec.heads.spec import HYDRA, HYDRA_PREFIX, MAX_HEADS, MAX_LAYERS, MEDUSA, Shape

CONFIG_HINT = "check the config.json beside the weights"
#: kinds of Hydra heads in config.json that can be converted
HYDRA_ARCHS = {"mlp": HYDRA, "prefix-mlp": HYDRA_PREFIX}


@dataclass(frozen=True, slots=True)
class Layout:
    """Keys of a state dict. `spaced`: a Dropout stands before every block, which shifts the numbers of the blocks, and
    `spaced_output` the same for the vocabulary heads.
    """

    arch: str
    grounded: bool
    n_heads: int
    n_layers: int
    spaced: bool = False
    spaced_output: bool = False

    def block(self, head: int, block: int, part: str = "l") -> str:
        """Key of a block's matrix `l` or `r`, without `.weight`."""
        layer = "linear" if part == "l" else "res_connection"
        if self.arch == MEDUSA:
            return f"{head}.{block}.{layer}"
        return f"hydra_mlp.{head}.{2 * block + 1 if self.spaced else block}.{layer}"

    def output(self, head: int) -> str:
        """Key of a vocabulary head, without `.weight`."""
        if self.arch == MEDUSA:
            return f"{head}.{self.n_layers}"
        return f"hydra_lm_head.{head}" + (".1" if self.spaced_output else "")


def layout_of(checkpoint: Checkpoint) -> Layout:
    """Read kind and sizes from config.json and the keys. Raises `ModelError`."""
    config, shapes = checkpoint.config, checkpoint.state.shapes
    if "hydra_num_heads" in config:
        return _hydra(checkpoint)
    if any(key.startswith(("hydra_mlp.", "hydra_lm_head.")) for key in shapes):
        raise ModelError(f"the config.json of {checkpoint.path} does not say hydra_num_heads", CONFIG_HINT)
    if "medusa_num_heads" in config or "0.0.linear.weight" in shapes:
        return _medusa(checkpoint)
    raise ModelError(
        f"{checkpoint.path} holds neither Hydra nor Medusa heads: its config.json says neither hydra_num_heads nor "
        "medusa_num_heads",
        CONFIG_HINT,
    )


def _hydra(checkpoint: Checkpoint) -> Layout:
    config, shapes = checkpoint.config, checkpoint.state.shapes
    name = config.get("hydra_head_arch", "mlp")
    if name not in HYDRA_ARCHS:
        raise ModelError(
            f"{checkpoint.path}: Hydra heads of the kind {name!r} cannot be converted",
            f"kinds that can be are {', '.join(HYDRA_ARCHS)}",
        )
    arch = HYDRA_ARCHS[name]
    if config.get("hidden_state_offset", 0) != 0:
        raise ModelError(
            f"{checkpoint.path}: the heads read hidden state {config['hidden_state_offset']} from the end, "
            "localspec has the last one only",
            "choose heads with hidden_state_offset 0",
        )
    spaced = "hydra_mlp.0.0.linear.weight" not in shapes and (
        arch == HYDRA_PREFIX or "hydra_mlp.0.1.res_connection.weight" in shapes
    )
    spaced_output = "hydra_lm_head.0.1.weight" in shapes
    seen = any(key.endswith(".res_connection.weight") for key in shapes)
    return Layout(
        arch=arch,
        grounded=config_flag(checkpoint, "grounded_heads", seen),
        n_heads=config_number(checkpoint, "hydra_num_heads", MAX_HEADS),
        n_layers=config_number(checkpoint, "hydra_num_layers", MAX_LAYERS),
        spaced=spaced,
        spaced_output=spaced_output,
    )


_MEDUSA_OUTPUT = re.compile(r"(\d{1,4})\.(\d{1,4})\.weight")


def _medusa(checkpoint: Checkpoint) -> Layout:
    """The keys decide: config.json of published Medusa heads is known to state fewer heads than the file has."""
    shapes = checkpoint.state.shapes
    found = [match for match in map(_MEDUSA_OUTPUT.fullmatch, shapes) if match]
    if not found:
        raise ModelError(
            f"{checkpoint.path} holds no vocabulary heads, and Medusa heads that use the base's are not supported",
            "choose heads with vocabulary heads of their own",
        )
    n_heads = 1 + max(int(match[1]) for match in found)
    n_layers = max(int(match[2]) for match in found)
    if n_heads > MAX_HEADS or not 1 <= n_layers <= MAX_LAYERS:
        raise ModelError(f"{checkpoint.path}: {n_heads} Medusa heads of {n_layers} blocks cannot be converted", HINT)
    for key, number in (("medusa_num_heads", n_heads), ("medusa_num_layers", n_layers)):
        if key not in checkpoint.config:
            continue
        said = config_number(checkpoint, key, max(MAX_HEADS, MAX_LAYERS))
        if said > number or (said < number and key == "medusa_num_layers"):
            raise ModelError(
                f"{checkpoint.path}: its config.json says {key} {said}, the file has {number}", CONFIG_HINT
            )
    return Layout(MEDUSA, grounded=False, n_heads=n_heads, n_layers=n_layers)


def config_number(checkpoint: Checkpoint, key: str, most: int) -> int:
    """A whole number of config.json from 1 to `most`. Raises `ModelError`."""
    value = checkpoint.config.get(key)
    if type(value) is not int or not 1 <= value <= most:
        raise ModelError(
            f"the config.json of {checkpoint.path} says {key} {value!r}, not a number from 1 to {most}", CONFIG_HINT
        )
    return value


def config_flag(checkpoint: Checkpoint, key: str, default: bool) -> bool:
    """A truth value of config.json. Raises `ModelError`."""
    value: Any = checkpoint.config.get(key, default)
    if type(value) is not bool:
        raise ModelError(f"the config.json of {checkpoint.path} says {key} {value!r}, not true or false", CONFIG_HINT)
    return value


def plain_blocks(layout: Layout, head: int) -> list[str]:
    """Keys of the H x H blocks of a head, in order: those that published files share."""
    return [layout.block(head, block) for block in range(1 if layout.grounded else 0, layout.n_layers)]


def tied(checkpoint: Checkpoint, layout: Layout) -> bool:
    """Whether the H x H blocks of every head are one module, as in published files.

    Safetensors may leave aliases out, so one present block is enough. Raises `ModelError` when blocks are missing and
    the others differ.
    """
    different = missing = None
    for head in range(layout.n_heads):
        blocks = plain_blocks(layout, head)
        present = [key for key in blocks if f"{key}.weight" in checkpoint.state.shapes]
        missing = missing or next((key for key in blocks if key not in present), None)
        different = different or next((key for key in present[1:] if not _same(checkpoint, present[0], key)), None)
    if missing is not None and different is not None:
        raise ModelError(f"{checkpoint.path} lacks {missing}.weight, and its blocks are not copies of one", HINT)
    return different is None


def _same(checkpoint: Checkpoint, one: str, other: str) -> bool:
    shapes, array = checkpoint.state.shapes, checkpoint.state.array
    for part in (".weight", ".bias"):
        if shapes.get(one + part) != shapes.get(other + part):
            return False
        if one + part in shapes and not np.array_equal(array(one + part), array(other + part)):
            return False
    return True


def first_present(keys: list[str], shapes: Mapping[str, Shape]) -> str:
    """The first of the keys, without `.weight`, that the state dict has; the first one when it has none."""
    return next((key for key in keys if f"{key}.weight" in shapes), keys[0])


def shape_of(path: Path, shapes: Mapping[str, Shape], key: str) -> Shape:
    """Shape of a matrix. Raises `ModelError` naming the key when it is missing or no matrix."""
    shape = shapes.get(key)
    if shape is None:
        raise ModelError(f"{path} lacks {key}", HINT)
    if len(shape) != 2 or 0 in shape:
        raise ModelError(f"{path}: {key} has the shape {list(shape)}, which is no matrix", HINT)
    return shape
