// ggml-tree-kernels.h on its own: every thread of a block runs a phase, then every thread the next. TREE_THREADS: threads of a block

#include "device.h"

#include "ggml-tree-kernels.h"

#include <vector>

#ifndef TREE_THREADS
#define TREE_THREADS TREE_STATS_MAX_THREADS
#endif

static bool is_multiple_of_16(const void * address) {
    return (uintptr_t) address % 16 == 0;
}

void device_tree_mask(
        const mask_shape & shape, const int32_t * cells, const int32_t * tokens, const int32_t * pos, void * dst) {
    tree_mask_op op;
    op.cells    = cells;
    op.tokens   = tokens;
    op.pos      = pos;
    op.dst      = (char *) dst;
    op.n_kv     = shape.n_kv;
    op.n_tokens = shape.n_tokens;
    op.n_words  = shape.n_words;
    op.window   = shape.window;
    op.n_window = shape.n_window;
    op.is_f16   = shape.is_f16;
    op.aligned  = shape.n_kv % TREE_MASK_CELLS == 0 && is_multiple_of_16(cells) && is_multiple_of_16(pos) && is_multiple_of_16(dst);

    for (int32_t iy = 0; iy*TREE_MASK_TOKENS < shape.n_tokens; ++iy) {
        for (int32_t ix = 0; ix*TREE_MASK_CELLS < shape.n_kv + 64; ++ix) { // a grid is larger than the mask
            tree_mask(op, ix, iy);
        }
    }
}

void device_topk_stats(const float * x, size_t nb, int32_t n, int32_t n_rows, int32_t k, float * dst) {
    std::vector<tree_stats_shared> shared(1);

    for (int32_t i = 0; i < n_rows; ++i) {
        const char *         address = (const char *) x + i*nb;
        const tree_stats_row row     = tree_stats_row_init((const uint32_t *) address, (uint32_t *) dst + i*(2*k + 2),
            (int32_t) ((uintptr_t) address % 16), n, k, TREE_THREADS);

        memset(shared.data(), 0xaa, sizeof(tree_stats_shared)); // a device's memory has anything in it

#define PHASE(f) for (int32_t tid = 0; tid < TREE_THREADS; ++tid) { f(row, shared.data(), tid); }
        TREE_STATS_PHASES(PHASE, row, shared.data())
#undef PHASE
    }
}
