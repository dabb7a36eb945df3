#include "tree-ops.h"

#include "ggml-cpu-impl.h"
#include "ggml-impl.h"
#include "simd-mappings.h"

#include <algorithm>
#include <cmath>
#include <cstring>

static const int32_t * int_row(const ggml_tensor * t, int64_t row) {
    return (const int32_t *) ((const char *) t->data + row*t->nb[1]);
}

// one element of the mask
static bool sees(const int32_t * token, int32_t cell, int32_t pos, ggml_tree_window window, int32_t n_window) {
    const int32_t owner = cell >> 16;
    const int32_t node  = (cell & 0xffff) - 1;

    if (cell < 0 || owner != token[0]) {
        return false;
    }
    if (node >= 0 && !(token[2 + node/32] >> (node%32) & 1)) {
        return false;
    }
    switch (window) {
        case GGML_TREE_WINDOW_SLIDING: return token[1] - pos < n_window;
        case GGML_TREE_WINDOW_CHUNKED: return pos >= token[1]/n_window*n_window;
        default:                       return true;
    }
}

static void reference_tree_mask(ggml_tensor * dst, int ith, int nth) {
    const int32_t * cells    = (const int32_t *) dst->src[0]->data;
    const int32_t * pos      = dst->src[2] ? (const int32_t *) dst->src[2]->data : nullptr;
    const auto      window   = (ggml_tree_window) ggml_get_op_params_i32(dst, 0);
    const int32_t   n_window = ggml_get_op_params_i32(dst, 1);

    for (int64_t i = ith; i < dst->ne[1]; i += nth) {
        const int32_t * token = int_row(dst->src[1], i);
        char *          row   = (char *) dst->data + i*dst->nb[1];

        for (int64_t j = 0; j < dst->ne[0]; ++j) {
            const float value = sees(token, cells[j], pos ? pos[j] : 0, window, n_window) ? 0.0f : -INFINITY;
            if (dst->type == GGML_TYPE_F16) {
                ((ggml_fp16_t *) row)[j] = GGML_CPU_FP32_TO_FP16(value);
            } else {
                ((float *) row)[j] = value;
            }
        }
    }
}

void ggml_compute_forward_tree_mask(const ggml_compute_params * params, ggml_tensor * dst) {
    reference_tree_mask(dst, params->ith, params->nth);
}

static void reference_topk_stats(ggml_tensor * dst, int ith, int nth) {
    const int64_t n = dst->src[0]->ne[0];
    const int32_t k = ggml_get_op_params_i32(dst, 0);

    for (int64_t i = ith; i < dst->ne[1]; i += nth) {
        const float * row    = (const float *) ((const char *) dst->src[0]->data + i*dst->src[0]->nb[1]);
        float *       result = (float *) ((char *) dst->data + i*dst->nb[1]);

        int32_t ids[GGML_TOPK_STATS_MAX_K];
        float * top = result + k;

        int32_t n_top = 0;
        for (int64_t id = 0; id < n; ++id) {
            const float x = std::isnan(row[id]) ? -INFINITY : row[id];
            if (n_top == k && !(x > top[k - 1])) {
                continue;
            }
            int32_t j = n_top < k ? n_top++ : k - 1;
            for (; j > 0 && x > top[j - 1]; --j) {
                ids[j] = ids[j - 1];
                top[j] = top[j - 1];
            }
            ids[j] = (int32_t) id;
            top[j] = x;
        }
        memcpy(result, ids, k*sizeof(int32_t));

        double sum_e  = 0.0;
        double sum_xe = 0.0;
        for (int64_t id = 0; id < n; ++id) {
            const double x = (double) row[id] - top[0];
            if (x > -87.0) { // masked (-INF) and NaN entries vanish
                sum_e  += std::exp(x);
                sum_xe += x*std::exp(x);
            }
        }
        result[2*k]     = (float) (top[0] + std::log(sum_e));
        result[2*k + 1] = (float) std::max(0.0, std::log(sum_e) - sum_xe/sum_e);
    }
}

void ggml_compute_forward_topk_stats(const ggml_compute_params * params, ggml_tensor * dst) {
    reference_topk_stats(dst, params->ith, params->nth);
}
