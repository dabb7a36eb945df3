"""ctypes declarations of the symbols that the patched library adds (`include/llama-tree.h`,
`include/llama-row-kernels.h`, `include/llama-drafter.h` and `include/llama-heads.h` of ggml_patches).

`library()` is the handle that llama-cpp-python has loaded, with the extra functions declared; None when the installed
llama-cpp-python is not patched or speaks another version of the interface.
"""

from __future__ import annotations

import ctypes
import logging
from functools import cache
from typing import Any

logger = logging.getLogger(__name__)

ABI = 8
MAX_NODES = 256

OK, FULL, ABORTED = 0, 1, 2
INVALID, UNSUPPORTED, FAILED = -1, -2, -3

_i32 = ctypes.c_int32
_f32_p = ctypes.POINTER(ctypes.c_float)
_ctx = ctypes.c_void_p
#: arrays go in as plain addresses (`array.ctypes.data`): the cheapest way, and these calls are made every step
_array = ctypes.c_void_p

_f64_p = ctypes.POINTER(ctypes.c_double)
_i64 = ctypes.c_int64
_f64 = ctypes.c_double
_bool = ctypes.c_bool
_drafter = ctypes.c_void_p
_corpus = ctypes.c_void_p
_pool = ctypes.c_void_p
_model = ctypes.c_void_p
_heads = ctypes.c_void_p
_plan = ctypes.c_void_p

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "llama_row_kernels_enabled": (_bool, []),
    "llama_row_kernels_set_enabled": (_bool, [_bool]),
    "llama_row_kernels_supports_type": (_bool, [ctypes.c_int]),
    "llama_row_kernels_supports_attention": (_bool, []),
    "llama_cpu_peaks": (_bool, [_i32, _f64_p, _f64_p]),
    "llama_tree_unsupported": (ctypes.c_char_p, [_ctx]),
    "llama_tree_partition": (_i32, [_ctx]),
    "llama_tree_copy_prefix": (_i32, [_ctx, _i32, _i32, _i32]),
    "llama_tree_begin": (_i32, [_ctx, _i32]),
    "llama_tree_decode": (_i32, [_ctx, _i32, _array, _array, _array, _array]),
    "llama_tree_n_nodes": (_i32, [_ctx, _i32]),
    "llama_tree_accept": (_i32, [_ctx, _i32, _array, _i32]),
    "llama_tree_drop": (None, [_ctx, _i32]),
    "llama_tree_logits": (_f32_p, [_ctx, _i32]),
    "llama_tree_candidates": (_i32, [_ctx, _i32, _array]),
    "llama_tree_hidden": (_array, [_ctx, _i32]),
    "llama_tree_stats": (_i32, [_ctx, _i32, _array, _i32, _array, _array, _array, _array]),
    "llama_tree_cells": (_i32, [_ctx, _i32, _array, _i32]),
    "llama_tree_n_graph_builds": (_i64, [_ctx]),
    "llama_tree_set_stats": (_i32, [_ctx, _i32]),
    "llama_tree_mask_on_device": (ctypes.c_bool, [_ctx]),
    "llama_tree_stats_on_device": (ctypes.c_bool, [_ctx]),
    "llama_tree_n_bytes_fetched": (_i64, [_ctx]),
    "llama_tree_n_bytes_sent": (_i64, [_ctx]),
    "llama_drafter_corpus_init": (_corpus, [_array, _i32]),
    "llama_drafter_corpus_free": (None, [_corpus]),
    "llama_drafter_corpus_n_bytes": (_i64, [_corpus]),
    "llama_drafter_pool_init": (_pool, [_corpus, _i64, _array, _i32, _array, _i32, _f64, _f64]),
    "llama_drafter_pool_clear": (None, [_pool]),
    "llama_drafter_pool_free": (None, [_pool]),
    "llama_drafter_pool_size": (_i64, [_pool]),
    "llama_drafter_pool_n_bytes": (_i64, [_pool]),
    "llama_drafter_init": (_drafter, [_pool, _i32, _i32]),
    "llama_drafter_reset": (None, [_drafter]),
    "llama_drafter_free": (None, [_drafter]),
    "llama_drafter_n_text": (_i32, [_drafter]),
    "llama_drafter_n_bytes": (_i64, [_drafter]),
    "llama_drafter_extend": (_i32, [_drafter, _array, _i32]),
    "llama_drafter_propose": (_i32, [_drafter, _i32, _f64, _array, _array, _array]),
    "llama_drafter_learn": (
        _i32,
        [_drafter, _i32, _array, _array, _array, _array, _array, _array, _i32, _array, _i32],
    ),
    "llama_heads_load": (_heads, [_model, ctypes.c_char_p, ctypes.c_uint32]),
    "llama_heads_free": (None, [_heads]),
    "llama_heads_n_heads": (_i32, [_heads]),
    "llama_heads_n_bytes": (_i64, [_heads]),
    "llama_heads_device": (ctypes.c_char_p, [_heads]),
    "llama_heads_plan_init": (_plan, [_heads, _i32, _array, _array]),
    "llama_heads_plan_free": (None, [_plan]),
    "llama_heads_plan_n_bytes_sent": (_i64, [_plan]),
    "llama_heads_plan_n_bytes_fetched": (_i64, [_plan]),
    "llama_heads_n_splits": (_i32, [_heads, _i32, _array, _array]),
    "llama_heads_draft": (_i32, [_plan, _ctx, _array, _i32, ctypes.c_float, _array, _array, _array, _array]),
}


@cache
def library() -> Any | None:
    """The patched library, or None."""
    from llama_cpp import llama_cpp

    lib = llama_cpp._lib
    try:
        abi_function = lib.llama_localspec_abi
    except AttributeError:
        return None
    abi_function.restype, abi_function.argtypes = _i32, []
    abi = abi_function()
    if abi != ABI:
        logger.warning(
            "the installed llama-cpp-python has localspec interface %d, this version needs %d: running in stock mode;"
            " reinstall ggml_patches of the same release",
            abi,
            ABI,
        )
        return None
    for name, (restype, argtypes) in _SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = restype, argtypes
    return lib
