"""Where and in which type torch computes."""

from __future__ import annotations

from time import perf_counter

import torch

from localspec.errors import UsageError

DEVICES = ("auto", "cpu", "cuda")
#: types that training computes in
KINDS = (torch.float32, torch.bfloat16)
#: how much faster bfloat16 must be to be taken: it rounds more
WORTH_IT = 1.2


def choose_device(name: str) -> torch.device:
    """The device of this name; "auto" is CUDA where there is one. Raises `UsageError`."""
    if name not in DEVICES:
        raise UsageError(f"the device {name!r} is not known", f"known are {', '.join(DEVICES)}")
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise UsageError("torch finds no CUDA device", "--device cpu, or install torch with CUDA")
    return torch.device("cuda" if has_cuda and name != "cpu" else "cpu")


def choose_kind(device: torch.device) -> torch.dtype:
    """bfloat16 where it is faster than float32 by WORTH_IT, by measurement; weights stay float32 in any case."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    seconds = {kind: _seconds(kind) for kind in KINDS}
    faster = seconds[torch.bfloat16] * WORTH_IT < seconds[torch.float32]
    return torch.bfloat16 if faster else torch.float32


def _seconds(kind: torch.dtype) -> float:
    """The best of a few products of the size that training makes."""
    a, b = torch.ones(512, 512, dtype=kind), torch.ones(512, 4096, dtype=kind)
    times = []
    for _ in range(6):
        began = perf_counter()
        torch.mm(a, b)
        times.append(perf_counter() - began)
    return min(times)
