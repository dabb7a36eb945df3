#pragma once

#include "ggml.h"

struct ggml_compute_params;

#ifdef __cplusplus
extern "C" {
#endif

// the operations of token trees: GGML_OP_TREE_MASK and GGML_OP_TOPK_STATS
void ggml_compute_forward_tree_mask (const struct ggml_compute_params * params, struct ggml_tensor * dst);
void ggml_compute_forward_topk_stats(const struct ggml_compute_params * params, struct ggml_tensor * dst);

// one row of the result of GGML_OP_TOPK_STATS, [2*k + 2], from n logits
void ggml_topk_stats_row(const float * row, int64_t n, int32_t k, float * result);

#ifdef __cplusplus
}
#endif
