"""Where a model runs, and so what its step cost curve belongs to."""

from __future__ import annotations

from localspec import machine
from localspec.calibrate.store import CurveKey
from localspec.engine import kernels
from localspec.engine.model import Model
from localspec.engine.params import ContextParams


def layers_on_gpu(model: Model, n_gpu_layers: int) -> int:
    """Layers of `model` that run on a GPU when `n_gpu_layers` were asked for (-1: all), the output layer counted as
    one; 0 without a GPU."""
    most = model.n_layer + 1 if machine.gpus() else 0
    return most if n_gpu_layers < 0 else min(n_gpu_layers, most)


def device_name(n_on_gpu: int) -> str:
    """Where a model with so many layers on the GPU runs, for people."""
    return ", ".join(machine.gpus()) if n_on_gpu else machine.cpu_name()


def curve_key(model: Model, params: ContextParams, mode: str, n_on_gpu: int) -> CurveKey:
    """What the cost curve of `model` belongs to in a context of `params` and `mode`."""
    n_threads, n_threads_batch = params.resolve_threads()
    attention = "flash attention" if params.flash_attn else "plain attention"
    return CurveKey(
        model=model.fingerprint,
        library=machine.library_id(),
        device=device_name(n_on_gpu),
        n_threads=n_threads,
        mode=mode,
        setup=f"k {params.type_k}, v {params.type_v}, {attention}, {n_threads_batch} batch threads, "
        f"{n_on_gpu} layers on the GPU" + ("" if kernels.enabled() else ", stock kernels"),
    )
