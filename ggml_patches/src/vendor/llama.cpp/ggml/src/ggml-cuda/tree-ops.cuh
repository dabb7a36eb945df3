#include "common.cuh"

void ggml_cuda_op_tree_mask (ggml_backend_cuda_context & ctx, ggml_tensor * dst);
void ggml_cuda_op_topk_stats(ggml_backend_cuda_context & ctx, ggml_tensor * dst);
