#include "tree-ops.cuh"

#define TREE_KERNELS_CUDA
#include "../ggml-tree-kernels.h"

static_assert(TREE_WINDOW_NONE    == GGML_TREE_WINDOW_NONE,    "windows of ggml-tree-kernels.h");
static_assert(TREE_WINDOW_SLIDING == GGML_TREE_WINDOW_SLIDING, "windows of ggml-tree-kernels.h");
static_assert(TREE_WINDOW_CHUNKED == GGML_TREE_WINDOW_CHUNKED, "windows of ggml-tree-kernels.h");
static_assert(GGML_TOPK_STATS_MAX_K <= TREE_STATS_GROUPS, "a bound is the k-th largest of the maxima of the groups");

static constexpr int CUDA_TREE_MASK_BLOCK_SIZE = 128;

static __global__ void __launch_bounds__(CUDA_TREE_MASK_BLOCK_SIZE) tree_mask_kernel(const tree_mask_op op) {
    ggml_cuda_pdl_lc();
    ggml_cuda_pdl_sync();

    tree_mask(op, blockIdx.x*CUDA_TREE_MASK_BLOCK_SIZE + threadIdx.x, blockIdx.y);
}

static __global__ void __launch_bounds__(TREE_STATS_MAX_THREADS) topk_stats_kernel(
        const char * x, uint32_t * dst, const int64_t nb_x, const int32_t address, const int32_t n, const int32_t k) {
    __shared__ tree_stats_shared shared;

    const int32_t tid = threadIdx.x;
    const int64_t i   = blockIdx.x;

    const tree_stats_row row = tree_stats_row_init(
        (const uint32_t *) (x + i*nb_x), dst + i*(2*k + 2), (int32_t) ((address + i*nb_x) % 16), n, k, TREE_STATS_MAX_THREADS);

    ggml_cuda_pdl_lc();
    ggml_cuda_pdl_sync();

#define TREE_PHASE(f) f(row, &shared, tid); __syncthreads();
    TREE_STATS_PHASES(TREE_PHASE, row, &shared)
#undef TREE_PHASE
}

static bool is_multiple_of_16(const void * address) {
    return (uintptr_t) address % 16 == 0;
}

void ggml_cuda_op_tree_mask(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {
    const ggml_tensor * cells  = dst->src[0];
    const ggml_tensor * tokens = dst->src[1];
    const ggml_tensor * pos    = dst->src[2];

    GGML_ASSERT(dst->type == GGML_TYPE_F16 || dst->type == GGML_TYPE_F32);
    GGML_ASSERT(ggml_is_contiguous(cells) && ggml_is_contiguous(tokens) && ggml_is_contiguous(dst));
    GGML_ASSERT(pos == nullptr || ggml_is_contiguous(pos));

    tree_mask_op op;
    op.cells    = (const int32_t *) cells->data;
    op.tokens   = (const int32_t *) tokens->data;
    op.pos      = pos ? (const int32_t *) pos->data : nullptr;
    op.dst      = (char *) dst->data;
    op.n_kv     = (int32_t) dst->ne[0];
    op.n_tokens = (int32_t) dst->ne[1];
    op.n_words  = (int32_t) tokens->ne[0] - 2;
    op.window   = ggml_get_op_params_i32(dst, 0);
    op.n_window = ggml_get_op_params_i32(dst, 1);
    op.is_f16   = dst->type == GGML_TYPE_F16;
    op.aligned  = op.n_kv % TREE_MASK_CELLS == 0 && is_multiple_of_16(op.cells) && is_multiple_of_16(op.pos) && is_multiple_of_16(op.dst);

    const int64_t cells_per_block = TREE_MASK_CELLS*CUDA_TREE_MASK_BLOCK_SIZE;

    const dim3 block_nums((op.n_kv + cells_per_block - 1)/cells_per_block, (op.n_tokens + TREE_MASK_TOKENS - 1)/TREE_MASK_TOKENS, 1);
    const dim3 block_dims(CUDA_TREE_MASK_BLOCK_SIZE, 1, 1);

    const ggml_cuda_kernel_launch_params launch_params(block_nums, block_dims, 0, ctx.stream());
    ggml_cuda_kernel_launch(tree_mask_kernel, launch_params, op);
}

void ggml_cuda_op_topk_stats(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {
    const ggml_tensor * x = dst->src[0];

    GGML_ASSERT(x->type == GGML_TYPE_F32 && dst->type == GGML_TYPE_F32);
    GGML_ASSERT(x->nb[0] == sizeof(float) && ggml_is_contiguous(dst));

    const int32_t address = (int32_t) ((uintptr_t) x->data % 16);
    const int32_t k       = ggml_get_op_params_i32(dst, 0);

    const dim3 block_nums(x->ne[1], 1, 1);
    const dim3 block_dims(TREE_STATS_MAX_THREADS, 1, 1);

    const ggml_cuda_kernel_launch_params launch_params(block_nums, block_dims, 0, ctx.stream());
    ggml_cuda_kernel_launch(topk_stats_kernel, launch_params,
        (const char *) x->data, (uint32_t *) dst->data, (int64_t) x->nb[1], address, (int32_t) x->ne[0], k);
}
