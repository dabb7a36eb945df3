"""The memory that a served model takes, told before it is loaded, and what this process takes now.

Counted is what becomes resident in use. That is less than what is allocated: of the rows of logits that a context may
be asked for, steps touch few.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from localspec.engine import bindings
from localspec.engine.memory import Shape, context_bytes, kv_bytes_per_token
from localspec.engine.model import Model
from localspec.engine.params import ContextParams
from localspec.engine.weightless import open_weightless
from localspec.errors import ModelError
from localspec.gguf_check import check_gguf
from localspec.heads.choose import shipped_for
from localspec.heads.file import read_spec
from localspec.machine import devices
from localspec.methods.ptd.corpus import corpus_text
from localspec.methods.ptd.native import BYTES_A_TOKEN, BYTES_AN_ENTRY
from localspec.methods.ptd.recycling import DEFAULT_ENTRIES
from localspec.methods.registry import MAX_TREE_NODES
from localspec.pairs.memory import judged_memory, on_gpu
from localspec.serving.embedding import LEAST_CELLS, ROWS, SHARED_CELLS, SHARED_ROWS, SHARED_TEXTS

_F32 = 4
#: bytes that the library's tables take for a token of the vocabulary, as measured
_BYTES_A_WORD = 400
#: heads stand in memory as their file has them, and once more as the kernels want them
_AS_LOADED = 2
#: the library keeps the graph of each size of a step that it has met, with buffers of so many bytes together
_GRAPH_BUFFERS = 256 * 2**20
#: bytes that a graph takes for each of its nodes, as measured, and its nodes, as the library sets them
_BYTES_A_NODE, _LEAST_NODES, _NODES_A_TENSOR = 1000, 1024, 8
#: sizes of the steps of a draft model, about
_DRAFT_SIZES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes by what they are for. `graphs` are what is kept for steps of each size, `drafts` a draft model with its
    contexts, `learned` what drafters know of language. They and `embeddings` fill up with use."""

    weights: int
    vocabulary: int
    context: int
    graphs: int = 0
    heads: int = 0
    learned: int = 0
    drafts: int = 0
    embeddings: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, part.name) for part in fields(self))


def footprint(
    path: Path,
    params: ContextParams,
    *,
    heads: Sequence[Path] = (),
    draft: tuple[Path, int | None] | None = None,
    embeddings: bool = True,
    speculation: bool = True,
    n_gpu_layers: int = 0,
) -> Footprint:
    """What the model in `path` takes with a context of `params`; `draft` is a second model and its context size.

    Without `speculation` a step has one token for each sequence at most. Heads lie where the output layer does, which
    is a GPU's memory if any layers go to one. No weights are read. Raises `ModelError` for
    files that cannot be used.
    """
    with open_weightless(path, encoder=True) as model:
        embedding = _embedding_bytes(model, params) if embeddings else 0
        weights, words = model.size_bytes, model.n_vocab * _BYTES_A_WORD
        if model.is_encoder:
            return Footprint(weights=weights, vocabulary=words, context=0, embeddings=embedding)
        n_slots = params.n_seq_max
        n_ctx = params.resolve_n_ctx(model.n_ctx_train)
        files = {*heads} or {*shipped_for(path, model.n_embd, model.n_vocab).values()}
        return Footprint(
            weights=weights,
            vocabulary=words,
            context=_context_bytes(model, params, n_ctx),
            graphs=_graph_bytes(model, MAX_TREE_NODES if speculation else n_slots),
            heads=sum(_heads_bytes(file, path, on_gpu(n_gpu_layers)) for file in files if file.is_file()),
            learned=len(model.tokenize(corpus_text())) * BYTES_A_TOKEN + DEFAULT_ENTRIES * BYTES_AN_ENTRY,
            drafts=0 if draft is None else _draft_bytes(*draft, params, n_ctx // n_slots),
            embeddings=embedding,
        )


def _context_bytes(model: Model, params: ContextParams, n_ctx: int) -> int:
    """A context in use; 0 for a model whose state has one size, and that a small one."""
    if model.is_recurrent or model.is_hybrid:
        return 0
    shape = model.shape
    if params.mode == "stock" or bindings.library() is None:
        return context_bytes(shape, params, n_ctx)
    tokens = min(params.n_ubatch, params.n_batch)
    mask = tokens * n_ctx * (2 if params.flash_attn else _F32 * (1 + 2 * shape.n_head))
    return kv_bytes_per_token(shape, params) * n_ctx + _layer_bytes(shape, tokens) + mask


def _graph_bytes(model: Model, n_sizes: int) -> int:
    """The graphs of steps of 1 to `n_sizes` tokens."""
    if bindings.library() is None:
        return 0
    n_nodes = max(_LEAST_NODES, _NODES_A_TENSOR * check_gguf(model.path).n_tensors)
    buffers = n_sizes * (n_sizes + 1) // 2 * (model.n_vocab * _F32 + _layer_bytes(model.shape, 1))
    return n_sizes * n_nodes * _BYTES_A_NODE + min(buffers, _GRAPH_BUFFERS)


def _heads_bytes(file: Path, model: Path, on_device: bool) -> int:
    """Heads in memory. On a device grounded ones have the embeddings of the tokens that they draft beside them."""
    size = file.stat().st_size
    if not on_device:
        return _AS_LOADED * size
    with contextlib.suppress(ModelError):  # heads that cannot be used are warned of elsewhere
        spec = read_spec(file)
        table = check_gguf(model).tensors.get("token_embd.weight")
        if spec.grounded and table is not None:
            size += len(table.at) * (spec.n_draft_vocab or spec.n_vocab) // spec.n_vocab
    return size


def _layer_bytes(shape: Shape, n_tokens: int) -> int:
    return n_tokens * (4 * shape.n_embd + 2 * shape.n_ff) * _F32


def _draft_bytes(path: Path, n_ctx: int | None, params: ContextParams, n_target: int) -> int:
    """A draft model, with a context for each slot."""
    with open_weightless(path) as model:
        n_ctx = min(n_ctx or n_target, model.n_ctx_train)
        context = _context_bytes(model, replace(params, n_seq_max=1), n_ctx)
        own = model.size_bytes + model.n_vocab * _BYTES_A_WORD
        return own + params.n_seq_max * (context + _graph_bytes(model, _DRAFT_SIZES))


def _embedding_bytes(model: Model, params: ContextParams) -> int:
    """Both contexts for embeddings, the one for long texts as it is first made. Every row has logits, twice."""
    shape = model.shape
    a_cell, a_row = kv_bytes_per_token(shape, params), 2 * shape.n_vocab * _F32
    if model.is_encoder:
        n_ctx = min(params.resolve_n_ctx(model.n_ctx_train), model.n_ctx_train)
        return n_ctx * shape.n_vocab * _F32 + _layer_bytes(shape, n_ctx)
    cells = SHARED_TEXTS * SHARED_CELLS + LEAST_CELLS
    return cells * a_cell + (SHARED_ROWS + ROWS) * a_row + _layer_bytes(shape, SHARED_ROWS + ROWS)


def free_memory(n_gpu_layers: int = -1) -> int | None:
    """Bytes that are free for a model: of the GPUs where all layers go there, else of this machine; None where that
    cannot be told."""
    free = judged_memory(n_gpu_layers)
    if free is None and n_gpu_layers < 0:
        free = sum(device.memory_free for device in devices() if device.name not in ("CPU", "BLAS")) or None
    return free


def used_memory() -> int | None:
    """Bytes of memory that this process takes; None where the system does not say."""
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None
