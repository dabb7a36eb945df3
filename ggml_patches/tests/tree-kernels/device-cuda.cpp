// ggml-cuda/tree-ops.cu as it is, on the CPU. TREE_CUDA: a copy of it, beside which no common.cuh lies

#include "device.h"

#include TREE_CUDA

static ggml_tensor make_tensor(ggml_type type, int64_t ne0, int64_t ne1, const void * data) {
    const size_t size = type == GGML_TYPE_F16 ? 2 : 4;

    ggml_tensor t = {};
    t.type  = type;
    t.ne[0] = ne0;
    t.ne[1] = ne1;
    t.nb[0] = size;
    t.nb[1] = size*ne0;
    t.data  = const_cast<void *>(data);
    return t;
}

void device_tree_mask(
        const mask_shape & shape, const int32_t * cells, const int32_t * tokens, const int32_t * pos, void * dst) {
    ggml_tensor t_cells  = make_tensor(GGML_TYPE_I32, shape.n_kv, 1, cells);
    ggml_tensor t_tokens = make_tensor(GGML_TYPE_I32, shape.n_words + 2, shape.n_tokens, tokens);
    ggml_tensor t_pos    = make_tensor(GGML_TYPE_I32, shape.n_kv, 1, pos);

    ggml_tensor mask  = make_tensor(shape.is_f16 ? GGML_TYPE_F16 : GGML_TYPE_F32, shape.n_kv, shape.n_tokens, dst);
    mask.op_params[0] = shape.window;
    mask.op_params[1] = shape.n_window;
    mask.src[0]       = &t_cells;
    mask.src[1]       = &t_tokens;
    mask.src[2]       = pos ? &t_pos : nullptr;

    ggml_backend_cuda_context ctx;
    ggml_cuda_op_tree_mask(ctx, &mask);
}

void device_topk_stats(const float * x, size_t nb, int32_t n, int32_t n_rows, int32_t k, float * dst) {
    ggml_tensor t_x = make_tensor(GGML_TYPE_F32, n, n_rows, x);
    t_x.nb[1]       = nb;

    ggml_tensor stats  = make_tensor(GGML_TYPE_F32, 2*k + 2, n_rows, dst);
    stats.op_params[0] = k;
    stats.src[0]       = &t_x;

    ggml_backend_cuda_context ctx;
    ggml_cuda_op_topk_stats(ctx, &stats);
}
