"""Weights as a file of quantised heads will have them, while they are trained.

Rounding to four bits costs heads some of what they know. Trained with rounded weights, and with gradients that pass as
if nothing had been rounded (a straight-through estimator, Bengio et al. 2013), they get most of it back.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from localspec.errors import UsageError
from localspec.heads.file import FIRST_BLOCKS

Rounding = Callable[[Tensor], Tensor]
#: weights that share a factor in ggml's Q4_0 and Q8_0
BLOCK = 32


def _factor(values: Tensor) -> Tensor:
    """As it is stored, in half precision."""
    return values.half().float()


def q4_0(weights: Tensor) -> Tensor:
    """[rows, columns] as ggml's Q4_0 keeps it: sixteen steps, of which the lowest is the largest element of a block."""
    blocks = weights.reshape(-1, BLOCK)
    largest = blocks.gather(1, blocks.abs().argmax(dim=1, keepdim=True))
    step = largest / -8
    inverse = torch.where(step == 0, 0.0, 1 / step)
    levels = (blocks * inverse + 8.5).floor_().clamp_(0, 15).sub_(8)
    return (levels * _factor(step)).reshape(weights.shape)


def q8_0(weights: Tensor) -> Tensor:
    """[rows, columns] as ggml's Q8_0 keeps it."""
    blocks = weights.reshape(-1, BLOCK)
    step = blocks.abs().amax(dim=1, keepdim=True) / 127
    inverse = torch.where(step == 0, 0.0, 1 / step)
    return ((blocks * inverse).round_() * _factor(step)).reshape(weights.shape)


_KINDS: dict[str, Rounding] = {"Q4_0": q4_0, "Q8_0": q8_0}
_OTHERS = {"q4_0": "Q4_0", "q8_0": "Q8_0", "q4_q8": "Q8_0"}


def roundings(weight_type: str, n_embd: int) -> tuple[Rounding, Rounding]:
    """How matrices of first blocks and all others are rounded for `weight_type`; gradients pass.

    Raises `UsageError` for a type that there is no rounding for.
    """
    if weight_type not in _OTHERS:
        raise UsageError(f"there is no training for weights of --type {weight_type}", f"one of {', '.join(_OTHERS)}")
    if n_embd % BLOCK:
        raise UsageError(f"rows of {n_embd} weights are not rounded to --type {weight_type}", "leave out --rounded")
    other = _OTHERS[weight_type]
    first = FIRST_BLOCKS[weight_type].name if weight_type in FIRST_BLOCKS else other
    return _passing(_KINDS[first]), _passing(_KINDS[other])


def _passing(rounding: Rounding) -> Rounding:
    def rounded(weights: Tensor) -> Tensor:
        with torch.no_grad():
            change = rounding(weights) - weights
        return weights + change

    return rounded
