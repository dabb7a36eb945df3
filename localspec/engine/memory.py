"""How much memory a context takes, estimated before it is made: K/V cache, output rows and the compute buffer."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.engine.params import CACHE_TYPES, ContextParams
from localspec.errors import EngineError

#: rows of logits that a verification pass may ask for
MAX_ROWS = 256
_F32 = 4
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model that the estimate needs; `d_k` and `d_v` are those of one head, `n_ff` 0 if unknown."""

    n_vocab: int
    n_embd: int
    n_layer: int
    n_head: int
    n_head_kv: int
    d_k: int
    d_v: int
    n_ff: int


def kv_bytes_per_token(shape: Shape, params: ContextParams) -> int:
    """K/V cache bytes of one position over all layers; an upper bound where layers differ."""
    k, v = CACHE_TYPES[params.type_k][1], CACHE_TYPES[params.type_v][1]
    return int(shape.n_head_kv * (shape.d_k * k + shape.d_v * v) * shape.n_layer)


def _scratch_per_token(shape: Shape, params: ContextParams) -> int:
    """Bytes of the compute buffer for one cell: the mask, and the scores where flash attention does not avoid them."""
    cell = 2 if params.flash_attn else _F32 * (1 + 2 * shape.n_head)
    return min(params.n_ubatch, params.n_batch) * cell


def context_bytes(shape: Shape, params: ContextParams, n_ctx: int) -> int:
    """Estimated bytes of a context of `n_ctx` cells.

    The parts of a layer and the logits of all rows share the compute buffer, as they are never needed together.
    """
    rows = min(MAX_ROWS, params.n_batch)
    logits = rows * (shape.n_vocab + 3 * shape.n_embd) * _F32
    tokens = min(params.n_ubatch, params.n_batch)
    layer = tokens * (4 * shape.n_embd + 2 * shape.n_ff) * _F32 + _scratch_per_token(shape, params) * n_ctx
    output = rows * shape.n_vocab * _F32
    return kv_bytes_per_token(shape, params) * n_ctx + max(logits, layer) + output


def refuse_oversized(shape: Shape, params: ContextParams, n_ctx: int, available: int) -> None:
    """Raise `EngineError`, with what would fit, when a context of `n_ctx` cells takes more than `available` bytes."""
    need = context_bytes(shape, params, n_ctx)
    if need <= available:
        return
    cache = kv_bytes_per_token(shape, params) * n_ctx
    per_token = kv_bytes_per_token(shape, params) + _scratch_per_token(shape, params)
    fits = (available - context_bytes(shape, params, 0)) // max(1, per_token) // 256 * 256
    raise EngineError(
        f"n_ctx={n_ctx} needs about {need / _GIB:.1f} GiB, of which {cache / _GIB:.1f} for its K/V cache; "
        f"{available / _GIB:.1f} GiB are free",
        f"about n_ctx={fits} would fit" if fits > 0 else "free some memory, or take a smaller model",
    )
