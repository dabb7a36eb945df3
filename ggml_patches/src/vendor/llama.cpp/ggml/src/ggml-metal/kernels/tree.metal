#include "common.h"
#include "ggml-tree-kernels.h"

static_assert(TREE_MASK_CELLS   == OP_TREE_MASK_NCPT, "cells for each thread");
static_assert(TREE_MASK_TOKENS  == OP_TREE_MASK_NTPT, "tokens for each thread");
static_assert(TREE_STATS_GROUPS == OP_TOPK_STATS_NTH_MIN && TREE_STATS_MAX_THREADS == OP_TOPK_STATS_NTH_MAX, "threads of a threadgroup");
static_assert(sizeof(tree_stats_shared) <= OP_TOPK_STATS_SMEM, "threadgroup memory");

kernel void kernel_tree_mask(
        constant ggml_metal_kargs_tree_mask & args,
        device const char * cells,
        device const char * tokens,
        device const char * pos,
        device       char * dst,
        uint3   tgpig[[threadgroup_position_in_grid]],
        ushort3 tpitg[[thread_position_in_threadgroup]],
        ushort3   ntg[[threads_per_threadgroup]]) {
    tree_mask_op op;
    op.cells    = (device const int32_t *) cells;
    op.tokens   = (device const int32_t *) tokens;
    op.pos      = (device const int32_t *) pos;
    op.dst      = dst;
    op.n_kv     = args.n_kv;
    op.n_tokens = args.n_tokens;
    op.n_words  = args.n_words;
    op.window   = args.window;
    op.n_window = args.n_window;
    op.is_f16   = args.is_f16 != 0;
    op.aligned  = args.aligned != 0;

    tree_mask(op, (int32_t) (tgpig.x*ntg.x + tpitg.x), (int32_t) tgpig.y);
}

kernel void kernel_topk_stats_f32(
        constant ggml_metal_kargs_topk_stats & args,
        device const char * x,
        device       char * dst,
        threadgroup tree_stats_shared * shared [[threadgroup(0)]],
        uint3   tgpig[[threadgroup_position_in_grid]],
        ushort3 tpitg[[thread_position_in_threadgroup]],
        ushort3   ntg[[threads_per_threadgroup]]) {
    const int32_t tid = tpitg.x;
    const int64_t i   = tgpig.x;

    const tree_stats_row row = tree_stats_row_init(
        (device const uint32_t *) (x + i*args.nb_x),
        (device uint32_t *) dst + i*(2*args.k + 2),
        (int32_t) ((args.address + i*args.nb_x) % 16), args.n, args.k, ntg.x);

#define TREE_PHASE(f) f(row, shared, tid); threadgroup_barrier(mem_flags::mem_threadgroup);
    TREE_STATS_PHASES(TREE_PHASE, row, shared)
#undef TREE_PHASE
}
