#include "panel.h"
#include "panel-kernels.h"
#include "panel-packed.h"
#include "panel-simd.h"

#include "ggml-cpu-impl.h"
#include "row-kernels.h"

#include <algorithm>

// support

const panel_family * panel_family_of(enum ggml_type type) {
    if (const panel_family * family = panel_family_block32(type)) {
        return family;
    }
    if (const panel_family * family = panel_family_block256(type)) {
        return family;
    }
    return panel_family_float(type);
}

bool ggml_panel_supports_type(enum ggml_type type) {
    return panel_family_of(type) != nullptr;
}

bool ggml_panel_supports_weights(const struct ggml_tensor * w) {
    if (!ggml_row_kernels_enabled()) {
        return false;
    }
    const panel_family * family = panel_family_of(w->type);
    return family != nullptr && w->ne[2] == 1 && w->ne[3] == 1 && w->ne[0] % family->k_multiple == 0 &&
           w->nb[0] == ggml_type_size(w->type);
}

// Whole pieces of a prompt, where this CPU has faster instructions that round the activations to BF16. Trees are smaller.
static bool panel_leaves_to_bf16(const ggml_tensor * src0, const ggml_tensor * src1) {
#if defined(__AVX512BF16__)
    return src0->type == GGML_TYPE_BF16 && ggml_nrows(src1) >= 64;
#else
    GGML_UNUSED(src0);
    GGML_UNUSED(src1);
    return false;
#endif
}

bool ggml_panel_supports_op(const struct ggml_tensor * dst) {
    const ggml_tensor * src0 = dst->src[0];
    const ggml_tensor * src1 = dst->src[1];
    return dst->op == GGML_OP_MUL_MAT && ggml_panel_supports_weights(src0) &&
           ggml_get_op_params_i32(dst, 1) != GGML_HINT_SRC0_IS_HADAMARD &&
           src1->type == GGML_TYPE_F32 && src1->nb[0] == sizeof(float) &&
           dst->type == GGML_TYPE_F32 && ggml_is_contiguous(dst) &&
           ggml_nelements(dst) > 0 && src0->ne[0] > 0 && !panel_leaves_to_bf16(src0, src1);
}

// work memory: what the threads agree upon, the activations of all columns, the scratch of each thread

static const size_t PANEL_ALIGN = 64;

static size_t panel_acts_stride(const panel_family * family, int64_t k) {
    const size_t size = family->acts_size(k);
    // columns should not fall into the same sets of the L1 cache
    return size % 1024 == 0 ? size + PANEL_ALIGN : size;
}

static size_t panel_scratch_stride(const panel_family * family, int64_t k) {
    return GGML_PAD(family->scratch_size(k), PANEL_ALIGN);
}

size_t ggml_panel_work_size(const struct ggml_tensor * dst, int n_threads) {
    if (!ggml_panel_supports_op(dst)) {
        return 0;
    }
    const panel_family * family = panel_family_of(dst->src[0]->type);
    const int64_t k = dst->src[0]->ne[0];
    return 2*PANEL_ALIGN + panel_acts_stride(family, k)*ggml_nrows(dst->src[1]) + panel_scratch_stride(family, k)*n_threads;
}

// activations

// Column c of src1; columns of all dimensions are counted through.
static const float * panel_column(const ggml_tensor * src1, int64_t c) {
    const int64_t i1 = c % src1->ne[1];
    const int64_t i2 = c/src1->ne[1] % src1->ne[2];
    const int64_t i3 = c/src1->ne[1]/src1->ne[2];
    return (const float *) ((const char *) src1->data + i1*src1->nb[1] + i2*src1->nb[2] + i3*src1->nb[3]);
}

// This thread's share of all columns, in pieces that may be quantised on their own.
static void panel_quantize(const panel_family * family, const ggml_tensor * src1, char * acts, size_t acts_stride, int ith, int nth) {
    const int64_t k        = src1->ne[0];
    const int64_t split    = family->k_split > 0 ? family->k_split : k;
    const int64_t n_pieces = (k + split - 1)/split;
    const int64_t total    = n_pieces*ggml_nrows(src1);
    const int64_t end      = total*(ith + 1)/nth;

    for (int64_t i = total*ith/nth; i < end; ) {
        const int64_t c  = i/n_pieces;
        const int64_t p0 = i%n_pieces;
        const int64_t p1 = std::min(n_pieces, p0 + end - i);
        const int64_t k0 = p0*split;
        const int64_t k1 = std::min(k, p1*split);
        family->acts_quantize(panel_column(src1, c) + k0, acts + c*acts_stride + (k0 > 0 ? family->acts_size(k0) : 0), k1 - k0);
        i += p1 - p0;
    }
}

// partition of the product

struct panel_plan {
    int64_t n_panels;       // panels of rows
    int64_t n_groups;       // groups of panels
    int64_t n_col_blocks;   // blocks of columns whose activations stay in the L2 cache
    bool    chunk_columns;  // a chunk is a group and a column block, else a group and all of these in turn

    int64_t n_chunks() const { return chunk_columns ? n_groups*n_col_blocks : n_groups; }
};

