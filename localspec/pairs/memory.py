"""How much memory a target and its draft model take together, told before either is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace

from llama_cpp import llama_cpp as L

from localspec.engine.memory import Shape, context_bytes
from localspec.engine.model import Model, init_backend
from localspec.engine.params import ContextParams, available_memory
from localspec.errors import EngineError

_GIB = 2**30
#: the library makes contexts in steps of so many cells
_STEP = 256


@dataclass(frozen=True, slots=True)
class Need:
    """What a model needs: `weights` bytes and a context of `n_ctx` cells made with `params`.

    All weights count. They are mapped from their file, so the system could let go of them, but every step reads them
    all: what does not stay in memory is read from the disk again with every token. And the row kernels keep theirs in a
    layout of their own, of the same size, that cannot be let go of. `shape` is None for models whose contexts cannot
    be estimated (recurrent and hybrid ones); those count their weights alone.
    """

    name: str
    weights: int
    shape: Shape | None
    params: ContextParams
    n_ctx: int

    @classmethod
    def of(cls, model: Model, params: ContextParams) -> Need:
        """The need of an open model; its weights need not be there."""
        state = model.is_recurrent or model.is_hybrid
        shape = None if state else model.shape
        return cls(model.path.name, model.size_bytes, shape, params, params.resolve_n_ctx(model.n_ctx_train))

    def context(self, most: int | None = None) -> int:
        """Bytes of the context, with at most `most` cells."""
        n_ctx = self.n_ctx if most is None else min(self.n_ctx, most)
        return 0 if self.shape is None else context_bytes(self.shape, self.params, n_ctx)

    def total(self, most: int | None = None) -> int:
        """Bytes of weights and context, with at most `most` cells."""
        return self.weights + self.context(most)


def check_memory(
    target: Model, target_params: ContextParams, draft: Model, draft_params: ContextParams, n_gpu_layers: int = -1
) -> None:
    """Raise `EngineError`, with what each part takes and what would fit, when the memory does not suffice for both.
    Without a size in `draft_params` the draft's context is as large as the target's.

    As with one model, only memory of the host is judged: on a GPU (`n_gpu_layers` other than 0, and a build that has
    one) an allocation that is too large fails properly. The models need no weights: see `open_weightless`.
    """
    available = judged_memory(n_gpu_layers)
    if available is None:
        return
    ours, theirs = Need.of(target, target_params), Need.of(draft, draft_params)
    # a draft model is not used beyond what it was trained for, however long the target's texts get, nor beyond them
    n_ctx = min(draft_params.n_ctx or ours.n_ctx, draft.n_ctx_train)
    refuse_oversized(ours, replace(theirs, n_ctx=n_ctx), available)


def judged_memory(n_gpu_layers: int = -1) -> int | None:
    """Bytes that models may take; None where that cannot be told, or is left to a GPU."""
    return None if on_gpu(n_gpu_layers) else available_memory()


def on_gpu(n_gpu_layers: int = -1) -> bool:
    """Whether layers go to a GPU, the output layer before all others."""
    init_backend()
    return n_gpu_layers != 0 and bool(L.llama_supports_gpu_offload())


def refuse_oversized(target: Need, draft: Need, available: int) -> None:
    """Raise `EngineError` when `target` and `draft` together need more than `available` bytes."""
    need = target.total() + draft.total()
    if need <= available:
        return
    ways = []
    if fits := _largest_n_ctx(target, draft, available):
        ways.append(f"about n_ctx={fits} would fit")
    if target.total() <= available:
        ways.append("the target fits without a draft model")
    raise EngineError(
        f"{target.name} with the draft model {draft.name} needs about {_gib(need)}: {_parts(target)}; for the draft "
        f"{_parts(draft)}; {_gib(available)} are free",
        ", or ".join(ways) or "free some memory, or take smaller models",
    )


def _largest_n_ctx(target: Need, draft: Need, available: int) -> int:
    """Most cells, a multiple of 256, with which both fit; 0 if there are none."""
    low, high = 0, max(target.n_ctx, draft.n_ctx) // _STEP  # `low` fits, or is 0
    while low < high:
        middle = (low + high + 1) // 2
        most = middle * _STEP
        if target.total(most) + draft.total(most) <= available:
            low = middle
        else:
            high = middle - 1
    return low * _STEP


def _parts(need: Need) -> str:
    return f"{_gib(need.weights)} of weights and {_gib(need.context())} for n_ctx={need.n_ctx}"


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