static panel_plan panel_make_plan(const panel_family * family, const ggml_tensor * w, int64_t n_cols, size_t acts_stride, int nth) {
    static const int64_t CHUNK_MIN         = 64*1024;   // multiply-adds that are worth fetching a chunk
    static const int64_t CHUNK_MIN_BYTES   = 64*1024;  // weights, which are read faster in long runs
    static const int64_t CHUNKS_PER_THREAD = 16;       // to make up for threads of unequal speed
    static const int64_t ACTS_BYTES        = 128*1024;
    static const int64_t WEIGHT_BYTES      = 256*1024;  // of a group that meets several column blocks
    static const int64_t COLS_MIN          = 24;

    panel_plan plan;
    plan.n_panels = (w->ne[1] + family->n_rows - 1)/family->n_rows;

    const int64_t block = std::max(COLS_MIN, ACTS_BYTES/(int64_t) acts_stride/COLS_MIN*COLS_MIN);
    plan.n_col_blocks  = (n_cols + block - 1)/block;
    plan.chunk_columns = plan.n_col_blocks > 1 && plan.n_panels < 4*nth;

    const int64_t bytes = w->ne[1]*(int64_t) w->nb[1];
    int64_t n = std::min(w->ne[0]*w->ne[1]*n_cols/CHUNK_MIN, bytes/CHUNK_MIN_BYTES)/nth*nth;
    n = std::min(n, CHUNKS_PER_THREAD*nth);
    n = std::max(n, (int64_t) nth);
    if (plan.n_col_blocks > 1) {
        n = std::max(n, bytes/WEIGHT_BYTES);
    }
    plan.n_groups = std::min(n, plan.n_panels);
    return plan;
}

struct panel_product {
    const panel_family * family;
    const ggml_tensor *  w;
    const char *         panels;  // the weights packed, or nullptr
    const char *         acts;
    size_t               acts_stride;
    int64_t              n_cols;
    float *              dst;
    void *               scratch;
};

// The kernels fetch ahead of the panel they are at; here is what they can not reach.
static void panel_prefetch(const panel_product & p, const panel_plan & plan, int64_t group) {
#if defined(PANEL_LANES)
    const int64_t row   = plan.n_panels*group/plan.n_groups*p.family->n_rows;
    const char *  begin = (p.panels ? p.panels : (const char *) p.w->data) + row*p.w->nb[1];
    for (size_t i = 0; i < PANEL_PREFETCH_BYTES; i += 64) {
        _mm_prefetch(begin + i, _MM_HINT_T1);
    }
#else
    GGML_UNUSED(p);
    GGML_UNUSED(plan);
    GGML_UNUSED(group);
#endif
}

static void panel_mul_group(const panel_product & p, const panel_plan & plan, int64_t group, int64_t col_block) {
    const int64_t n_rows = p.family->n_rows;
    const int64_t ne0    = p.w->ne[1];
    const int64_t c0     = p.n_cols*col_block/plan.n_col_blocks;
    const int64_t c1     = p.n_cols*(col_block + 1)/plan.n_col_blocks;
    const int64_t end    = plan.n_panels*(group + 1)/plan.n_groups;
    const char *  acts   = p.acts + c0*p.acts_stride;

    for (int64_t i = plan.n_panels*group/plan.n_groups; i < end; i++) {
        const int64_t r = i*n_rows;
        const size_t  off = r*p.w->nb[1];
        float *       dst = p.dst + c0*ne0 + r;
        if (p.panels) {
            p.family->mul_packed(p.w->ne[0], p.panels + off, acts, p.acts_stride, (int) (c1 - c0), dst, ne0, p.scratch);
        } else {
            p.family->mul(p.w->ne[0], (const char *) p.w->data + off, p.w->nb[1], (int) std::min(n_rows, ne0 - r),
                          acts, p.acts_stride, (int) (c1 - c0), dst, ne0, p.scratch);
        }
    }
}

bool ggml_compute_forward_mul_mat_panel(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    if (params->use_ref || !ggml_panel_supports_op(dst)) {
        return false;
    }
    const ggml_tensor *  src0   = dst->src[0];
    const ggml_tensor *  src1   = dst->src[1];
    const panel_family * family = panel_family_of(src0->type);
    const int64_t        k      = src0->ne[0];
    const int            ith    = params->ith;
    const int            nth    = params->nth;

    GGML_ASSERT(params->wsize >= ggml_panel_work_size(dst, nth));

    panel_product p;
    p.family      = family;
    p.w           = src0;
    p.panels      = panel_packed_data(src0);
    p.acts_stride = panel_acts_stride(family, k);
    p.n_cols      = ggml_nrows(src1);
    p.dst         = (float *) dst->data;

    char * head = (char *) GGML_PAD((uintptr_t) params->wdata, PANEL_ALIGN);
    char * acts = head + PANEL_ALIGN;
    panel_packing & packing = *(panel_packing *) head;
    p.acts      = acts;
    p.scratch   = acts + p.n_cols*p.acts_stride + ith*panel_scratch_stride(family, k);

    const panel_plan plan = panel_make_plan(family, src0, p.n_cols, p.acts_stride, nth);
    if (ith < plan.n_chunks()) {
        panel_prefetch(p, plan, ith % plan.n_groups);
    }
    panel_quantize(family, src1, acts, p.acts_stride, ith, nth);
    if (ith == 0) {
        // every thread begins with the chunk of its own number
        ggml_threadpool_chunk_set(params->threadpool, nth);
        packing = panel_packed_begin(src0);
    }
    ggml_barrier(params->threadpool);

    if (packing == PANEL_PACK) {
        panel_packed_fill(src0, ith, nth);
        ggml_barrier(params->threadpool);
        if (ith == 0) {
            panel_packed_end(src0);
        }
    }
    p.panels = packing == PANEL_STOCK ? nullptr : panel_packed_room(src0);

    for (int64_t chunk = ith; chunk < plan.n_chunks(); chunk = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        if (chunk != ith) {
            panel_prefetch(p, plan, chunk % plan.n_groups);
        }
        if (plan.chunk_columns) {
            panel_mul_group(p, plan, chunk % plan.n_groups, chunk/plan.n_groups);
            continue;
        }
        for (int64_t b = 0; b < plan.n_col_blocks; b++) {
            panel_mul_group(p, plan, chunk, b);
        }
    }
    return true;
}
